"""Reads findings.json as plain values, for whoever shows it: secrets are masked, and equal parts
are kept once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from unhang.core.errors import UserError
from unhang.core.secrets_in_text import masked_document
from unhang.core.strict_json import read_bounded
from unhang.core.text import visible

_Severity = Literal["critical", "error", "warning", "info"]
SEVERITIES: tuple[str, ...] = get_args(_Severity)
NOT_A_GPU_NODE = "not a GPU node"  # no NVIDIA GPU and no driver: nothing to call healthy
PARTLY_READ = "partly read"  # by an older collector, and nothing above info in what it read
# rules of the policy's waivers: to correct one repairs no node
OF_POLICY = ("waiver-expired", "waiver-of-unknown-rule")
DISPUTED = ". Sources disagree: "  # what follows is for `report -v` and `explain`
BLAMELESS = (NOT_A_GPU_NODE, PARTLY_READ, "healthy")  # nothing above info was found on the node
SIZE_LIMIT_BYTES = 512 * 1024 * 1024
MOST_SHARED = 4096  # parts of findings that are remembered, to be kept once

_Kind = TypeVar("_Kind")


class Unreadable(UserError):
    """A run folder without a possible report; the text has what was found, where, and what to
    do."""


class _NodeVerdicts(
    msgspec.Struct,
    rename={"not_a_gpu_node": NOT_A_GPU_NODE, "partly_read": PARTLY_READ},
    forbid_unknown_fields=True,
):
    critical: list[str]
    error: list[str]
    warning: list[str]
    unread: list[str]
    not_a_gpu_node: list[str]
    healthy: list[str]
    partly_read: list[str] = []


NODE_VERDICTS = _NodeVerdicts.__struct_encode_fields__


class _Remedy(msgspec.Struct):
    role: str | None = None


class _Cause(msgspec.Struct):
    rule: str
    severity: _Severity
    title: str
    nodes: list[str]
    findings: list[int]
    remedy: _Remedy
    unread: bool = False


class _Planned(msgspec.Struct):
    rule: str
    severity: _Severity
    verdict: Literal["fail", "unknown", "waived"]


class _Shown(_Planned):
    title: str
    expected: str
    found: str


class _Catalogue(msgspec.Struct):
    rules: int = 0


class _Run(msgspec.Struct):
    id: str = ""
    started: str | None = None


class _Findings(msgspec.Struct, Generic[_Kind]):
    causes: list[_Cause]
    findings: list[_Kind]
    node_verdicts: _NodeVerdicts
    host_count: int = 0
    totals_by_rule: dict[str, dict[str, int]] = {}
    totals_by_severity: dict[str, int] = {}
    totals: dict[str, int] = {}
    nodes: dict[str, int] = {}
    catalogue: _Catalogue | None = None
    run: _Run | None = None


def read_findings(run_dir: Path, beside: Path | None = None, fields: Any = Any) -> dict[str, Any]:
    """The object of findings.json, or of another judgement's file `beside` it, to be shown: secrets
    are masked. fields: a type with the wanted fields, for the plan, which needs the texts as they
    are."""
    path = beside or run_dir / "findings.json"
    if not run_dir.is_dir():
        raise Unreadable(
            f"{run_dir} is {'a file, not a run folder' if run_dir.exists() else 'not there'}; make"
            " one with: unhang audit"
        )
    if not path.is_file():
        raise Unreadable(f"what the judge found is not at {path}; next: unhang judge {run_dir}")
    found = read_json(path, fields) if fields is not Any else _read_shown(path)
    if not isinstance(found, dict) or found.get("schema") != "unhang/findings/1":
        schema = found.get("schema") if isinstance(found, dict) else type(found).__name__
        raise Unreadable(
            f"{path} is of schema {visible(schema, 80)!r}, not of unhang/findings/1; next: unhang"
            f" judge {run_dir}"
        )
    if "causes" not in found:
        raise Unreadable(
            f"{path} has no causes: an older unhang judged this run; next: unhang judge {run_dir}"
        )
    _check_shape(found, _Shown if fields is Any else _Planned, path, run_dir)
    return found


def hosts_of(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """The hosts of a finding: all hosts of a group's or fleet's finding, the host of a node's."""
    named = finding.get("hosts")
    if named:
        return tuple(str(host) for host in named)
    return (str(finding["host"]),) if finding.get("host") is not None else ()


def blamed_hosts(findings: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The hosts to which each finding of findings.json counts, in its order: of a comparison not
    the blameless ones, which only the fault of another node sets apart."""
    blameless = blameless_hosts(findings.get("node_verdicts") or {})
    kept = (() if one["severity"] == SEVERITIES[-1] else blameless for one in findings["findings"])
    return [
        tuple(host for host in hosts_of(one) if host not in spared)
        for one, spared in zip(findings["findings"], kept, strict=True)
    ]


def blameless_hosts(node_verdicts: Mapping[str, list[str]]) -> frozenset[str]:
    """Hosts on which nothing above info was found, healthy or without GPUs."""
    return frozenset(host for one in BLAMELESS for host in node_verdicts.get(one, ()))


def _check_shape(found: dict[str, Any], kind: type, path: Path, run_dir: Path) -> None:
    """Raises Unreadable if what every report or plan reads is missing, of another type or of an
    unknown value: a run may be of somebody else. kind: of a finding."""
    try:
        msgspec.convert(found, _Findings[kind])  # type: ignore[valid-type]
    except msgspec.ValidationError as problem:
        raise Unreadable(
            f"{path} is not what the judge writes: {visible(str(problem), 200)}; next: unhang judge"
            f" {run_dir}"
        ) from None


def read_json(path: Path, fields: Any = Any) -> Any:
    with _unreadable(path):
        data = read_bounded(path, SIZE_LIMIT_BYTES)
        with suppress(msgspec.ValidationError):  # the reader of the value reports another type
            return msgspec.json.decode(data, type=fields)
        return msgspec.json.decode(data)


def read_run(run_dir: Path) -> dict[str, Any]:
    """The object of run.json, {} if it cannot be read, because a report is useful without it."""
    try:
        found = read_json(run_dir / "run.json")
    except Unreadable:
        return {}
    return found if isinstance(found, dict) else {}


def _read_shown(path: Path) -> Any:
    """A document of findings with its secrets masked. Findings of a rule differ in little but their
    host: equal parts are read, masked and kept once, so that those of ten thousand nodes fit in
    memory."""
    with _unreadable(path):
        data = read_bounded(path, SIZE_LIMIT_BYTES)
        try:
            parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            findings = msgspec.json.decode(
                parts.pop("findings", b"[]"), type=list[dict[str, msgspec.Raw]]
            )
        except msgspec.ValidationError:  # _check_shape says what is of another type
            return masked_document(msgspec.json.decode(data))
        part = lru_cache(MOST_SHARED)(_masked_part)
        head = {key: _masked_part(key, bytes(one)) for key, one in parts.items()}
        return head | {
            "findings": [
                {key: part(key, bytes(one)) for key, one in finding.items()} for finding in findings
            ]
        }


def _masked_part(key: str, data: bytes) -> Any:
    return masked_document({key: msgspec.json.decode(data)})[key]


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not JSON: {visible(str(error), 200)}") from None
