"""Uses an audit of the log's hosts (`--run RUN`): its findings become evidence, and its facts are
added to those of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from unhang.core.run.run_folder import LONGEST_DOCUMENT, find_run
from unhang.core.strict_json import parse_strictly, read_bounded, value_at
from unhang.core.text import listed, visible
from unhang.jobs.diagnose.logs.line_prefixes import Prefix
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.matching.signatures import Signature
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence

if TYPE_CHECKING:
    from unhang.core.run.record import Findings

_LEVELS = {"critical": "strong", "error": "strong", "warning": "supporting", "info": "weak"}


def read_findings(run: str) -> tuple[Path, Findings]:
    """(findings.json, its content) of a run. Raises UserError if it is missing or no findings
    document."""
    from unhang.core.run.record import FINDINGS, read_findings_record

    folder = find_run(run)
    return folder / FINDINGS, read_findings_record(folder)


def audit_evidence(
    path: Path, findings: Findings, hosts: Sequence[str], causes: Mapping[str, Mapping[str, Any]]
) -> list[Evidence]:
    """Evidence from findings on the log's hosts. Findings on other hosts are not used."""
    by_rule = {rule: cause for cause, row in causes.items() for rule in row.get("rules", ())}
    known = {_bare(host) for host in hosts}
    failed = [one for one in findings.findings if one.verdict == "fail" and one.rule in by_rule]
    seen: dict[tuple[str, str], Evidence] = {}
    for one in failed:
        shared = [host for host in one.about() if _bare(host) in known]
        if not shared:
            continue
        cause = by_rule[one.rule]
        where = ", ".join(shared[:4])
        text = f"{where}: {one.title or one.rule}: {one.found}"[:400]
        event = Event(_signature(one.rule, text), str(path), 1, text, {}, Prefix(host=shared[0]))
        weight = WEIGHTS[_LEVELS.get(one.severity, "weak")]
        seen.setdefault(
            (cause, one.rule),
            Evidence(
                cause,
                weight,
                f"the audit found {one.rule} on {where}",
                (event,),
                f"audit:{one.rule}",
            ),
        )
    return list(seen.values())


def audited_hosts(run: Path, findings: Findings, hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """{host, findings: [rule], facts: {driver, kernel, gpus, nccl}} of those hosts of the log that
    the run has. Reads their node files."""
    known = (
        {_bare(unquote(path.stem)): path for path in sorted((run / "nodes").glob("*.json"))}
        if (run / "nodes").is_dir()
        else {}
    )
    by_host: dict[str, list[str]] = {}
    for one in findings.findings:
        for host in one.about() if one.verdict == "fail" else ():
            by_host.setdefault(_bare(host), []).append(one.rule)
    for host in hosts:
        bare = _bare(host)
        if bare in by_host or bare in known:
            yield {
                "host": host,
                "findings": sorted(set(by_host.get(bare, ()))),
                "facts": _node_facts(known.get(bare)),
            }


def not_audited(facts: Mapping[str, Any]) -> list[str]:
    """A line for people about hosts of the log that the run of --run does not have, whose findings
    cannot be evidence; [] without such, or without --run."""
    if "audited" not in facts:
        return []
    if not facts["hosts"]:
        return ["audit: the log names no host, so that no finding of the run counts"]
    known = [one["host"] for one in facts["audited"]]
    others = listed([visible(host, 60) for host in facts["hosts"] if host not in known], 12)
    if not known:
        return [
            f"audit: none of the log's hosts ({others}) is in the run, so that none of its findings"
            " counts"
        ]
    return [f"audit: not in the run: {others}"] if others else []


def _node_facts(path: Path | None) -> dict[str, Any] | None:
    """The few facts of a node that are compared with a log; None if its file cannot be read."""
    try:
        sections = (
            parse_strictly(read_bounded(path, LONGEST_DOCUMENT))["facts"]["sections"]
            if path
            else None
        )
        if not isinstance(sections, dict):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    devices = value_at(sections, ("gpus", "devices"))
    models = (
        [one.get("model") for one in devices if isinstance(one, dict)]
        if isinstance(devices, list)
        else []
    )
    return {
        "driver": value_at(sections, ("driver", "loaded", "version")),
        "kernel": value_at(sections, ("kernel", "release")),
        "fabric_manager": value_at(sections, ("fabric_manager", "running")),
        "gpus": dict(Counter(str(model) for model in models)) or None,
        "nccl": (
            [
                one.get("version")
                for one in value_at(sections, ("nccl", "libraries")) or []
                if isinstance(one, dict)
            ][:8]
            or None
        ),
    }


def _bare(host: str) -> str:
    """gpu001 from gpu001.cluster.example, because logs and inventories use both forms."""
    return host.split(".")[0].lower()


def _signature(rule: str, text: str) -> Signature:
    return Signature(rule, "fact", (b"audit",), "audit", text, "unhang audit", "any")
