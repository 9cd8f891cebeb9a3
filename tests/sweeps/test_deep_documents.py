"""A node whose answer nests without end loses its own result, and nobody else's."""

from __future__ import annotations

import json

import pytest
from local_fleet import PROJECT

from unhang.cli import main

FACTS = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
PLACES = {
    "a fact": lambda facts, deep: facts["sections"]["gpus"].update(model=deep),
    "a section": lambda facts, deep: facts["sections"].update(kernel=deep),
    "the collector": lambda facts, deep: facts["collector"].update(version=deep),
    "an unknown key": lambda facts, deep: facts.update(unknown=deep),
    "sections": lambda facts, deep: facts.update(sections=deep),
}


@pytest.fixture
def run(tmp_path, request):
    """A run of a good node and of one that nests."""
    place, levels, opening, closing = request.param
    (tmp_path / "nodes").mkdir()
    facts = json.loads(json.dumps(FACTS))
    PLACES[place](facts, "@")
    for host, content in (("good", FACTS), ("deep", facts)):
        node = {
            "schema": "unhang/node/1",
            "host": host,
            "groups": [],
            "policy": {},
            "status": "ok",
            "message": None,
            "facts": content,
        }
        (tmp_path / "nodes" / f"{host}.json").write_text(
            json.dumps(node).replace('"@"', opening * levels + "1" + closing * levels)
        )
    head = {
        "schema": "unhang/run/1",
        "id": tmp_path.name,
        "started": "2026-11-20T17:57:45Z",
        "finished": "2026-11-20T17:58:00Z",
        "inventory": [],
    }
    controller = {"unhang": "0", "ansible_core": "0", "python": "3.11"}
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                **head,
                "limit": None,
                "hosts": ["good", "deep"],
                "controller": controller,
                "policy_sources": [],
            }
        )
    )
    return tmp_path


DEEP = [
    (place, levels, *signs)
    for place in PLACES
    for levels in (990, 1100, 100_000)
    for signs in ("[]", ('{"a":', "}"))
]


@pytest.mark.parametrize(
    "run", DEEP, indirect=True, ids=lambda one: f"{one[0]} {one[1]} {one[2][0]}"
)
def test_the_others_are_judged(run, capsys):
    assert main(["judge", str(run), "-o", "json"]) in (0, 1, 2)
    printed = capsys.readouterr()
    assert "fault of unhang" not in printed.err
    assert json.loads(printed.out)["node_verdicts"] == {
        "critical": [],
        "error": [],
        "warning": [],
        "unread": ["deep"],
        "healthy": [],
        "partly read": ["good"],  # as by a collector of before
        "not a GPU node": [],
    }


@pytest.mark.parametrize("run", [("a fact", 1100, "[", "]")], indirect=True, ids=["deep"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["report", "RUN"], 1),
        (["plan", "RUN"], 0),
        (["policy", "--from", "RUN", "--limit", "good"], 0),
        (["policy", "--from", "RUN"], 2),
    ],
    ids=lambda one: one if isinstance(one, int) else " ".join(one),
)
def test_other_commands_name_the_node_or_go_on(run, capsys, arguments, code):
    main(["judge", str(run)])
    capsys.readouterr()
    assert main([one.replace("RUN", str(run)) for one in arguments]) == code
    printed = capsys.readouterr()
    assert "fault of unhang" not in printed.err
    assert code != 2 or "deep" in printed.err
