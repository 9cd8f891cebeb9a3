"""What each faulty GPU of a node needs, as one verb: by NVML's recovery action, its pending or
failed row remap and the Xids of the kernel log; the strongest counts. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOTHING, RESTART_JOB, RESET, REBOOT = (
    "nothing",
    "restart the job",
    "reset the GPU",
    "reboot the node",
)
POWER_CYCLE, REPLACE = "power-cycle", "replace"
VERBS = (NOTHING, RESTART_JOB, RESET, REBOOT, POWER_CYCLE, REPLACE)
DONE_BY_ROLE = (RESET, REBOOT)
AGAIN_S = 24 * 3600.0  # within which the same fault is not treated twice in the same way
TABLES = ("xids", "xid_actions", "xid_levels", "recovery_actions", "gpu_verbs")
RECOVERY_CHANGED = 154
_TO_ACTION = re.compile(r" to 0x([0-9a-f]{1,2})\b")  # "changed from 0x0 (None) to 0x2 (…)"
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class GpuVerb:
    """index, uuid: None for a GPU that NVML does not list; because: the faults that ask for this
    verb; path: of the fact that decided."""

    index: int | None
    uuid: str | None
    pci_address: str | None
    verb: str
    because: tuple[str, ...]
    path: str

    @property
    def name(self) -> str:
        """GPU 3 (GPU-5aa1…, 0000:1a:00.0), as far as it is known."""
        names = ", ".join(one for one in (self.uuid, self.pci_address) if one)
        number = "a GPU" if self.index is None else f"GPU {self.index}"
        return f"{number} ({names})" if names else number


@dataclass(frozen=True)
class _Ids:
    index: int | None
    uuid: str | None
    pci_address: str | None


@dataclass(frozen=True)
class _Need:
    verb: str
    fault: str
    path: str


def gpu_verbs(sections: Any, tables: Tables) -> list[GpuVerb]:
    """The GPUs with a fault, in the order of NVML, those that it does not list last. sections: node
    facts, typed or plain; a value that was not read asks for nothing. tables: those of TABLES."""
    gpus, faults = fact_of(sections, "gpus"), fact_of(sections, "faults")
    devices = fact_of(gpus, "devices")
    xids: dict[str | None, list[tuple[int, Any]]] = {}
    for place, event in enumerate(fact_of(faults, "events") or ()):
        if fact_of(event, "kind") == "xid" and fact_of(event, "code") is not None:
            xids.setdefault(_slot(fact_of(event, "pci_address")), []).append((place, event))
    resets = fact_of(faults, "resets") or ()
    found: list[GpuVerb] = []
    for place, device in enumerate(devices or ()):
        events = xids.pop(_slot(fact_of(device, "pci_address")), ())
        needs = [*_of_device(device, place, tables), *_of_events(events, device, tables)]
        ids = _Ids(
            fact_of(device, "index"), fact_of(device, "uuid"), fact_of(device, "pci_address")
        )
        found += _strongest(ids, needs, resets, tables)
    all_known = devices is not None and all(fact_of(one, "pci_address") for one in devices)
    for slot, events in xids.items():
        needs = list(_of_events(events, None, tables))
        if all_known and slot is not None:
            needs = [_not_there(one) for one in needs]
        address = fact_of(events[0][1], "pci_address")
        found += _strongest(_Ids(None, None, address), needs, resets, tables)
    return found


def verb_of_xid(code: int, tables: Tables) -> str:
    """What an Xid alone asks for: by the catalogue's immediate action, else by the row's own verb;
    nothing for a code that the catalogue does not know or has no use of."""
    row = tables["xids"].get(str(code), {})
    unused = tables["xid_levels"].get("unused", {}).get("codes", ())
    if code in unused:
        return NOTHING
    action = tables["xid_actions"].get(row.get("immediate") or "", {})
    return str(row.get("verb") or action.get("verb") or NOTHING)


def _of_device(device: Any, place: int, tables: Tables) -> Iterator[_Need]:
    at = f"gpus.devices[{place}]"
    action = fact_of(device, "recovery_action")
    if action in tables["recovery_actions"]:
        verb = str(tables["recovery_actions"][action]["verb"])
        yield _Need(verb, f"NVML's recovery action {action}", f"{at}.recovery_action")
    remap = fact_of(device, "row_remap")
    if fact_of(remap, "pending"):
        yield _Need(RESET, "a row remap is pending", f"{at}.row_remap.pending")
    if fact_of(remap, "failed"):
        yield _Need(REPLACE, "a row remap failed", f"{at}.row_remap.failed")
    if fact_of(fact_of(device, "retired_pages"), "pending"):
        yield _Need(RESET, "a page retirement is pending", f"{at}.retired_pages.pending")


def _of_events(events: Any, device: Any, tables: Tables) -> Iterator[_Need]:
    """Of the Xids of one GPU. An Xid 154 counts only where NVML does not say the action itself, and
    only where there was one: of several the kernel log's first line is kept."""
    says_itself = fact_of(device, "recovery_action") not in (None, "unknown")
    for place, event in events:
        code, at = int(fact_of(event, "code")), f"faults.events[{place}]"
        verb = verb_of_xid(code, tables)
        if code == RECOVERY_CHANGED and not says_itself and fact_of(event, "count") == 1:
            verb = _verb_of_change(str(fact_of(event, "line") or ""), tables)
        yield _Need(verb, f"Xid {code}", f"{at}.code")
    if (
        device is not None
        and fact_of(device, "error")
        and any(verb_of_xid(int(fact_of(event, "code")), tables) == RESET for _, event in events)
    ):
        yield _Need(REBOOT, "NVML cannot reach it for a reset", f"{at}.code")


