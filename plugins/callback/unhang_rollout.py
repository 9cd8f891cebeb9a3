# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Writes two events that no task can write into the journal of a rollout: a node no longer answers,
and the playbook has ended."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_rollout
type: aggregate
short_description: Journal of a rollout, where no task can write it
version_added: "0.1.0"
description:
  - Acts on plays that hold a C(rollout_wave) task, and on no others.
  - Prints one line for each step of a node and for each wave.
  - A node that cannot be reached is dropped by Ansible without another task; its step ends in the
    journal all the same.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]
STEPS = ("rollout_begin", "rollout_wave", "rollout_step")


class CallbackModule(CallbackBase):
    """One rollout."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "unhang_rollout"

    def __init__(self) -> None:
        super().__init__()
        self.rollout: dict[str, Any] | None = None

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Reads the rules, once, for all workers that judge."""
        if _action(task) == "rollout_judge":
            from unhang.judge.rules.compiled_catalogue import load_catalogue

            load_catalogue()

    def v2_runner_on_ok(self, result: Any) -> None:
        """Remembers the rollout, and prints the result of each step."""
        action, answer = _action(result.task), result.result
        if action == "rollout_begin":
            self.rollout = dict(answer["rollout"])
        if action in STEPS:
            self._follow()
        if action == "rollout_wave" or (
            action == "rollout_step" and ("status" in answer or answer.get("ended"))
        ):
            print(f"rollout: {answer['msg']}", flush=True)  # noqa: T201 -- one plain line, whatever shows the rest

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Records that the node's step has ended without an answer."""
        self._write(
            lambda conductor: conductor.silent(
                result.host.get_name(), f"unreachable: {str(result.result.get('msg', ''))[:500]}"
            )
        )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Records the end of the playbook: all batches are done, or the play has stopped."""
        self._write(lambda conductor: conductor.end())

    def _follow(self) -> None:
        """Reads the new lines of the journal, so that the workers that Ansible forks from this
        process need not read a long journal again."""
        self._write(lambda conductor: conductor.standing())

    def _write(self, entry: Callable[[Any], Any]) -> None:
        if self.rollout is None:
            return
        from unhang.act.rollout.for_ansible import conductor_of
        from unhang.core.errors import UserError

        try:
            entry(conductor_of(self.rollout))
        except (UserError, OSError) as problem:
            print(f"unhang: {problem}", file=sys.stderr, flush=True)  # noqa: T201 -- Ansible's Display would wrap and colour it


def _action(task: Any) -> str:
    """The name without that of the collection, which its playbooks give."""
    return str(getattr(task, "action", "")).rpartition(".")[2]
