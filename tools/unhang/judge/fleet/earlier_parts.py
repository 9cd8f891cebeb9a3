"""What the parts of a node were in its earlier runs: GPUs, RDMA cards, active ports, NVSwitches,
NVMe disks and members of bonds, and what its error counters and numbers were; as node.earlier for
the rules.

A judged run keeps in parts.json what each node was compared with and what the next run compares
with, so the same run judged again finds the same. A part that is gone stays expected for
REMEMBERED_DAYS after a run last saw it, or until as many are there again. A node is known by its
host and its machine id.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from unhang.core.run.documents import to_fragment
from unhang.core.run.private_file import others_may_write
from unhang.core.run.run_input import RunInput
from unhang.core.run.whole_files import write_atomically
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.judge.rules.last_run import numbers_of
from unhang.judge.rules.node_rules import why_null
from unhang.judge.rules.rising_counters import counters_of

PARTS = "parts.json"
MOST_BYTES = 256 * 1024 * 1024
MOST_RUNS = 10  # that are looked into for hosts which the newest one lacks
REMEMBERED_DAYS = 30
MOST_NAMES = 64
MOST_COUNTERS = 1024
_Text = Annotated[str, msgspec.Meta(max_length=256)]


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parts of one kind. run, at: the last run that had so many, and when it began."""

    count: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    names: Annotated[list[_Text], msgspec.Meta(max_length=MOST_NAMES)]
    run: _Text
    at: _Text


class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The error counters of one look that had risen. boot, uptime_s: when that was."""

    boot: _Text
    uptime_s: float
    counters: Annotated[dict[_Text, int], msgspec.Meta(max_length=MOST_COUNTERS)]


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """parts: of one node, of each kind that a run read."""

    machine_id: _Text
    parts: dict[_Text, Parts] = {}
    counted: Counted | None = None
    numbers: dict[_Text, float] = {}


class _Kept(msgspec.Struct, frozen=True):
    """compared: what this run is judged by; known: what the next one is."""

    compared: Machine | None
    known: Machine | None


class _File(msgspec.Struct, frozen=True):
    """hosts: a _Kept each, as text until it is needed: those of ten thousand nodes take a third of
    the memory so."""

    schema: Literal["unhang/parts/2"]
    run: _Text
    started: _Text
    hosts: dict[str, msgspec.Raw]


class EarlierParts:
    """The parts of the nodes of one run, while it is judged."""

    def __init__(self, run: RunInput, tables: Mapping[str, Any]):
        self._tables = tables
        self._run, self._id, self._started = (
            run.folder,
            str(run.document["id"]),
            str(run.document.get("started") or ""),
        )
        kept = _read(run.folder)
        self._own = kept.hosts if kept is not None and kept.run == self._id else None
        self._earlier = _newest(run, self._started) if self._own is None else {}
        self._hosts: dict[str, msgspec.Raw] = {}

    def add(self, host: str, sections: Any) -> None:
        """Sets node.earlier of a node's facts, whatever the node itself gave there."""
        node = sections.node if sections is not None else None
        before = self._before(host)
        now = (
            _parts_of(sections, self._id, self._started, self._tables) if node is not None else None
        )
        if now is None or before is None or before.machine_id != now.machine_id:
            kept = _Kept(before if now is None else None, now or before)
        else:
            kept = _Kept(before, _joined(before, now))
        self._hosts[host] = msgspec.Raw(msgspec.json.encode(kept))
        if node is not None:
            compared = kept.compared
            node.earlier = (
                to_fragment({"node": {"earlier": _as_fact(compared, now)}}).node.earlier
                if compared is not None and now is not None
                else None
            )

    def _before(self, host: str) -> Machine | None:
        if self._own is not None:
            own = _kept_of(self._own.get(host))
            return own.compared if own is not None else None
        earlier = _kept_of(self._earlier.get(host))
        return _remembered(earlier.known, self._started) if earlier is not None else None

    def keep(self) -> None:
        """Writes parts.json. Raises OSError."""
        document = _File("unhang/parts/2", self._id, self._started, self._hosts)
        write_atomically(self._run / PARTS, msgspec.json.encode(document).decode())


