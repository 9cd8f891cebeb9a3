"""What undos have brought back, of which run and on which node: by the journals of the undos, which
are in folders beside the plan that each undoes. An undo with --through is of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.act.rollout.journal import JOURNAL, read_journal
from unhang.act.rollout.steps import DONE
from unhang.core.errors import UserError
from unhang.core.run.own_runs import is_own
from unhang.core.text import counted, visible

STEPS = ("apply", "reboot")  # packages of a kernel that runs come back after the boot


@dataclass(frozen=True)
class Undone:
    """What one undo has brought back of a run on a node. by: id of the undo; at: RFC 3339, UTC;
    roles: whose changes."""

    by: str
    at: str
    roles: tuple[str, ...]

    def __str__(self) -> str:
        """As a line."""
        return visible(f"{', '.join(self.roles)} by {self.by}, {self.at}", 400)


def undone_states(states: Iterable[Mapping[str, Any]], by: str) -> list[dict[str, str]]:
    """[{id, role, run, by}] of the saved states that the run `by` has rolled back. states: as the
    module saved_state lists them."""
    names = ("id", "role", "run")
    return [
        {**{name: str(state[name]) for name in names}, "by": by}
        for state in states
        if state.get("status") == "rolled_back" and state.get("rolled_back_by") == by
    ]


def undone_of(folder: Path, run: str) -> dict[str, Undone]:
    """{host: Undone} of the changes of a run. folder: the run's; all runs are beside it. Raises
    UserError, OSError for a journal that cannot be read."""
    found: dict[str, Undone] = {}
    base = folder.absolute()
    for journal in sorted(base.parent.glob(f"*/undo*/{JOURNAL}")):
        run_of_undo = journal.parent.parent
        if run_of_undo != base and not _is_trusted(run_of_undo):
            continue
        for entry in read_journal(journal.parent).entries:
            if entry.step not in STEPS or entry.status != DONE:
                continue
            rows = [row for row in entry.evidence.get("undone") or () if row.get("run") == run]
            if rows:
                roles = tuple(str(row.get("role")) for row in rows)
                found[entry.host] = Undone(str(rows[0].get("by")), entry.at, roles)
    return found


def _is_trusted(folder: Path) -> bool:
    """Whether it is a run of this user; in any other folder anybody may have written a journal."""
    try:
        return is_own(folder)
    except UserError:  # no run, or a broken one
        return False


def describe_undone(undone: Mapping[str, Undone]) -> str:
    """By whom a run was undone, and on how many nodes; "" if it was not."""
    by = ", ".join(sorted({one.by for one in undone.values()}))
    return f"{counted(len(undone), 'node')} by {visible(by, 200)}" if undone else ""
