"""Searches a kernel log for faults, in any format in which it is stored, with little work for lines
without one.

Shapes: /dev/kmsg records "6,1234,5678901,-;text"; dmesg "[    5.678901] text" (also with <6> before
or [T12] after); dmesg -T
"[Thu Nov 20 03:49:11 2026] text"; journalctl and syslog "Nov 20 03:49:11 host kernel: [    5.67]
text", with an ISO time, or "[ 5.67] host kernel: text".
"""

from __future__ import annotations

import re

from .fault_lines import MESSAGE_LIMIT, NEEDLES, parse_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .fault_lines import Fault

CANDIDATES = 10000  # lines that are parsed: a hostile log may have a million
GROUPS = 512  # the schema's bound
ORDER = (
    "xid",
    "sxid",
    "driver_mismatch",
    "nvlink",
    "aer",
    "segfault",
    "link_down",
    "hung_task",
    "soft_lockup",
    "oom",
    "other",
)
# Not compiled here: re compiles and caches each at its first use, and a log has one or two of these
# formats.
_KMSG = r"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;]{0,64};"
_DMESG = r"(?:<\d{1,4}>)?\[ {0,12}(\d{1,12}\.\d{1,9})\](?:\[ {0,8}[TC]\d{1,10}\])? ?"
_HUMAN = r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\] "
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_ISO = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d) "
_SYSLOG = r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d "
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_TAG = r"\S{1,255} ([^\s:\[]{1,64})(?:\[\d{1,10}\])?: "


def find_faults(log: bytes, boot_time_s: float | None = None) -> dict[str, Any]:
    """{"events": [...], "lines_read": n, "complete": bool, "cut": reason or None} of the log's
    newest boot.

    log: bytes. boot_time_s: seconds since 1970 at boot, which turns wall-clock stamps with a zone
    into seconds since boot. With None they stay unknown, as do stamps without a zone (plain syslog)
    in any case; those of dmesg -T count from the boot's own, where it is there. complete: the log
    reaches back to the boot, and no part of it was skipped.
    """
    start, reaches_boot = find_boot(log)
    first = re.match(_HUMAN, line_at(log, start)) if reaches_boot else None
    boot_local_s = since_boot(_local(first), 0.0) if first else None
    offsets, cut = find_candidates(log, start)
    groups: dict[Any, dict[str, Any]] = {}
    for offset in offsets:
        line = line_at(log, offset)
        stamp_s, message = split_line(line, boot_time_s, boot_local_s)
        fault = parse_fault(message) if message else None
        if fault:
            # People do not read the prefix of a kmsg record; of the other formats they read the
            # whole line.
            add_to_group(groups, fault, stamp_s, message if re.match(_KMSG, line) else line)
    for event in groups.values():
        event["processes"] = len(event["processes"]) or None
    # a stable sort: by time within a kind
    events = sorted(groups.values(), key=lambda event: ORDER.index(event["kind"]))
    if len(events) > GROUPS:
        cut = f"{len(events)} different events, the first {GROUPS} kept, gravest kinds first"
    return {
        "events": events[:GROUPS],
        "lines_read": log.count(b"\n", start),
        "complete": reaches_boot and cut is None,
        "cut": cut,
    }


def find_boot(log: bytes) -> tuple[int, bool]:
    """(offset of the newest boot's first line, True) or (0, False) when no boot is in the log: logs
    kept in files hold several boots."""
    end = len(log)
    for _ in range(64):
        at = log.rfind(b"Linux version ", 0, end)
        if at < 0:
            return 0, False
        start = log.rfind(b"\n", 0, at) + 1
        if at - start < 400 and split_line(line_at(log, start), None)[1].startswith(
            "Linux version "
        ):
            return start, True
        end = at
    return 0, False


def find_candidates(log: bytes, start: int) -> tuple[list[int], str | None]:
    """(offsets of the newest CANDIDATES lines with one of the needles, in order; the reason if some
    lines were skipped)."""
    offsets = set()
    cut = None
    for needle in (text.encode("ascii") for text in NEEDLES):
        end, seen = len(log), 0
        while seen < CANDIDATES:
            at = log.rfind(needle, start, end)
            if at < 0:
                break
            end = log.rfind(b"\n", start, at) + 1 or start
            offsets.add(end)
            seen += 1
        else:
            cut = (
                f"more than {CANDIDATES} lines speak of {needle.decode('ascii')!r}; the newest were"
                " read"
            )
    if len(offsets) > CANDIDATES:
        cut = f"more than {CANDIDATES} lines speak of faults; the newest were read"
    return sorted(offsets)[-CANDIDATES:], cut


