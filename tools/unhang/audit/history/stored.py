"""Values of a run folder in the form in which the history stores them. Nothing here writes or reads
a database."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from unhang.audit.history.machines import lasting_name
from unhang.audit.history.packed import pack_section
from unhang.audit.rules.rules import SEVERITIES
from unhang.core.errors import UserError
from unhang.core.run.documents import MAX_NODE_BYTES, READ
from unhang.core.run.findings import blameless_hosts
from unhang.core.run.record import (
    FINDINGS,
    Findings,
    GateSmoke,
    read_findings_record,
    read_gate_smoke,
)
from unhang.core.run.run_input import RunInput
from unhang.core.schemas.configuration import (
    digest_of_section,
    probed_sections_type,
    text_of_section,
)
from unhang.core.secrets_in_text import cut_without_secrets, without_secrets
from unhang.core.strict_json import NotStrict, read_bounded

LONGEST_FOUND = 300
LONGEST_PLACE = 1000
MOST_BANDWIDTH_ROWS = 200
NOTHING = b"{}"  # marks a section that no longer exists
INVALID, MISSING = "invalid", "missing"
# faults.events[3], a fact and not a file
_IN_A_LIST = re.compile(r"[a-z_][a-z0-9_.]*\[[0-9]{1,9}\].*", re.DOTALL)
# section -> digest; None: it was read, and there is none. A section that could not be read has no
# key
Digests = dict[str, bytes | None]


@dataclass(frozen=True)
class StoredNode:
    """status: as in unhang/node/1, or missing; name: under which it is kept, where that is not the
    inventory's."""

    status: str
    digests: Digests = field(default_factory=dict)
    name: str | None = None

    @property
    def read(self) -> bool:
        """Whether it was read."""
        return self.status in READ


@dataclass(frozen=True)
class Problem:
    """A finding without the parts that change from run to run. place, waiver: JSON."""

    rule: str
    severity: str
    verdict: str
    scope: str
    place: str
    waiver: str


@dataclass(frozen=True)
class Verdicts:
    """The judge's result for a run. found: (host, problem) -> what was found there; unknown: (host,
    rule) without a verdict."""

    day: str
    policy: str
    counts: Mapping[str, int]
    unread: frozenset[str]
    titles: Mapping[str, str]
    found: Mapping[tuple[str, Problem], str]
    unknown: frozenset[tuple[str, str]]
    judged: frozenset[str]
    stopped: frozenset[str]


@cache
def _node_decoder() -> msgspec.json.Decoder:
    facts = msgspec.defstruct("Facts", [("sections", probed_sections_type() | None, None)])
    return msgspec.json.Decoder(
        msgspec.defstruct("Node", [("host", str), ("status", str), ("facts", facts | None, None)])
    )


def read_nodes(
    run: RunInput, unread: Container[str], known: Container[bytes], bodies: dict[bytes, bytes]
) -> Iterator[tuple[str, StoredNode]]:
    """(host, what was seen of it), of every host that was meant. unread: hosts that the judge could
    not use.

    The body of a digest that is not known is put into `bodies`, packed.
    """
    for host, path in run.files.items():
        yield host, _read_node(host, path, host in unread, known, bodies)
    for host in run.document["hosts"]:
        if host not in run.files:
            yield host, StoredNode(MISSING)


def _read_node(
    host: str, path: Path, refused: bool, known: Container[bytes], bodies: dict[bytes, bytes]
) -> StoredNode:
    try:
        document = _node_decoder().decode(read_bounded(path, MAX_NODE_BYTES))
        status = document.status
        if document.host != host or (refused and status in READ):
            return StoredNode(INVALID)
        sections = (
            document.facts.sections if document.facts is not None and status in READ else None
        )
        digests = {} if sections is None else _digests(sections, known, bodies)
    except (OSError, NotStrict, ValueError, RecursionError):
        return StoredNode(INVALID)  # the judge has reported a file that cannot be read
    own = getattr(sections, "node", None)
    name = lasting_name(host, own.hostname, own.machine_id) if own is not None else host
    return StoredNode(status[:40], digests, name if name != host else None)


