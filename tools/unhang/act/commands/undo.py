"""`unhang remediate --undo RUN`: the plan that undoes the rollout of a run, in a folder `undo` of
that run; the same command finds it again."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from unhang.act.commands.typed_again import RemediateOptions
from unhang.act.plan.plan_document import FILE, Plan, read_plan, write_plan
from unhang.act.plan.planned_findings import read_planned_findings
from unhang.act.rollout.journal import JOURNAL, controllers_of_a_lost_journal, read_journal
from unhang.act.rollout.rollout_state import replay
from unhang.act.rollout.steps import FINAL, RELEASED
from unhang.act.rollout.undo import folder_name, hosts_to_undo, undo_plan
from unhang.act.rollout.undone import undone_of
from unhang.audit.commands.filters import asked_filter
from unhang.core.errors import UserError
from unhang.core.project import program_as_typed
from unhang.core.run import run_folder
from unhang.core.run.own_runs import is_own, mark_as_own
from unhang.core.run.private_file import NEXT, others_may_write


def planned_undo(named: str, options: RemediateOptions) -> tuple[Path, Plan]:
    """(folder, plan) of the undo: one that has begun and is not finished, else a new one. named:
    the run, or its folder. Raises UserError."""
    if options.rule or options.severity:
        raise UserError(
            "--undo takes --host or --group beside it, not --rule or --severity: what was changed"
            " on a node is undone as a whole"
        )
    base = run_folder.find_run(named).resolve()
    if controllers_of_a_lost_journal(base):
        ends = f"{program_as_typed()} remediate --end {shlex.quote(named)}"
        raise UserError(
            f"the journal of the rollout in {base} was lost: journal.lock says that the rollout has"
            f" begun; next: {ends} asks the nodes what they have kept, and ends the rollout as it"
            " is; then this command undoes it"
        )
    if not (base / JOURNAL).is_file():
        raise UserError(
            f"no plan was rolled out in {base}, which has no {JOURNAL}; nothing was changed, so"
            " nothing is undone"
        )
    undos = list(_undos(base))
    for folder, plan, is_finished in undos:
        if not is_finished and (folder / JOURNAL).is_file():
            if plan.through != options.through:
                beside = "with" if plan.through else "without"
                raise UserError(
                    f"the undo in {folder} has begun {beside} --through, unlike this command; next:"
                    " the same command as then"
                )
            return folder, plan
    asked = asked_filter(base, read_planned_findings(base), options)
    undone = {
        host
        for folder, plan, _ in undos
        for host in plan.wave_of
        if _state(folder, host) == RELEASED
    }
    plan = read_plan(base)
    undone |= set(undone_of(base, plan.run.id))
    hosts = hosts_to_undo(
        plan,
        replay(read_journal(base).entries),
        undone,
        None if asked is None or asked.hosts is None else frozenset(asked.hosts),
    )
    for folder, known, is_finished in undos:
        if (
            not is_finished
            and set(known.wave_of) == set(hosts)
            and known.through == options.through
        ):
            return folder, known  # previewed, and not begun
    number = sum(is_finished for _, _, is_finished in undos) + 1
    return _write(
        base, number, undo_plan(plan, hosts, number, run_folder.utc_now(), options.through)
    )


def _write(base: Path, number: int, plan: Plan) -> tuple[Path, Plan]:
    """The folder is a run folder as far as a rollout reads one."""
    folder = _undo_folder(base, number)
    # whatever the umask is: see _undo_folder
    folder.mkdir(mode=0o750 if os.environ.get(run_folder.GROUP_ENV) else 0o700, exist_ok=True)
    document = json.loads((base / "run.json").read_text(encoding="utf-8"))
    run_folder.write_atomically(
        folder / "run.json", json.dumps({**document, "id": plan.run.id}, indent=1) + "\n"
    )
    if is_own(base):
        mark_as_own(folder)
    write_plan(folder, plan)
    return folder, plan


def _undos(base: Path) -> Iterator[tuple[Path, Plan, bool]]:
    """(folder, plan, whether each of its nodes has ended) of each undo of the run's rollout, in
    their order."""
    for number in range(1, 1000):
        folder = _undo_folder(base, number)
        if not (folder / FILE).is_file():
            return
        plan = read_plan(folder)
        yield folder, plan, all(_state(folder, host) in FINAL for host in plan.wave_of)


def _undo_folder(base: Path, number: int) -> Path:
    """The path of an undo's folder. Raises UserError for a link, which would lead its journal and
    plan out of the run, and where others may yet make one."""
    folder = base / folder_name(number)
    if folder.is_symlink():
        raise UserError(f"{folder} is a symbolic link, not a folder of this run; {NEXT}")
    for one in (base, folder):
        with contextlib.suppress(FileNotFoundError):
            if others_may_write(one):
                raise UserError(
                    f"{one} is not a folder that only you or root can write: others may put a link"
                    " in it; nothing was read or written; next: look at it with ls -la, and if all"
                    f" in it is yours: chmod go-w {shlex.quote(str(one))}, or type this"
                    " command as the folder's user"
                )
    return folder


def _state(folder: Path, host: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return replay(read_journal(folder).entries).node(host).state
    return ""
