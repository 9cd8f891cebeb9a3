# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of gpu_node_info: runs the module, reads its answer strictly, and writes it
to the run folder if there is one.

No part of an answer reaches Ansible's variables, and all printed text is cleaned: text from a node
is only data. ansible-core itself would accept NaN, duplicate keys and 200 MB, and print terminal
escapes. The file is written as soon as the node has answered, so that nothing that fails later
loses it. Only _low_level_execute_command is overridden: what _parse_returned_data returns changed
between ansible-core 2.20 and 2.21.
"""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils import basic
from ansible.plugins.action import ActionBase

PROJECT = Path(__file__).resolve().parents[2]
_TOOLS = [str(PROJECT / name) for name in ("tools", "module_utils")]
# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [folder for folder in _TOOLS if folder not in sys.path]

try:
    from ansible._internal._errors._alarm_timeout import AnsibleTimeoutError
except ImportError:  # another ansible-core than 2.19 to 2.22 has it elsewhere: the callback then records the timeouts that this plugin does not see  # noqa: E501

    class AnsibleTimeoutError(BaseException):  # type: ignore[no-redef]  # its stand-in
        """Never raised."""


from unhang.core.ansible import inventory, old_python, run_files
from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS, NodeAnswer, read_answer, read_facts
from unhang.core.ansible.memory_watch import MemoryWatch, bound_output
from unhang.core.ansible.plays import audits
from unhang.core.ansible.printable_text import clean
from unhang.core.errors import UserError
from unhang_node.facts.collect import choose_sections

# Marks that distinguish the command that runs the module from those that only prepare it.
MODULE_COPIED = "AnsiballZ_gpu_node_info"
MODULE_PIPED = b"gpu_node_info"
SEEN = "as the audit of this run has read it"
EMPTY_RESULT = '{"changed": false}'
OLDEST_PYTHON = getattr(basic, "_PY_MIN", (3, 8))


def origin_of(value: Any) -> Any:
    """The inventory file of a value, if this ansible-core records it."""
    try:
        from ansible._internal._datatag._tags import Origin
    except ImportError:
        return None
    origin = Origin.get_tag(value)
    return str(origin.path) if origin and origin.path else None


class ActionModule(ActionBase):
    """One node: read, check, record, summarise."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """{node_facts: document}; during a run a summary {status, msg}, because the document is in
        the run folder."""
        super().run(tmp, task_vars)
        policy = inventory.policy_of(task_vars, self._templar.template, origin_of)
        try:
            options = inventory.options_of(
                self._task.args, task_vars, policy.content, self._templar.template
            )
        except UserError as problem:
            raise AnsibleError(str(problem)) from None
        run = os.environ.get(run_files.RUN_ENV) if audits(self._task) else None
        if run is None and (facts := self._read_by_the_audit(task_vars, options)) is not None:
            return self._structured(NodeAnswer("ok", facts=facts, message=SEEN))
        watch = MemoryWatch()
        try:
            self._move_deadline(task_vars)
            bound_output(self._connection, ANSWER_LIMIT_CHARS)
            with watch:
                answer = self._read(options, task_vars)
        except AnsibleConnectionFailure as problem:
            message = clean(problem.message)
            if run is not None:
                self._record(run, task_vars, policy, NodeAnswer("unreachable", message=message))
            raise AnsibleConnectionFailure(message) from None
        except AnsibleTimeoutError:
            too_long = (
                f"the node's answer does not end within {ANSWER_LIMIT_CHARS} characters; reading"
                " was given up"
            )
            answer = (
                NodeAnswer("invalid", message=too_long)
                if watch.exceeded
                else NodeAnswer("timeout", message=f"no answer within {self.deadline_s} s")
            )
        except AnsibleError as problem:
            answer = NodeAnswer("failed", message=clean(problem.message))
        return (
            self._structured(answer)
            if run is None
            else self._record(run, task_vars, policy, answer)
        )

    def _read_by_the_audit(
        self, task_vars: Any, options: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """In a preview, which changes nothing after the audit of its own run: the facts that this
        audit has read of the node. None where the node itself is to be read."""
        run = os.environ.get(run_files.RUN_ENV)
        if run is None or task_vars.get("node_change_previews") is not True:
            return None
        wanted = choose_sections([str(name) for name in options.get("gather_subset") or ()])
        return run_files.facts_of(Path(run), str(task_vars["inventory_hostname"]), wanted)

    def _read(self, options: Mapping[str, Any], task_vars: Any) -> NodeAnswer:
        """A NodeAnswer. Raises AnsibleError; an AnsibleConnectionFailure keeps the message of the
        connection."""
        self.heard: dict[str, Any] | None = None
        given_up = self._execute_module(
            module_name="gpu_node_info",
            module_args={**options, "answer_as": "text"},
            task_vars=task_vars,
        )
        if self.heard is None:
            return NodeAnswer(
                "failed", message=clean(given_up.get("msg", "the module was not run"))
            )
        answer = read_answer(self.heard["stdout"])
        return answer if answer.status == "ok" else self._explain(answer, self.heard, options)

    def _move_deadline(self, task_vars: Any) -> None:
        """Replaces the task's `timeout`, whose alarm is already running, by the host's
        unhang_node_timeout_s."""
        self.deadline_s = self._task.timeout
        wanted = task_vars.get("unhang_node_timeout_s")
        if wanted is None or not self.deadline_s:
            return
        wanted = self._templar.template(wanted)
        try:
            self.deadline_s = max(1, int(wanted))
        except (TypeError, ValueError):
            raise AnsibleError(
                f"unhang_node_timeout_s must be a number of seconds, and is {clean(wanted, 80)!r}"
            ) from None
        signal.alarm(self.deadline_s)

    def _low_level_execute_command(self, cmd: Any, *arguments: Any, **more: Any) -> Any:
        """Gives Ansible an empty result in place of the module's output, because Ansible reads it
        without a limit and tags each value."""
        executed = super()._low_level_execute_command(cmd, *arguments, **more)
        if MODULE_COPIED in cmd or (
            self.heard is None and MODULE_PIPED in (more.get("in_data") or b"")
        ):
            self.heard = dict(executed)
            executed = {**executed, "stdout": EMPTY_RESULT, "stdout_lines": [EMPTY_RESULT]}
        return executed

    def _explain(
        self, answer: NodeAnswer, answered: Mapping[str, Any], options: Mapping[str, Any]
    ) -> NodeAnswer:
        """The NodeAnswer, or a better one for a node whose interpreter is missing or too old for
        the module. A failed node costs one more command."""
        interpreter = (self._used_interpreter or "/usr/bin/python3").lstrip("#!").strip()
        asked = self._low_level_execute_command(old_python.ask_version(interpreter))
        version = old_python.parse_version(asked.get("stdout", ""))
        if version is None:
            out, errors = asked.get("stdout", ""), asked.get("stderr", "")
            if old_python.is_missing(out, errors, interpreter):
                return old_python.without_answer(out, errors, interpreter, "")
            return _with_reason(answer, answered)
        if version >= OLDEST_PYTHON:
            return _with_reason(answer, answered)
        return self._read_with_collector(interpreter, version, options)

    def _read_with_collector(
        self, interpreter: str, version: tuple[int, int], options: Mapping[str, Any]
    ) -> NodeAnswer:
        found, oldest = (".".join(map(str, one[:2])) for one in (version, OLDEST_PYTHON))
        wanted = (
            f"Python {found} at {interpreter} is too old for this controller's ansible-core, which"
            f" needs {oldest} or newer"
        )
        if version < old_python.OLDEST_FOR_STARTER:
            return NodeAnswer(
                "python_too_old", message=f"{wanted}; too old for the one-file collector as well"
            )
        try:
            collector = old_python.read_collector(PROJECT)
        except OSError as problem:
            return NodeAnswer(
                "python_too_old",
                message=clean(f"{wanted}; the one-file collector is not to be had: {problem}"),
            )
        done = self._low_level_execute_command(
            old_python.run_collector(interpreter, options), in_data=zlib.compress(collector)
        )
        answer = read_facts(done.get("stdout", "").strip(), done.get("stdout", ""))
        if answer.status != "ok":
            return NodeAnswer(
                "python_too_old",
                message=clean(
                    f"{wanted}; the one-file collector failed too:"
                    f" {done.get('stderr') or answer.message}"
                ),
            )
        return NodeAnswer(
            "python_too_old",
            facts=answer.facts,
            message=f"{wanted}; read with the one-file collector",
        )

    def _structured(self, answer: NodeAnswer) -> dict[str, Any]:
        if answer.facts is None:
            return {
                "changed": False,
                "failed": True,
                "status": answer.status,
                "msg": answer.message,
            }
        return {
            "changed": False,
            "status": answer.status,
            "msg": answer.message or "read",
            "node_facts": answer.facts,
        }

    def _record(
        self, run: str, task_vars: Any, policy: inventory.Policy, answer: NodeAnswer
    ) -> dict[str, Any]:
        """Writes the node's file, in this worker, and returns the summary for the main process."""
        host = str(task_vars["inventory_hostname"])
        groups = [str(group) for group in task_vars.get("group_names", [])]
        document = run_files.node_document(
            host, groups, policy.content, answer.status, answer.message, answer.facts
        )
        summary = {
            "changed": False,
            "failed": answer.status != "ok",
            "status": answer.status,
            "msg": answer.message or "read",
            "policy_source": policy.source,
        }
        try:
            run_files.write_node(Path(run), document, answer.raw)
        except OSError as problem:
            return {
                **summary,
                "failed": True,
                "lost": clean(problem.strerror),
                "msg": f"could not write this node's answer: {clean(problem.strerror)}",
            }
        return summary


def _with_reason(answer: NodeAnswer, answered: Mapping[str, Any]) -> NodeAnswer:
    """Adds the reason to the answer of a module that printed nothing: the last line of standard
    error, or the exit code."""
    if answer.raw is None or answer.raw.strip() or not answered.get("rc"):
        return answer
    last = [line for line in answered.get("stderr", "").splitlines() if line.strip()][-1:]
    reason = last[0] if last else f"exit code {answered['rc']}"
    return NodeAnswer("failed", message=clean(f"the module ended without an answer: {reason}"))
