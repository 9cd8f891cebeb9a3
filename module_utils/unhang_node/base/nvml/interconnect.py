"""NVLink per link, and what each pair of GPUs can do."""

from __future__ import annotations

from .calls import Lost
from .devices import LINK_COUNT
from .gpu_fields import sysfs_address
from .names import ALL_LINKS, FIELDS, INVALID_ARGUMENT, NOT_SUPPORTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .calls import Asking, FieldAnswers

MOST_LINKS = 18  # NVML_NVLINK_MAX_LINKS
LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0"}
REMOTES = {0: "gpu", 1: "cpu", 2: "switch"}
SPEED = FIELDS["NVML_FI_DEV_NVLINK_GET_SPEED"]
ERRORS = (
    ("replay", FIELDS["NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY"], 0),
    ("recovery", FIELDS["NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY"], 1),
    ("crc", FIELDS["NVML_FI_DEV_NVLINK_ERROR_DL_CRC"], 2),
)
P2P = (("read", 0), ("write", 1), ("nvlink", 2), ("atomics", 3))
P2P_STATES = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "topology_not_supported",
    4: "disabled_by_regkey",
    5: "not_supported",
}
TOPOLOGIES = {
    0: "internal",
    10: "single",
    20: "multiple",
    30: "hostbridge",
    40: "node",
    50: "system",
}


def read_links(asking: Asking, gpu: int) -> list[dict[str, Any]]:
    """[row of interconnect.links] of one GPU; [] when it has none. Raises Lost."""
    states: list[bool | None] = []
    for link in range(count_links(asking)):
        state, code = asking.try_ask("nvmlDeviceGetNvLinkState", asking.handle, link)
        if code in (NOT_SUPPORTED, INVALID_ARGUMENT) and len(states) == link:
            break
        states.append(None if code else bool(state))
    # All links of a GPU have one version: only the first link that is up is asked.
    first = next((link for link, active in enumerate(states) if active), None)
    version = None if first is None else read_link_version(asking, gpu, first)
    rows = [read_link(asking, gpu, link, active, version) for link, active in enumerate(states)]
    if rows:
        add_speeds_and_errors(asking, rows)
    return rows


def count_links(asking: Asking) -> int:
    """How many links to query: the GPU's own number, else NVML's maximum."""
    code, count = asking.fields((LINK_COUNT,)).get(LINK_COUNT, (NOT_SUPPORTED, 0))
    return MOST_LINKS if code else min(count, 64)


def read_link_version(asking: Asking, gpu: int, link: int) -> str | None:
    """The version, such as 4.0; None, with the reason noted, where NVML does not report it."""
    version = asking.ask(
        f"links[gpu={gpu}].version", "nvmlDeviceGetNvLinkVersion", asking.handle, link
    )
    return LINK_VERSIONS.get(version, None if version is None else f"enum {version}")


def read_link(
    asking: Asking, gpu: int, link: int, active: bool | None, version: str | None
) -> dict[str, Any]:
    """One row without speed and errors. The device at the other end is queried only for links that
    are up; `version` is theirs."""
    field = f"links[gpu={gpu},link={link}]."
    row: dict[str, Any] = {
        "gpu": gpu,
        "link": link,
        "active": active,
        "version": None,
        "remote": None,
        "remote_pci_address": None,
        "speed_mb_s": None,
        "errors": None,
    }
    if not active:
        return row
    row["version"] = version
    remote = asking.ask(
        field + "remote", "nvmlDeviceGetNvLinkRemoteDeviceType", asking.handle, link
    )
    row["remote"] = None if remote is None else REMOTES.get(remote, "unknown")
    if row["remote"] == "gpu":
        pci = asking.ask(
            field + "remote_pci_address", "nvmlDeviceGetNvLinkRemotePciInfo", asking.handle, link
        )
        row["remote_pci_address"] = None if pci is None else sysfs_address(pci.busId)
    return row


