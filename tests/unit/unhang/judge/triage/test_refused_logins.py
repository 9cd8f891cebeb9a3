"""A node that refuses the login is up: the advice is about the user and the key, and the example's
inventory names no user of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from judge_cases import node, write_run

from unhang.core.run.run_input import read_run_input
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import conclusion

EXAMPLE = Path(__file__).resolve().parents[5] / "inventory" / "example"
REFUSED = "Failed to connect to the host via ssh: ops@10.0.0.9: Permission denied (publickey)."
SILENT = "ssh: connect to host 10.0.0.9 port 22: No route to host"


@pytest.mark.parametrize(
    ("message", "advice", "other"),
    [
        (REFUSED, ("ansible_user of the inventory", "IdentityFile", "ssh -v"), "power"),
        (SILENT, ("power",), "ansible_user"),
    ],
)
def test_the_advice_is_about_what_refused(tmp_path, message, advice, other):
    catalogue = load_catalogue()
    unread = {**node("gpu1"), "status": "unreachable", "message": message, "facts": None}
    run = write_run(tmp_path / "run", unread)
    judge_run(read_run_input(run), catalogue, "2026-06-01", conclude=conclusion(catalogue.rules))
    (found,) = [
        one["remedy"]["person"]
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["rule"] == "node-unreachable"
    ]
    assert all(words in found for words in advice) and other not in found


def test_the_example_leaves_the_user_to_the_site():
    variables = [yaml.safe_load(path.read_text()) for path in EXAMPLE.glob("group_vars/*.yml")]
    assert variables and not [one for one in variables if "ansible_user" in (one or {})]
