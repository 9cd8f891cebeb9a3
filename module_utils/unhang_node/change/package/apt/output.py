"""Parses apt's output: a simulated run, the versions on offer. Text in, values out.

Source: apt-get(8) (`Inst`, `Remv` and `Purg` lines of --simulate), apt-cache(8) (`madison`), seen
with apt 2.6 and 3.0.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Optional, Sequence

from ....base.versions.packages import deb_version_key
from ..values import Offers, Step, action_of

_INSTALL = re.compile(r"^Inst (\S+)(?: \[([^\]]+)\])? \((\S+)", re.M)
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+) \[([^\]]+)\]", re.M)


def parse_simulation(text: str) -> List[Step]:
    """The steps of `apt-get --simulate`, sorted by name and each package once."""
    steps = {}
    for name, before in _REMOVE.findall(text):
        steps[name] = Step(name=name, action="remove", before=before, after=None)
    for name, before, after in _INSTALL.findall(text):
        steps[name] = Step(
            name=name,
            action=action_of(before or None, after, deb_version_key),
            before=before or None,
            after=after,
        )
    return [steps[name] for name in sorted(steps)]


def parse_madison(text: str) -> Offers:
    """{name: [{version, origin}]} of `apt-cache madison`, newest first, each version once."""
    origins: Dict[str, Dict[str, str]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) == 3 and fields[2].endswith("Packages"):
            origins.setdefault(fields[0], {}).setdefault(fields[1], fields[2].rsplit(" ", 1)[0])
    return {
        name: [{"version": version, "origin": known[version]} for version in _newest_first(known)]
        for name, known in origins.items()
    }


def _newest_first(versions: Iterable[str]) -> List[str]:
    return sorted(versions, key=deb_version_key, reverse=True)


def parse_fields(text: str, fields: Sequence[str]) -> List[Dict[str, Optional[str]]]:
    """[{field: value}] of the stanzas that `apt-cache show` and `dpkg-deb --field` print; the first
    line of each value."""
    rows = []
    for stanza in text.split("\n\n"):
        found = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.M))
        if found:
            rows.append({field: found.get(field) for field in fields})
    return rows