def line_at(log: bytes, offset: int) -> str:
    """The line that begins at `offset` as text, at most a record long."""
    end = log.find(b"\n", offset, offset + MESSAGE_LIMIT + 512)
    return log[offset : end if end >= 0 else offset + MESSAGE_LIMIT + 512].decode(
        "utf-8", "replace"
    )


def split_line(
    line: str, boot_time_s: float | None, boot_local_s: float | None = None
) -> tuple[float | None, str]:
    """(seconds since boot or None, the kernel's message or "" when the line is not the
    kernel's). boot_local_s: the boot by the clock of dmesg -T, whose zone is not known."""
    match = re.match(_KMSG, line)
    if match:
        # The facility begins at bit 3; a line that a process writes into /dev/kmsg never has
        # facility 0.
        return int(match.group(3)) / 1e6, (
            line[match.end() :] if int(match.group(1)) >> 3 == 0 else ""
        )
    match = re.match(_DMESG, line)
    if match:
        return float(match.group(1)), untagged(line[match.end() :])
    match = re.match(_HUMAN, line)
    if match:
        return since_boot(_local(match), boot_local_s), line[match.end() :]
    match = re.match(_ISO, line)
    wall_s = since_boot(match.groups(), boot_time_s) if match else None
    match = match or re.match(_SYSLOG, line)
    if not match:
        return None, line
    message = untagged(line[match.end() :], False)
    stamp = re.match(_DMESG, message)
    return (float(stamp.group(1)), message[stamp.end() :]) if stamp else (wall_s, message)


def untagged(text: str, may_be_bare: bool = True) -> str:
    """The message after "host kernel: "; "" after another program's tag; the text itself if there
    is no tag and none is required."""
    match = re.match(_TAG, text)
    if match and match.group(1) == "kernel":
        return text[match.end() :]
    return text if may_be_bare else ""


def _local(human: re.Match[str]) -> tuple[str, ...]:
    """As since_boot takes it, in a zone that both moments have."""
    month, day, *clock, year = human.groups()
    return (year, str(_MONTHS.find(month) // 3 + 1), day, *clock, "Z")


def since_boot(moment: tuple[str, ...], boot_time_s: float | None) -> float | None:
    """Seconds since boot of (year, month, day, hour, minute, second, zone) as texts; None when it
    cannot be known."""
    year, month, day, hour, minute, second = (int(text) for text in moment[:6])
    if boot_time_s is None or not 1 <= month <= 12 or not 1 <= day <= 31 or year < 1970:
        return None
    # Days since 1970 in the Gregorian calendar, years counted from March: calendar and datetime
    # cost 3 ms to import.
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = (
        years * 365
        + years // 4
        - years // 100
        + years // 400
        + (months * 153 + 2) // 5
        + day
        - 719469
    )
    zone = moment[6].replace(":", "")
    offset_s = (
        0 if zone == "Z" else int(zone[0] + "1") * (int(zone[1:3]) * 3600 + int(zone[3:5]) * 60)
    )
    return max(
        0.0, float(days * 86400 + hour * 3600 + minute * 60 + second - offset_s - boot_time_s)
    )


def add_to_group(
    groups: dict[Any, dict[str, Any]], fault: Fault, stamp_s: float | None, line: str
) -> None:
    """Counts a fault in the group of equal faults (equal but for the time), in place."""
    event = groups.get(fault)
    if event is None:
        if len(groups) >= CANDIDATES:
            return
        event = dict(
            fault._asdict(), count=0, first_s=stamp_s, last_s=stamp_s, line=printable(line),
            processes=set(),
        )  # fmt: skip
        event["subject"] = printable(fault.subject)[:256] if fault.subject else None
        groups[fault] = event
    event["count"] += 1
    if fault.kind == "xid" and len(event["processes"]) < CANDIDATES:
        event["processes"].update(_PID.findall(line))
    event["last_s"] = stamp_s if stamp_s is not None else event["last_s"]


def printable(line: str) -> str:
    """The line with each control character written as \\x1b, so that no terminal obeys it."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in line)[:2048]
