"""Parses the output of dnf 4: the table of a transaction that was answered with no, offers, the
holder of a lock. Text in, values out."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from ..values import Step

_SECTIONS = {
    "Installing": "install",
    "Upgrading": "upgrade",
    "Downgrading": "downgrade",
    "Reinstalling": "reinstall",
    "Removing": "remove",
}
_HEAD = re.compile(r"^([A-Z][a-z]+)(?: [a-z ]+)?:$")
_ROW = re.compile(r"^ (\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+([\d.]+(?: [kMGT])?)$")  # bytes have no unit
_REPLACES = re.compile(r"^\s+replacing\s+(\S+)\.\S+\s+(\S+)$")
# Flags are in brackets after stream and profile: [d]efault, [e]nabled, [x]disabled, [i]nstalled.
_STREAM = re.compile(r"^(\S+)\s+(\S+)((?:\s*\[[deix]\])*)(?:\s|$)")
_WAITS = re.compile(r"Waiting for process with pid (\d+) to finish")


def parse_transaction(text: str, installed: Mapping[str, str]) -> List[Step]:
    """Parses the table that dnf prints before its question. installed: {name: version} of the
    packages that are replaced; a version without an epoch has epoch 0."""
    steps: Dict[str, Step] = {}
    action, wrapped = None, ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head or not line.strip():
            action, wrapped = _SECTIONS.get(head.group(1)) if head else None, ""
            continue
        replaced = _REPLACES.match(line)
        if replaced:
            steps[replaced.group(1)] = Step(
                name=replaced.group(1), action="remove", before=replaced.group(2), after=None
            )
            continue
        if action is None:
            continue
        row = _ROW.match((wrapped + " " + line.strip()) if wrapped else line.rstrip())
        if not row:
            wrapped = line.rstrip()  # a long name is on a line of its own
            continue
        steps[row.group(1)] = _step(row.group(1), action, row.group(3), installed)
        wrapped = ""
    return [steps[name] for name in sorted(steps)]


def _step(name: str, action: str, version: str, installed: Mapping[str, str]) -> Step:
    if action == "remove":
        return Step(name=name, action=action, before=version, after=None)
    return Step(name=name, action=action, before=installed.get(name), after=version)


def parse_lines(text: str) -> List[Tuple[str, str, str, str]]:
    """[(name, version, architecture, origin)] of tab-separated lines; the last field may be
    missing, and an epoch of 0 is omitted."""
    rows = []
    for line in text.splitlines():
        fields = line.strip().split("\t")
        if len(fields) >= 3:
            version = fields[1][2:] if fields[1].startswith("0:") else fields[1]
            rows.append((fields[0], version, fields[2], fields[3] if len(fields) > 3 else ""))
    return rows


def parse_streams(text: str) -> List[Tuple[str, str, bool]]:
    """[(module, stream, is the default)] of `dnf module list`."""
    rows, in_table = [], False
    for line in text.splitlines():
        if line.startswith("Name ") and "Stream" in line:
            in_table = True
        elif not line.strip():
            in_table = False
        elif in_table:
            found = _STREAM.match(line)
            if found:
                rows.append((found.group(1), found.group(2), "[d]" in found.group(3)))
    return rows


def waits_for(text: str) -> Optional[int]:
    """Pid of the process for which dnf waits."""
    found = _WAITS.search(text)
    return int(found.group(1)) if found else None