def _verb_of_change(line: str, tables: Tables) -> str:
    found = _TO_ACTION.search(line)
    actions = list(tables["recovery_actions"].values())
    number = int(found.group(1), 16) if found else len(actions)
    return str(actions[number]["verb"]) if number < len(actions) else NOTHING


def _not_there(need: _Need) -> _Need:
    """A GPU that NVML does not list cannot be reset: only a boot brings it back."""
    return _Need(REBOOT, need.fault, need.path) if need.verb == RESET else need


def _strongest(ids: _Ids, needs: list[_Need], resets: Any, tables: Tables) -> Iterator[GpuVerb]:
    """The GPU with its strongest verb; stronger still if the same fault was treated with that verb
    within a day."""
    if not needs:
        return
    verb = max((one.verb for one in needs), key=VERBS.index)
    deciding = [one for one in needs if one.verb == verb]
    because = tuple(dict.fromkeys(one.fault for one in deciding))
    if any(_is_same(row, ids, verb, because) for row in resets):
        done = "reset" if verb == RESET else "boot"
        because = (*because, f"again within a day of a {done} for it")
        verb = str(tables["gpu_verbs"][verb]["again"])
    if verb != NOTHING:
        yield GpuVerb(ids.index, ids.uuid, ids.pci_address, verb, because, deciding[0].path)


def _is_same(row: Any, ids: _Ids, verb: str, because: tuple[str, ...]) -> bool:
    is_it = (ids.uuid is not None and fact_of(row, "uuid") == ids.uuid) or (
        ids.pci_address is not None and _slot(fact_of(row, "pci_address")) == _slot(ids.pci_address)
    )
    age_s = fact_of(row, "age_s")
    return (
        is_it
        and fact_of(row, "verb") == verb
        and (age_s is None or age_s < AGAIN_S)
        and bool(set(fact_of(row, "because") or ()) & set(because))
    )


def _slot(address: Any) -> str | None:
    """Bus and device: an Xid names a GPU without its function."""
    return None if address is None else str(address).rpartition(".")[0] or str(address)


def fact_of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
