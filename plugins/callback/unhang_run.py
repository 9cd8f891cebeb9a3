# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the run folder of an audit, counts answers while it runs, and judges it at the end, also
under plain ansible-playbook."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unhang_run
type: aggregate
short_description: Run folder and judgement of an audit
version_added: "0.1.0"
description:
  - Acts on plays that hold a C(gpu_node_info) task, and on no others.
  - Creates C(runs/<id>/) with C(run.json), sees to it that each host that was meant has a file in
    C(nodes/), and points C(runs/latest) at it.
  - Runs C(unhang judge) on the run at the end.
  - Says every ten seconds on a terminal how many nodes have answered.
options:
  runs:
    description: Folder of the run folders. The project's own C(runs) by default.
    type: path
    env:
      - name: UNHANG_RUNS
    ini:
      - section: callback_unhang_run
        key: runs
  judge:
    description: Whether to judge the run at the end.
    type: bool
    default: true
    env:
      - name: UNHANG_JUDGE
    ini:
      - section: callback_unhang_run
        key: judge
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__ as ansible_core_version
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

PROJECT = Path(__file__).resolve().parents[2]
_TOOLS = [str(PROJECT / name) for name in ("tools", "module_utils")]
# plain ansible-playbook may run without unhang, or with another version of it; +=, for ansible-doc
# warns of other assignments to what is no name
sys.path[:0] += [folder for folder in _TOOLS if folder not in sys.path]

try:
    from unhang import __version__
    from unhang.core import project
    from unhang.core.ansible import group_policies, run_files
    from unhang.core.ansible.group_policies import VARIABLE
    from unhang.core.ansible.inventory import plain
    from unhang.core.ansible.plays import audits
    from unhang.core.ansible.printable_text import clean
    from unhang.core.ansible.reach_options import reach_options
    from unhang.core.run import run_folder
    from unhang.core.run.own_runs import mark_as_own
except (
    ModuleNotFoundError
) as missing:  # Ansible would only warn, and a play end in a stack of faults
    raise SystemExit(
        f"unhang: {missing}; next: {sys.executable} -P -m pip install -r {PROJECT}/requirements.txt"
    ) from None

SAY_EVERY_S = 10.0


