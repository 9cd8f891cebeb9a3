# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of gpu_node_info: runs the module, reads its answer strictly, and writes it to the run folder when a run is under way.

Nothing of an answer reaches Ansible's variables, and everything that is printed has been cleaned: what a node says is data.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils import basic
from ansible.plugins.action import ActionBase

_PROJECT = Path(__file__).resolve().parents[2]
for _place in (str(_PROJECT / "tools"), str(_PROJECT / "module_utils")):
    if _place not in sys.path:
        sys.path.append(_place)  # plain ansible-playbook may run from an environment in which unhang is not installed

try:
    from ansible._internal._errors._alarm_timeout import AnsibleTimeoutError
except ImportError:  # not where 2.19 to 2.22 have it: the callback then records what this plugin does not see

    class AnsibleTimeoutError(BaseException):
        """Never raised."""


from unhang.ansible import inventory, old_python, run_files
from unhang.ansible.answer import ANSWER_LIMIT_CHARS, NodeAnswer, read_answer, read_facts
from unhang.ansible.memory_watch import MemoryWatch
from unhang.ansible.plays import audits
from unhang.ansible.text import clean
from unhang.errors import UserError

PROJECT = _PROJECT
# How to recognise the command that runs the module among those that only prepare it.
MODULE_COPIED = "AnsiballZ_gpu_node_info"
MODULE_PIPED = b"gpu_node_info"
NOTHING_SAID = '{"changed": false}'
OLDEST_PYTHON = getattr(basic, "_PY_MIN", (3, 8))


def origin_of(value):
    """The inventory file that a value came from, when this ansible-core tells."""
    try:
        from ansible._internal._datatag._tags import Origin
    except ImportError:
        return None
    origin = Origin.get_tag(value)
    return str(origin.path) if origin and origin.path else None