def _read(folder: Path) -> _File | None:
    with suppress(OSError, NotStrict, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(read_bounded(folder / PARTS, MOST_BYTES), type=_File)
    return None


def _kept_of(row: msgspec.Raw | None) -> _Kept | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(row, type=_Kept) if row is not None else None
    return None


def _newest(run: RunInput, started: str) -> dict[str, msgspec.Raw]:
    """host -> what the newest run beside this one that began before it and knew the host has kept
    of it."""
    found: dict[str, msgspec.Raw] = {}
    wanted = set(run.document["hosts"]) | set(run.files)
    for kept in _earlier_files(run.folder, started):
        for host in wanted & kept.hosts.keys():
            found[host] = kept.hosts[host]
        wanted -= kept.hosts.keys()
        if not wanted:
            break
    return found


def _earlier_files(folder: Path, started: str) -> Iterator[_File]:
    """Those of the runs beside this one that began before it, the newest first."""
    every = map(_read, _beside(folder.resolve()) if started else ())
    return islice(
        (one for one in every if one is not None and "" < one.started < started), MOST_RUNS
    )


def _beside(folder: Path) -> Iterator[Path]:
    """Folders beside this one; none that somebody else made or may have changed: /tmp is a folder
    of runs for who writes --out /tmp/run."""
    with suppress(OSError):
        for one in sorted(
            (one for one in folder.parent.iterdir() if one.name != folder.name), reverse=True
        ):
            with suppress(OSError):
                if (
                    not one.is_symlink()
                    and one.is_dir()
                    and one.lstat().st_uid in (0, os.geteuid())
                    and not others_may_write(one)
                ):
                    yield one


def _remembered(known: Machine | None, started: str) -> Machine | None:
    """Without the parts that no run has seen for long."""
    if known is None:
        return None
    young = {kind: one for kind, one in known.parts.items() if not _is_old(one.at, started)}
    return msgspec.structs.replace(known, parts=young)


def _is_old(at: str, now: str) -> bool:
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(at) > timedelta(
            days=REMEMBERED_DAYS
        )
    except (ValueError, TypeError):
        return True


def _parts_of(sections: Any, run: str, at: str, tables: Mapping[str, Any]) -> Machine | None:
    """None for a node without a machine id, and in a container, which sees what it was given."""
    node, gpus, network = sections.node, sections.gpus, sections.network
    if not node.machine_id or (
        node.virtualization is not None and node.virtualization.is_container
    ):
        return None

    # a virtual function and a software device have no PCIe link of their own, and come and go with
    # the pods that use them
    cards = getattr(network, "rdma", None)
    own = None if cards is None else [one for one in cards if one.pcie is not None and one.name]
    interfaces = getattr(network, "interfaces", None)
    bonds = {one.name for one in interfaces or () if one.kind == "bond"}
    names: dict[str, list[str] | None] = {
        "gpus": [one.uuid for one in getattr(gpus, "devices", None) or () if one.uuid],
        "nics": own and [card.name for card in own],
        "ports": own and [
            card.name if port.port == 1 else f"{card.name}/{port.port}"
            for card in own
            for port in card.ports or ()
            if port.state == "active"
        ],
        "nvswitches": [],
        "disks": node.disks and [one.name for one in node.disks],
        "members": interfaces and [
            f"{one.master}/{one.name}"
            for one in interfaces
            if one.kind == "physical" and one.master in bonds
        ],
    }  # fmt: skip
    counts = {
        "gpus": getattr(gpus, "pci_count", None),
        "nvswitches": getattr(sections.fabric_manager, "nvswitch_count", None),
    }
    found: dict[str, Parts] = {}
    for kind, ours in names.items():
        count = counts[kind] if kind in counts else None if ours is None else len(ours)
        if count is not None and count >= 0:
            kept = [name[:256] for name in ours or () if name]
            found[kind] = Parts(count, kept[:MOST_NAMES], run, at)
    numbers = {
        one.name[:256]: one.value
        for one in numbers_of(sections, tables, partial(why_null, sections))
    }
    return Machine(node.machine_id[:256], found, _counted(sections, tables), numbers)


def _counted(sections: Any, tables: Mapping[str, Any]) -> Counted | None:
    node = sections.node
    if not node.boot_id or node.uptime_s is None:
        return None
    every = counters_of(sections, tables, partial(why_null, sections))
    risen = {one.name[:256]: one.value for one in every if getattr(one, "value", 0) > 0}
    return Counted(node.boot_id[:256], node.uptime_s, dict(list(risen.items())[:MOST_COUNTERS]))


def _joined(before: Machine, now: Machine) -> Machine:
    """What the next run compares with: what is there now, and what is missing."""
    parts = before.parts | {
        kind: _joined_parts(before.parts.get(kind), one) for kind, one in now.parts.items()
    }
    numbers = list((before.numbers | now.numbers).items())[-MOST_COUNTERS:]
    return msgspec.structs.replace(now, parts=parts, numbers=dict(numbers))


def _joined_parts(before: Parts | None, now: Parts) -> Parts:
    if before is None or now.count >= before.count:
        return now
    return msgspec.structs.replace(
        before,
        names=[*now.names, *(name for name in before.names if name not in now.names)][:MOST_NAMES],
    )


def _as_fact(before: Machine, now: Machine) -> Mapping[str, Any]:
    then, later = before.counted, now.counted
    look = then if then and later and then.boot == later.boot else None
    return {
        **{
            kind: _difference(one, now.parts[kind])
            for kind, one in before.parts.items()
            if kind in now.parts
        },
        "uptime_s": look and look.uptime_s,
        "counters": look and look.counters,
        "numbers": before.numbers,
    }


def _difference(before: Parts, now: Parts) -> dict[str, Any]:
    missing = (
        [name for name in before.names if name not in now.names] if now.count < before.count else []
    )
    return {
        "count": before.count,
        "now": now.count,
        "missing": missing,
        "run": before.run,
        "at": before.at,
    }
