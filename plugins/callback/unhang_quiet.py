# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's usual screen output without the lines per node of an audit, whose result is the table
of findings."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_quiet
type: stdout
short_description: Default output that is silent for audits
version_added: "0.1.0"
description:
  - Is M(ansible.builtin.default), but prints nothing for plays that hold a C(gpu_node_info) task,
    whose outcome is in the run folder.
  - With C(-v) it is the default output throughout.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.callback.default import CallbackModule as DefaultOutput

# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]

from unhang.core.ansible.plays import audits
from unhang.core.ansible.printable_text import clean, printable_parts, without_controls


def _printably(name: str) -> Any:
    """The display's method of this name, of what a terminal may print."""

    def method(self: Any, given: Any, *arguments: Any, **more: Any) -> None:
        getattr(self.display_of_ansible, name)(printable_parts(given), *arguments, **more)

    return method


class PrintableDisplay:
    """Ansible's display without control characters that a terminal would interpret: warnings,
    errors and differences contain text from nodes."""

    def __init__(self, display: Any) -> None:
        self.display_of_ansible = display

    def __getattr__(self, name: str) -> Any:
        return getattr(self.display_of_ansible, name)

    def display(self, msg: Any, *arguments: Any, **more: Any) -> None:
        """Prints a cleaned text with Ansible's own colours."""
        self.display_of_ansible.display(without_controls(str(msg)), *arguments, **more)

    _warning = _printably("_warning")
    _deprecated = _printably("_deprecated")
    _error = _printably("_error")


def _unless_muted(name: str) -> Any:
    """The default output's method of this name, silent for a play that audits."""

    def method(self: Any, *arguments: Any, **more: Any) -> None:
        if not self.mute:
            getattr(DefaultOutput, name)(self, *arguments, **more)

    return method


class CallbackModule(DefaultOutput):
    """The default output, which is silent for auditing plays."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "unhang_quiet"

    def __init__(self) -> None:
        super().__init__()
        self._display = PrintableDisplay(self._display)  # type: ignore[has-type]  # Ansible's, without a type
        self.mute = False
        self.shown: set[Any] = set()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Decides for the play that begins."""
        self.mute = audits(play) and self._display.verbosity == 0
        if not self.mute:
            super().v2_playbook_on_play_start(play)

    # the callback unhang_run prints a better message
    v2_playbook_on_no_hosts_matched = _unless_muted("v2_playbook_on_no_hosts_matched")
    v2_playbook_on_task_start = _unless_muted("v2_playbook_on_task_start")
    v2_runner_on_ok = _unless_muted("v2_runner_on_ok")
    v2_runner_on_skipped = _unless_muted("v2_runner_on_skipped")
    v2_playbook_on_stats = _unless_muted("v2_playbook_on_stats")
    v2_runner_on_unreachable = _unless_muted("v2_runner_on_unreachable")  # a finding of the audit

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Silent, because it is a finding of the audit; the play's own assertion is printed
        once."""
        if not self.mute:
            super().v2_runner_on_failed(result, ignore_errors)
        elif not audits(result.task):
            message = clean(result.result.get("msg", ""))
            if message not in self.shown:
                self.shown.add(message)
                self._display.display(f"unhang: {message}", stderr=True)

    def _get_diff(self, difflist: Any) -> Any:
        """The difference without colour codes of the file: the display cannot distinguish them from
        Ansible's."""
        return super()._get_diff(printable_parts(difflist))
