"""A run that a person or a signal ended: whether anything was read, and how to continue."""

from __future__ import annotations

import json
import signal

import pytest

from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import ended_early


@pytest.mark.parametrize(
    ("played", "what"),
    [
        (Played("", 0, stopped=True), "it was stopped by hand"),
        (Played("", -signal.SIGKILL), "ansible-playbook was ended by SIGKILL"),
    ],
)
def test_before_the_first_node_it_says_that_none_was_asked(tmp_path, played, what):
    assert ended_early(played, tmp_path) == f"{what}, before a node was asked"


def test_later_it_says_how_to_judge_what_was_read(tmp_path):
    (tmp_path / "nodes").mkdir()
    head = {
        "schema": "unhang/run/1",
        "id": "r",
        "started": "2026-11-24T00:00:00Z",
        "finished": None,
        "inventory": [],
        "limit": None,
        "hosts": ["gpu001"],
    }
    (tmp_path / "run.json").write_text(json.dumps(head))
    assert ended_early(Played("", 0, stopped=True), tmp_path).endswith(f"judge {tmp_path}")
