"""Rebuilds a journal that was lost from what the nodes themselves have kept: saved states,
baseline, lock. Values in, entries of the journal out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.act.rollout.steps import BEGUN, DONE, FAILED, SILENT, Entry

WHY = "the journal of this rollout was lost, and this is what the node has kept"


@dataclass(frozen=True)
class Kept:
    """What one node has kept. states: as the module saved_state lists them; has_baseline: it was
    changed and neither released nor kept since; lock: id of the run that holds it, "" for none."""

    boot_id: str
    states: Sequence[Mapping[str, Any]] = ()
    has_baseline: bool = False
    lock: str = ""


def entries_of(host: str, kept: Kept | None, runs: Sequence[str], at: str) -> list[Entry]:
    """The entries that stand for what the lost ones said about a node; [] for a node that the
    rollout has not changed. kept: None if it did not answer: it then counts as changed until it
    does. runs: ids under which this rollout has saved states; at: RFC 3339, UTC."""
    if kept is None:
        return [
            Entry(at, host, "apply", BEGUN, 0, {"rebuilt": True}),
            Entry(at, host, "apply", SILENT, 0, {"why": f"{WHY}: it does not answer"}),
        ]
    own = [one for one in kept.states if one.get("run") in runs]
    if not own:
        return []
    is_at_work = kept.has_baseline or kept.lock in runs
    state = next((str(one.get("id")) for one in own if one.get("status") != "rolled_back"), "")
    evidence = {"boot_id": kept.boot_id, "rebuilt": True, "saved_state": state}
    no_boot = {"needs_reboot": False}
    steps: list[tuple[str, str, dict[str, Any]]]
    if not state:  # all was rolled back: it is audited again and kept, or was kept already
        steps = [("apply", FAILED, {"why": f"{WHY}: it was rolled back"})]
        steps += [("roll_back", DONE, no_boot)]
        steps += [] if is_at_work else [("audit_back", DONE, {"healthy": True}), ("keep", DONE, {})]
    elif is_at_work:
        # how far it came is not known: the roles are applied once more, and the node is proved
        steps = [("save", DONE, {})]
    else:
        steps = [("apply", DONE, no_boot)]
        steps += [("release", DONE, {"drained": False, "owned": False})]
    return [
        Entry(at, host, "apply", BEGUN, 0, {"rebuilt": True}),
        *(Entry(at, host, step, status, 0, evidence | more) for step, status, more in steps),
    ]