def add_speeds_and_errors(asking: Asking, rows: list[dict[str, Any]]) -> None:
    """Sets speed_mb_s and errors of the links that are up.

    The three counters of a link cost 2.5 ms, and so do their sums over all links: the links are
    queried one by one only when a sum is not zero.
    """
    up = [row for row in rows if row["active"]]
    sums = [(number, ALL_LINKS) for _, number, _ in ERRORS]
    found = asking.fields([(SPEED, row["link"]) for row in up] + sums) if up else {}
    for row in up:
        code, speed = found.get((SPEED, row["link"]), (NOT_SUPPORTED, None))
        row["speed_mb_s"] = None if code else speed
        if code:
            status = "absent" if code in (NOT_SUPPORTED, INVALID_ARGUMENT) else "error"
            asking.unread.add(
                "links[*].speed_mb_s", status, f"NVML cannot say the rate of a link: error {code}"
            )
    clean = bool(found) and all(found[entry] == (0, 0) for entry in sums)
    for row in up:
        row["errors"] = (
            {name: 0 for name, _, _ in ERRORS} if clean else read_errors(asking, row["link"], found)
        )


def read_errors(asking: Asking, link: int, sums: FieldAnswers) -> dict[str, Any]:
    """{replay, recovery, crc} of one link."""
    errors = {}
    asked = asking.fields([(number, link) for _, number, _ in ERRORS]) if sums else {}
    for name, number, counter in ERRORS:
        code, value = asked.get((number, link), (NOT_SUPPORTED, None))
        if code:
            value = asking.ask(
                "links[*].errors." + name,
                "nvmlDeviceGetNvLinkErrorCounter",
                asking.handle,
                link,
                counter,
            )
        errors[name] = value
    return errors


def count_by_gpu(gpu: int, uuid: str | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Row of interconnect.by_gpu."""
    remotes = sorted({row["remote"] or "unknown" for row in rows if row["active"]})
    counts = [value for row in rows if row["errors"] for value in row["errors"].values()]
    return {
        "gpu": gpu,
        "uuid": uuid,
        "nvlinks": len(rows),
        "nvlinks_active": None
        if any(row["active"] is None for row in rows)
        else sum(1 for row in rows if row["active"]),
        "remote": "none" if not remotes else remotes[0] if len(remotes) == 1 else "mixed",
        "errors_total": None if None in counts else sum(counts),
    }


def read_pair(
    asking: Asking, name: str, one: tuple[int, Any], other: tuple[int, Any], in_full: bool
) -> dict[str, Any]:
    """Row of interconnect.pairs. name: its path in the document (pairs[3]); one, other: (index,
    handle), or (index, None) of a lost GPU; in_full: ask for write, NVLink and atomics even where
    read is ok."""
    row: dict[str, Any] = {
        "a": one[0],
        "b": other[0],
        "read": None,
        "write": None,
        "nvlink": None,
        "atomics": None,
        "topology": None,
        "nvlinks": None,
    }
    if one[1] is None or other[1] is None:
        return row
    pair = asking.about(name + ".", f"GPU {one[0]}, GPU {other[0]}")
    try:
        for name, which in P2P:
            status = pair.ask(name, "nvmlDeviceGetP2PStatus", one[1], other[1], which)
            row[name] = None if status is None else P2P_STATES.get(status, "unknown")
            if name == "read" and row["read"] == "ok" and not in_full:
                break
        row["topology"] = TOPOLOGIES.get(
            pair.ask("topology", "nvmlDeviceGetTopologyCommonAncestor", one[1], other[1])
        )
    except Lost as problem:
        asking.unread.add(pair.prefix[:-1], "error", str(problem))
    return row


def count_between(
    links: dict[int, list[dict[str, Any]]], addresses: dict[int, str | None], a: int, b: int
) -> int | None:
    """Active NVLinks between two GPUs: direct ones, else the fewer of both GPUs' links to switches.
    None when a GPU's links were not read.

    links: {gpu: rows}; addresses: {gpu: PCI address}.
    """
    if a not in links or b not in links:
        return None
    direct = sum(
        1
        for row in links[a]
        if row["active"]
        and row["remote"] == "gpu"
        and row["remote_pci_address"] == addresses.get(b)
    )
    switched = [
        sum(1 for row in links[gpu] if row["active"] and row["remote"] == "switch")
        for gpu in (a, b)
    ]
    return direct or min(switched)


def judge_all_read(pairs: list[dict[str, Any]]) -> bool | None:
    """p2p_ok: every pair can read; None with no pair, or when one was not read and none is bad."""
    states = {row["read"] for row in pairs}
    if not states or states == {None}:
        return None
    if states - {"ok", None}:
        return False
    return None if None in states else True


def sum_up_fabric(states: Iterable[str | None]) -> str | None:
    """fabric_state of the GPUs' fabric states."""
    known = {"none" if state == "not_supported" else state for state in states if state is not None}
    if not known:
        return None
    return known.pop() if len(known) == 1 else "mixed"