def _digests(sections: Any, known: Container[bytes], bodies: dict[bytes, bytes]) -> Digests:
    digests: Digests = {}
    for name in sections.__struct_fields__:
        section = getattr(sections, name)
        status = section.probe.status if section is not None and section.probe is not None else None
        if status not in ("ok", "absent"):
            continue
        digest = digest_of_section(section)
        if digest is None and section.probe.unread:
            continue  # the section could not be read, which does not mean that it is empty
        digests[name] = digest
        if digest is not None and digest not in known and digest not in bodies:
            bodies[digest] = pack_section(text_of_section(section))
    return digests


def read_verdicts(run: RunInput) -> Verdicts | None:
    """The verdicts of the run's findings.json; None if it was not judged. Raises UserError for an
    invalid file."""
    path = run.folder / FINDINGS
    if not path.is_file():
        return None
    found = read_findings_record(run.folder)
    if found.run.id != run.document["id"]:
        raise UserError(
            f"expected the findings of run {run.document['id']} in {path}, found those of"
            f" {found.run.id[:80]!r}; next: unhang judge {run.folder}"
        )
    return _verdicts(found)


def _verdicts(given: Findings) -> Verdicts:
    found: dict[tuple[str, Problem], str] = {}
    unknown: set[tuple[str, str]] = set()
    blameless = blameless_hosts(given.node_verdicts)
    for one in given.findings:
        hosts = one.about() or [""]
        # of a comparison not the blameless hosts, which only the fault of another one sets apart
        if one.verdict == "fail" and one.severity != SEVERITIES[-1]:
            hosts = [host for host in hosts if host not in blameless]
        if one.verdict == "unknown":
            unknown.update((host, one.rule) for host in hosts)
            continue
        problem = Problem(
            one.rule,
            one.severity,
            one.verdict,
            one.scope,
            _canonical(lasting_place(one.where)),
            _canonical(one.waiver or {}),
        )
        found.update(
            ((host, problem), cut_without_secrets(one.found, LONGEST_FOUND)) for host in hosts
        )
    return Verdicts(
        given.run.judged, given.judged_by.policy or "",
        {name: len(hosts) for name, hosts in given.node_verdicts.items()},
        frozenset(given.node_verdicts.get("unread", ())),
        {one.rule: one.title for one in given.findings}, found, frozenset(unknown),
        frozenset(given.totals_by_rule), frozenset(given.catalogue.stopped),
    )  # fmt: skip


def lasting_place(where: Any) -> Any:
    """The lasting name of a thing over all runs, without its index in a list or its line in a file
    or log, which change with its neighbours."""
    if not isinstance(where, dict):
        return where or {}
    named = {
        name: value
        for name, value in where.items()
        if name != "line" and not (name == "path" and _IN_A_LIST.fullmatch(str(value)))
    }
    return named or where


def _canonical(value: Any) -> str:
    text = msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= LONGEST_PLACE else without_secrets(text)[:LONGEST_PLACE]


class BandwidthRow(NamedTuple):
    """A bandwidth that one node had alone. op: the operation."""

    host: str
    op: str
    size_bytes: int
    ranks: int
    busbw_gb_s: float


def read_bandwidth(folder: Path) -> list[BandwidthRow]:
    """The bandwidths of each node that the gate's smoke test had alone; [] without a gate."""
    try:
        smoke = read_gate_smoke(folder) or GateSmoke()
    except ValueError:
        return []
    rows = []
    for host, summary in smoke.alone.items():
        ranks = min((summary.world_size or 0) if summary else 0, 2**31)
        measured = (summary.bandwidth if summary else [])[:MOST_BANDWIDTH_ROWS]
        rows += [
            BandwidthRow(host, row.op[:80], min(row.size_bytes, 2**62), ranks, row.busbw_gb_s)
            for row in measured
        ]
    return rows