class CallbackModule(CallbackBase):
    """One audit run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "unhang_run"

    def __init__(self) -> None:
        super().__init__()
        self.run: Any = None
        self.document: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.lost: dict[str, str | None] = {}
        self.asked: set[str] = set()
        self.skipped: set[str] = set()
        # {host: process} of workers that read a node, or that ended and have not been replaced yet
        self.workers: dict[str, Any] = {}
        self.policy_sources: set[str] = set()
        self.done = self.failed = self.unreachable = 0
        self.said_s = time.monotonic()
        self.closed = False
        self.is_without_hosts = self.has_read_again = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """The first auditing play creates the run; the batches of a `serial` play belong to the
        same run."""
        if not audits(play):
            return
        inventory = play.get_variable_manager()._inventory
        hosts = inventory.get_hosts(play.hosts, order=play.order, ignore_restrictions=True)
        if not hosts:
            return
        if taken := sorted({"all", "ungrouped"} & set(inventory.hosts)):
            self._stop(
                f"a host is called {taken[0]}, as a group of every inventory: Ansible would audit"
                " it alone; rename it"
            )
        if self.run is None:
            self._check_policies(play, hosts)
            self._open()
            self._warn_of_brackets()
        for host in hosts:
            self.groups.setdefault(
                host.name, sorted(group.name for group in host.get_groups() if group.name != "all")
            )
        self.document["hosts"] = list(dict.fromkeys([*self.document["hosts"], *self.groups]))
        self._write_run()

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """A play without hosts: of a playbook with several, some are for a plan alone."""
        self.is_without_hosts = True

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Remembers the worker that is about to read a node, and whether the run has read a node
        before."""
        if self.run is None or not audits(task):
            return
        name = host.get_name()
        self.has_read_again = self.has_read_again or run_files.has_node(self.run, name)
        self.asked.add(name)
        for worker in list(getattr(multiprocessing.process, "_dangling", ())):
            if getattr(worker, "_host", None) is host and worker.pid is None:
                self.workers[name] = worker
                worker.close = functools.partial(self._worker_ended, name, worker)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Counts a node that the playbook does not read, as in the preview of a rollback."""
        if self.run is not None and audits(result.task):
            self.skipped.add(result.host.get_name())

    def v2_runner_on_ok(self, result: Any) -> None:
        """Counts a node that was read."""
        self._note(result, "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Counts a node that could not be read, or reports the play's own assertion."""
        self._note(result, "timeout" if "timedout" in result.result else "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Counts a node that could not be reached."""
        self._note(result, "unreachable")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Closes the run and judges it. A run without hosts is an error, which Ansible itself
        counts as a success."""
        if self.run is None and self.is_without_hosts and not stats.processed:
            self._say(
                "there are no hosts to audit; check the inventory and the limit: ansible-inventory"
                " --graph"
            )
        if self.run is None or self.closed:
            return
        if self.groups and self.skipped.issuperset(self.groups):
            self._drop()
            return
        self.document["finished"] = run_folder.utc_now()
        self._close()
        # the playbook's own judgement is older than the nodes that it has read again
        if self.get_option("judge") or self.has_read_again:
            self._judge(is_shown=self.get_option("judge"))

    def _drop(self) -> None:
        """Removes the folder of a play that read no node, because that was no audit. A folder with
        other files stays."""
        self.closed = True
        with contextlib.suppress(OSError):
            (self.run / "nodes").rmdir()
            (self.run / "run.json").unlink()
            self.run.rmdir()

    def _close(self) -> None:
        """Writes the file of each host without one, and points runs/latest to this run."""
        self.closed = True
        killed = self._killed()
        for host in self.groups:
            if not run_files.has_node(self.run, host):
                self._record(host, "failed", self._why_unread(host, killed))
        self._report_lost()
        self.document["policy_sources"] = sorted(self.policy_sources)
        self._write_run()
        with contextlib.suppress(OSError):
            if run_files.becomes_latest():
                run_files.point_latest(self.run)

    def _worker_ended(self, name: str, worker: Any) -> None:
        """Another worker replaces this one. If it was killed, Ansible would wait for its result for
        ever, so the play ends here."""
        if worker.exitcode:
            raise SystemExit(
                f"unhang: a process of Ansible was killed while it read {clean(name, 80)}"
            )
        del worker.close, self.workers[name]
        worker.close()

    def _killed(self) -> Any:
        """{host: signal} of workers that were killed by a signal that Ansible itself does not
        send."""
        codes = {name: worker.exitcode or 0 for name, worker in self.workers.items()}
        return {
            name: signal.Signals(-code).name
            for name, code in codes.items()
            if code < 0 and -code not in (signal.SIGINT, signal.SIGTERM)
        }

    def _why_unread(self, host: str, killed: Any) -> Any:
        if host in self.lost:
            return f"its answer could not be written: {self.lost[host]}"
        if host in killed:
            return f"{run_files.KILLED} ({killed[host]}), as the kernel does for want of memory"
        return run_files.NOT_ANSWERED if host in self.asked else run_files.NOT_ASKED

    def _close_early(self, process: Any) -> None:
        """Closes the run when Ansible has aborted the play: a worker was killed, or somebody
        pressed Ctrl-C."""
        if self.closed or not self.groups or os.getpid() != process:
            return
        with contextlib.suppress(SystemExit):
            self._close()
        then = f"judge the nodes that were read with: {project.program_as_typed()} judge {self.run}"
        self._say(f"the audit ended early, after {self.done} of {len(self.groups)} nodes; {then}")

    def _open(self) -> None:
        wanted = os.environ.get(run_files.NEW_RUN_ENV)
        runs = self.get_option("runs") or (project.checkout_of(PROJECT) or Path.cwd()) / "runs"
        self.run = Path(wanted) if wanted else Path(runs) / run_folder.new_run_id()
        if wanted and os.environ.get(run_files.GO_ON_ENV):
            self.document = run_folder.read_run(self.run).document
            self.policy_sources.update(self.document.get("policy_sources") or ())
        else:
            self._make()
        atexit.register(self._close_early, os.getpid())
        os.environ[run_files.RUN_ENV] = str(self.run)

    def _make(self) -> None:
        self.document = {
            "schema": "unhang/run/1",
            "id": self.run.name,
            "started": run_folder.utc_now(),
            "finished": None,
            "inventory": [str(source) for source in context.CLIARGS.get("inventory") or ()],
            "limit": context.CLIARGS.get("subset"),
            "options": reach_options(context.CLIARGS),
            "hosts": [],
            "controller": {
                "unhang": __version__,
                "ansible_core": ansible_core_version,
                "python": sys.version.split()[0],
            },
            "policy_sources": [],
        }
        try:
            run_folder.make_folder(self.run)
        except (OSError, LookupError) as problem:
            why = getattr(problem, "strerror", None) or problem
            self._stop(
                f"could not make the run folder {self.run}: {why}; free or choose another place:"
                " --out DIR, or UNHANG_RUNS=DIR"
            )

    def _check_policies(self, play: Any, hosts: Sequence[str]) -> None:
        """Refuses hosts whose policy would depend on the alphabetical order of groups; warns if a
        policy replaces another."""
        by_host = group_policies_of(play, hosts)
        if refused := group_policies.refusals(by_host):
            self._stop("; ".join(refused))
        for line in group_policies.notices(by_host):
            self._say(line)

    def _warn_of_brackets(self) -> None:
        """Warns that plain ansible-playbook reads a node set in --limit in its own way, which
        cannot be prevented."""
        limit = str(context.CLIARGS.get("subset") or "")
        if "[" in limit and "~" not in limit:
            self._say(
                f"Ansible takes the brackets of --limit {clean(limit, 80)} for an index into a"
                " group, and may have picked other hosts; use unhang audit"
            )

    def _write_run(self) -> None:
        try:
            run_folder.write_document(self.run / "run.json", self.document)
        except OSError as problem:
            self._stop(
                f"could not write {self.run}/run.json: {problem.strerror}; the nodes' answers so"
                f" far are in {self.run}/nodes"
            )

    def _note(self, result: Any, status: str) -> None:
        """Counts one node; a node whose worker could not write a record itself gets one here."""
        if self.run is None or not audits(result.task):
            # A task that fails after the node has answered, in a playbook that continues after the
            # audit, does not change that answer.
            if (
                self.run is not None
                and status != "ok"
                and not run_files.has_node(self.run, result.host.get_name())
            ):
                self._record(
                    result.host.get_name(),
                    "failed",
                    clean(result.result.get("msg", "a task before the audit failed")),
                )
            return
        host, answer = result.host.get_name(), result.result
        if answer.get("policy_source"):
            self.policy_sources.add(str(answer["policy_source"]))
        if answer.get("lost"):
            self.lost[host] = str(answer["lost"])
        elif status != "ok" and not run_files.has_node(self.run, host):
            self._record(host, status, clean(answer.get("msg", "the task failed without a reason")))
        kind = "ok" if status == "ok" else answer.get("status", status)
        self.done += 1
        self.unreachable += kind == "unreachable"
        self.failed += kind not in ("ok", "unreachable")
        if sys.stderr.isatty() and time.monotonic() - self.said_s >= SAY_EVERY_S:
            self.said_s = time.monotonic()
            self._say(
                f"{self.done} of {len(self.groups)} nodes, {self.failed} failed,"
                f" {self.unreachable} unreachable"
            )

    def _record(self, host: str, status: str, message: str) -> None:
        document = run_files.node_document(
            host, self.groups.get(host, []), {}, status, message, None
        )
        try:
            run_files.write_node(self.run, document)
        except OSError as problem:
            self.lost[host] = problem.strerror

    def _report_lost(self) -> None:
        for host, reason in sorted(self.lost.items())[:1]:
            self._say(
                f"the answers of {len(self.lost)} nodes could not be written ({clean(host, 80)}:"
                f" {reason}); free some room and audit them again"
            )

    def _judge(self, *, is_shown: bool) -> None:
        sys.stdout.flush()
        if is_shown:  # a command of unhang, which shows the run itself, marks what is its own
            mark_as_own(self.run)
        here = Path.cwd()
        named = self.run.relative_to(here) if self.run.is_relative_to(here) else self.run
        command = [sys.executable, "-P", "-m", "unhang", "judge", str(named)]
        # Set explicitly, because Ansible's own descriptors are not inherited: the judge would start
        # without any.
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_TOOLS)},
            stdin=subprocess.DEVNULL,
            stdout=1 if is_shown else subprocess.DEVNULL,
            stderr=2,
            check=False,
        )
        if done.returncode not in (0, 1, 2):
            self._say(
                f"the run is in {self.run} and was not judged; judge it with:"
                f" {project.program_as_typed()} judge {self.run}"
            )

    def _say(self, line: str) -> None:
        print(f"unhang: {line}", file=sys.stderr, flush=True)  # noqa: T201 -- Ansible's Display would wrap and colour it

    def _stop(self, line: str) -> None:
        """Ends the play before it has begun: to Ansible an exception in a callback would only be a
        warning."""
        self._say(line)
        raise SystemExit(2)


def group_policies_of(play: Any, hosts: Sequence[str]) -> Any:
    """{host: its GroupPolicy rows}, of hosts that several groups give a policy and whose own
    variables give none."""
    variables, loader = play.get_variable_manager(), play.get_loader()
    if VARIABLE in variables.extra_vars:
        return {}
    inventory = variables._inventory

    def layers_of(entity: Any) -> Any:
        beside_inventory = get_vars_from_inventory_sources(
            loader, inventory._sources, [entity], "task"
        )
        beside_playbook = get_vars_from_path(loader, loader.get_basedir(), [entity], "task")
        layers = {
            "inventory": entity.vars,
            "plugins_inventory": beside_inventory,
            "plugins_play": beside_playbook,
        }
        return {
            name: plain(given[VARIABLE])
            for name, given in layers.items()
            if given.get(VARIABLE) is not None
        }

    defined = group_policies.in_order(inventory.groups.values(), layers_of, C.VARIABLE_PRECEDENCE)
    return group_policies.of_hosts(hosts, defined, layers_of)
