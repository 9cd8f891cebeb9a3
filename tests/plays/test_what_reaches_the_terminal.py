"""Answers of modules other than the audit's: no text from a node can control a terminal."""

from __future__ import annotations

import json

import pytest
import yaml

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b2J"
ANSWERS = {
    "warns": {
        "changed": False,
        "warnings": [f"disk {ESCAPE} full"],
        "deprecations": [{"msg": f"old {ESCAPE}", "version": "9.9"}],
    },
    "fails": {"failed": True, "msg": f"no room {ESCAPE}", "exception": f"Traceback {ESCAPE}\n"},
    "differs": {
        "changed": True,
        "diff": {
            "before": f"a{ESCAPE}\n",
            "after": f"b{ESCAPE}\n",
            "before_header": ESCAPE,
            "after_header": ESCAPE,
        },
    },
    "says": {"changed": True, "msg": f"done {ESCAPE}"},
}


@pytest.mark.parametrize("verbose", [[], ["-vvv"]], ids=["", "-vvv"])
def test_no_escape_of_an_answer_reaches_the_terminal(fleet, verbose):
    for name, answer in ANSWERS.items():
        fleet.answering(name, json.dumps(answer))
    fleet.answering("chatters", json.dumps({"changed": False}) + f"\nlast words {ESCAPE}\n")
    playbook = fleet.folder / "plain.yml"
    playbook.write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [{"gpu_services": {"state": "started"}}],
                }
            ]
        )
    )
    played = fleet.play("--diff", *verbose, playbook=playbook, environment={"ANSIBLE_NOCOLOR": "1"})
    output = played.stdout + played.stderr
    assert not [one for one in output if not one.isprintable() and one not in "\n\t"]
    for message in ("disk ", "no room ", "last words ", "+b"):
        assert message in output


def test_ansibles_own_colours_stay(fleet):
    fleet.answering("differs", json.dumps(ANSWERS["differs"]))
    playbook = fleet.folder / "plain.yml"
    playbook.write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [{"gpu_services": {"state": "started"}}],
                }
            ]
        )
    )
    output = fleet.play(
        "--diff", playbook=playbook, environment={"ANSIBLE_FORCE_COLOR": "1"}
    ).stdout
    assert "\x1b[0;32m+b" in output
    assert "\x1b[2J" not in output
    assert "\x1b[8m" not in output
    assert "\x9b" not in output
