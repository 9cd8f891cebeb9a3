"""A key of unhang_policy that nobody knows is named where a person looks first."""

from __future__ import annotations

import json

import pytest

from unhang import cli

RUN = {
    "schema": "unhang/run/1",
    "id": "20261120T000000Z-0123456789",
    "started": "2026-11-20T00:00:00Z",
    "finished": None,
    "inventory": ["i"],
    "limit": None,
}
NODE = {
    "schema": "unhang/node/1",
    "groups": ["training"],
    "policy": {"driver": {"verison": "535.154.05"}},
    "status": "unreachable",
    "message": "m",
    "facts": None,
}


@pytest.mark.parametrize(
    ("files", "named"),
    [(["/i/group_vars/training.yml", "/i/group_vars/login.yml"],
    "driver.verison in group_vars/training.yml"),
     (["/i/group_vars/training/policy.yml"], "driver.verison in training/policy.yml"),
     (["/i/hosts.yml"], "driver.verison in i/hosts.yml"),
     (["/i/a.yml", "/i/b.yml"], "driver.verison")],
    ids=["a file of its group", "a folder of its group", "the one file", "not known which"],
)  # fmt: skip
def test_the_first_screen_names_key_suggestion_and_file(tmp_path, capsys, files, named):
    (tmp_path / "nodes").mkdir()
    controller = {"unhang": "0", "ansible_core": "2.19.0", "python": "3.11.2"}
    (tmp_path / "run.json").write_text(
        json.dumps(
            {**RUN, "hosts": ["n1", "n2"], "controller": controller, "policy_sources": files}
        )
    )
    for host in ("n1", "n2"):
        (tmp_path / "nodes" / f"{host}.json").write_text(json.dumps({**NODE, "host": host}))
    cli.main(["judge", str(tmp_path), "--now", "2026-11-20"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"correct {named}: this key is unknown (did you mean version?)" in text