class ActionModule(ActionBase):
    """One node: read, check, record, summarise."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        """The document under node_facts; during a run a summary {status, msg}, the document being in the run folder."""
        super().run(tmp, task_vars)
        if C.INJECT_FACTS_AS_VARS:
            raise AnsibleError("expected inject_facts_as_vars = False, found True in the configuration in force; point ANSIBLE_CONFIG to unhang's ansible.cfg")
        policy = inventory.policy_of(task_vars, self._templar.template, origin_of)
        try:
            options = inventory.options_of(self._task.args, task_vars, policy.content, self._templar.template)
        except UserError as problem:
            raise AnsibleError(str(problem)) from None
        run = os.environ.get(run_files.RUN_ENV) if audits(self._task) else None
        watch = MemoryWatch()
        try:
            self._move_deadline(task_vars)
            self._bound_what_is_read()
            with watch:
                answer = self._read(options, task_vars)
        except AnsibleConnectionFailure as problem:
            message = clean(problem.message)
            if run is not None:
                self._record(run, task_vars, policy, NodeAnswer("unreachable", message=message))
            raise AnsibleConnectionFailure(message) from None
        except AnsibleTimeoutError:
            too_long = f"expected an answer of at most {ANSWER_LIMIT_CHARS} characters, found one that does not end; reading was given up"
            answer = NodeAnswer("invalid", message=too_long) if watch.exceeded else NodeAnswer("timeout", message=f"no answer within {self.deadline_s} s")
        except AnsibleError as problem:
            answer = NodeAnswer("failed", message=clean(problem.message))
        return self._structured(answer) if run is None else self._record(run, task_vars, policy, answer)

    def _read(self, options, task_vars):
        """A NodeAnswer. Raises AnsibleError, and AnsibleConnectionFailure among them with its message as the connection gave it."""
        self.heard = None
        given_up = self._execute_module(module_name="gpu_node_info", module_args={**options, "answer_as": "text"}, task_vars=task_vars)
        if self.heard is None:
            return NodeAnswer("failed", message=clean(given_up.get("msg", "the module was not run")))
        answer = read_answer(self.heard["stdout"])
        return answer if answer.status == "ok" else self._explain(answer, self.heard, options)

    def _bound_what_is_read(self):
        """Cuts what a command printed before Ansible makes a text and a list of lines of it, which takes twenty times as much memory."""
        execute = self._connection.exec_command

        def bounded(*arguments, **more):
            code, out, err = execute(*arguments, **more)
            return code, out[: ANSWER_LIMIT_CHARS + 1], err[:ANSWER_LIMIT_CHARS]

        self._connection.exec_command = bounded

    def _move_deadline(self, task_vars):
        """Lets the host's unhang_node_timeout_s take the place of the task's own `timeout`, whose alarm is running already."""
        self.deadline_s = self._task.timeout
        wanted = task_vars.get("unhang_node_timeout_s")
        if wanted is None or not self.deadline_s:
            return
        wanted = self._templar.template(wanted)
        try:
            self.deadline_s = max(1, int(wanted))
        except (TypeError, ValueError):
            raise AnsibleError(f"expected seconds in unhang_node_timeout_s, found {clean(wanted, 80)!r}") from None
        signal.alarm(self.deadline_s)

    def _low_level_execute_command(self, cmd, *arguments, **more):
        """Keeps what the module said from Ansible, whose own reading has no limits and tags each value; Ansible gets an empty result instead."""
        executed = super()._low_level_execute_command(cmd, *arguments, **more)
        if MODULE_COPIED in cmd or (self.heard is None and MODULE_PIPED in (more.get("in_data") or b"")):
            self.heard = dict(executed)
            executed = {**executed, "stdout": NOTHING_SAID, "stdout_lines": [NOTHING_SAID]}
        return executed

    def _explain(self, answer, answered, options):
        """The NodeAnswer, or a better one for a node whose interpreter is missing or too old for the module. Costs a failed node one more command."""
        interpreter = (self._used_interpreter or "/usr/bin/python3").lstrip("#!").strip()
        asked = self._low_level_execute_command(old_python.ask_version(interpreter))
        version = old_python.parse_version(asked.get("stdout", ""))
        if version is None:
            if old_python.is_missing(asked.get("stdout", ""), asked.get("stderr", ""), interpreter):
                return NodeAnswer(
                    "failed", message=f"expected Python at {interpreter}, found none on the node; install python3 or set ansible_python_interpreter"
                )
            return answer
        if version >= OLDEST_PYTHON:
            return _with_reason(answer, answered)
        return self._read_with_collector(interpreter, version, options)

    def _read_with_collector(self, interpreter, version, options):
        found = "Python {}.{} at {}".format(*version, interpreter)
        wanted = "expected Python {}.{} or newer for this controller's ansible-core, found {}".format(*OLDEST_PYTHON, found)
        if version < old_python.OLDEST_FOR_STARTER:
            return NodeAnswer("python_too_old", message=f"{wanted}; too old for the one-file collector as well")
        try:
            collector = old_python.read_collector(PROJECT)
        except OSError as problem:
            return NodeAnswer("python_too_old", message=clean(f"{wanted}; the one-file collector is not to be had: {problem}"))
        done = self._low_level_execute_command(old_python.run_collector(interpreter, options), in_data=collector)
        answer = read_facts(done.get("stdout", "").strip(), done.get("stdout", ""))
        if answer.status != "ok":
            return NodeAnswer("python_too_old", message=clean(f"{wanted}; the one-file collector failed too: {done.get('stderr') or answer.message}"))
        return NodeAnswer("python_too_old", facts=answer.facts, message=f"{wanted}; read with the one-file collector")

    def _structured(self, answer):
        if answer.facts is None:
            return {"changed": False, "failed": True, "status": answer.status, "msg": answer.message}
        return {"changed": False, "status": answer.status, "msg": answer.message or "read", "node_facts": answer.facts}

    def _record(self, run, task_vars, policy, answer):
        """Writes the node's file, in this worker, and returns the summary that goes back to the controller."""
        host = str(task_vars["inventory_hostname"])
        groups = [str(group) for group in task_vars.get("group_names", [])]
        document = run_files.node_document(host, groups, policy.content, answer.status, answer.message, answer.facts)
        summary = {"changed": False, "failed": answer.status != "ok", "status": answer.status, "msg": answer.message or "read", "policy_source": policy.source}
        try:
            not_written = run_files.write_node_or_spill(Path(run), document, answer.raw)
        except OSError as problem:
            return {**summary, "failed": True, "lost": clean(problem.strerror), "msg": f"could not write this node's answer: {clean(problem.strerror)}"}
        return {**summary, "spilled": clean(not_written)} if not_written else summary


def _with_reason(answer, answered):
    """A module that ended without a word names its reason in the last line of standard error, or in its exit code."""
    if answer.raw is None or answer.raw.strip() or not answered.get("rc"):
        return answer
    last = [line for line in answered.get("stderr", "").splitlines() if line.strip()][-1:]
    return NodeAnswer("failed", message=clean(f"the module ended without an answer: {last[0] if last else 'exit code {}'.format(answered['rc'])}"))
