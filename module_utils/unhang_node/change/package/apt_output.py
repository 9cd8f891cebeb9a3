"""What apt says: a simulated run, the versions on offer, its errors. Text in, values out.

Source: apt-get(8) (`Inst`, `Remv` and `Purg` lines of --simulate), apt-cache(8) (`madison`), seen with apt 2.6 and 3.0.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ...parse.deb_version import deb_version_key

# name: with :architecture where it is a foreign one, as apt writes it; action: install, upgrade, downgrade, reinstall, remove.
Step = namedtuple("Step", "name action before after")
_INSTALL = re.compile(r"^Inst (\S+)(?: \[([^\]]+)\])? \((\S+)", re.M)
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+) \[([^\]]+)\]", re.M)
_URI = re.compile(r"^'[^']+' (\S+) (\d+)(?: |$)", re.M)
_SAID = re.compile(
    r"^(?:E: |Err:|W: (?:Failed|GPG|An error|The repository)|dpkg: (?:error|warning: old)| (?:cannot|failed|installed|subprocess|new|unable) "
    r"|gzip: |tar: |\S+: (?:error|ERROR)| {2}\S+ : )"
)


def parse_simulation(text):
    """[Step] of `apt-get --simulate`, sorted by name and each package once."""
    steps = {}
    for name, before in _REMOVE.findall(text):
        steps[name] = Step(name, "remove", before, None)
    for name, before, after in _INSTALL.findall(text):
        steps[name] = Step(name, action_of(before or None, after), before or None, after)
    return [steps[name] for name in sorted(steps)]


def action_of(before, after):
    """What takes a package from one version to another; None is not installed."""
    if after is None:
        return "remove"
    if before is None:
        return "install"
    here, there = deb_version_key(before), deb_version_key(after)
    return "reinstall" if before == after else ("upgrade" if here < there else "downgrade")


def parse_madison(text):
    """{name: [{version, origin}]} of `apt-cache madison`, newest first, each version once."""
    offers = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not fields[2].endswith("Packages"):
            continue
        known = offers.setdefault(fields[0], {})
        known.setdefault(fields[1], fields[2].rsplit(" ", 1)[0])
    return {name: [{"version": version, "origin": known[version]} for version in _newest_first(known)] for name, known in offers.items()}


def _newest_first(versions):
    return sorted(versions, key=deb_version_key, reverse=True)


def download_bytes(text):
    """Bytes that `apt-get --print-uris` says will be fetched."""
    return sum(int(size) for _name, size in _URI.findall(text))


def parse_fields(text, fields):
    """[{field: value}] of stanzas such as `apt-cache show` and `dpkg-deb --field` print; the first line of each value."""
    rows = []
    for stanza in text.split("\n\n"):
        found = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.M))
        if found:
            rows.append({field: found.get(field) for field in fields})
    return rows


def said_lines(text, limit=6):
    """The lines that tell what went wrong, the last ones at all where none does."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    telling = [line for line in text.splitlines() if _SAID.match(line)]
    once = list(dict.fromkeys(" ".join(line.split()) for line in telling))
    return once[:limit] if once else lines[-3:]
