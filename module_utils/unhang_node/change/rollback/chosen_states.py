"""Which saved states a rollback restores, and which it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..atomic_files import STATE_FOLDER, STATES
from ..boot.parameters import MENUS
from ..journal.running_values import read_running
from ..journal.saved_states import folder_of, read_saved_files, read_saved_selections, refuse_broken
from ..package.saved import read_saved
from .left_values import ENTRY, has_boot


class NotTouched(ValueError):
    """A later run has changed the same, or a package cannot be restored; the node is as it was."""


OVER = ("rolled_back", "broken")


def states_to_roll_back(states: list[dict[str, Any]], state_id: str) -> list[dict[str, Any]]:
    """The states from the newest to the named one, newest first, without states that were already
    rolled back; [] if the named one was. Raises ValueError. Pure."""
    known = [state["id"] for state in states]
    if state_id not in known:
        raise ValueError(
            f"{state_id!r} is not one of the node's saved states"
            f" ({', '.join(known) or 'it has none'})"
        )
    chosen = states[known.index(state_id) :]
    refuse_broken(chosen)
    if chosen[0]["status"] == "rolled_back":
        return []
    return [state for state in reversed(chosen) if state["status"] != "rolled_back"]


def states_of_run(
    rootfs: str, states: list[dict[str, Any]], run: str, through: bool
) -> list[dict[str, Any]]:
    """The states of a run that were not rolled back, newest first; [] if it has none. through: and
    all later ones, of whichever run. Raises OSError, ValueError, and NotTouched without `through`
    where a later run has changed the same."""
    own = [state for state in states if state.get("run") == run and state["status"] not in OVER]
    if not own:
        return []
    if through:
        return states_to_roll_back(states, own[0]["id"])
    refuse_broken(states)
    # the run's oldest state of each thing: another run may have come between two of its own
    changed = {what: state for state in own[::-1] for what in _changed_by(rootfs, state["id"])}
    later = [state for state in standing(states) if state["number"] > own[0]["number"]]
    both = [
        f"{state['id']} of run {state['run']}, which has changed {_shown(what)} since"
        for state in later
        if state["run"] != run
        and (
            what := sorted(
                name
                for name in _changed_by(rootfs, state["id"])
                if name in changed and changed[name]["number"] < state["number"]
            )
        )
    ]
    if both:
        raise NotTouched(
            f"a later saved state is in the way: {'; '.join(both)}; nothing was touched; next: undo"
            " that run first, or both with --through"
        )
    return own[::-1]


def newest_state(states: list[dict[str, Any]]) -> str | None:
    """Id of the newest state that was not rolled back, None if there is none. Pure."""
    left = [state["id"] for state in states if state["status"] != "rolled_back"]
    return left[-1] if left else None


def standing(states: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that can still be rolled back, in their order. Pure."""
    return [state for state in states if state["status"] not in OVER]


def _changed_by(rootfs: str, state_id: str) -> set[str]:
    """Names of all that a state has saved. A package and its hold count as one. Menus of GRUB are
    made anew by each rollback, and unhang's own records follow what they are about."""
    folder = folder_of(rootfs, state_id)
    packages = (read_saved(rootfs, f"{STATES}/{state_id}") or {}).get("packages", ())
    names = [*(row["name"] for row in packages), *read_saved_selections(folder)]
    return {
        *(
            path
            for path in read_saved_files(folder)
            if path not in MENUS and not path.startswith(STATE_FOLDER)
        ),
        *(f"package {name.split(':')[0]}" for name in names),
        *(
            f"{row['kind'].replace('_', ' ')} {row['name']}"
            for row in read_running(rootfs, state_id)
        ),
        *([ENTRY] if has_boot(rootfs, state_id) else []),
    }


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
