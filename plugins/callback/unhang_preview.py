# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Records what each role of a preview would change or refuses, one JSON line for each result, for
the table of `unhang remediate`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_preview
type: aggregate
short_description: What the roles of a preview would change
version_added: "0.1.0"
description:
  - Does nothing unless E(UNHANG_PREVIEW) names the file to write; C(unhang remediate) sets it, and
    enables this plugin for its previews alone.
"""

import os
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]

from unhang.core.ansible.plays import audits
from unhang.core.ansible.preview_events import PREVIEW_ENV, PreviewFile


class CallbackModule(CallbackBase):
    """One preview."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "unhang_preview"

    def __init__(self) -> None:
        super().__init__()
        path = os.environ.get(PREVIEW_ENV)
        self.file = PreviewFile(Path(path)) if path else None
        self.auditing = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Skips plays that audit: their findings are in the run folder."""
        self.auditing = audits(play)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Records what would change, and the role's report."""
        self._add("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Records what a role refuses."""
        if not ignore_errors:
            self._add("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Records a node that no longer answers."""
        self._add("failed", result)

    def _add(self, status: str, result: Any) -> None:
        if self.file is None or self.auditing:
            return
        task = result.task
        # a role that another role includes is a part of that role
        chain = task.get_dep_chain() or [task._role]
        role = chain[0].get_name() if chain[0] is not None else ""
        self.file.add(
            result.host.get_name(), role, task.get_name(), str(task.action), status, result.result
        )
