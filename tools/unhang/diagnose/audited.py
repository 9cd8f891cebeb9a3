"""What an audit knows about the hosts of a log: its findings become evidence, its facts stand beside what the log tells (`--run RUN`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.scanning import Event
from unhang.diagnose.signatures import Signature
from unhang.diagnose.stamps import Prefix
from unhang.diagnose.weights import WEIGHTS
from unhang.errors import UserError
from unhang.run_folder import find_run

_LEVELS = {"critical": "strong", "error": "strong", "warning": "supporting", "info": "weak"}


def read_findings(run: str) -> tuple[Path, dict[str, Any]]:
    """(findings.json, its content) of a run. Raises UserError when it is not there or no findings document."""
    path = find_run(run, Path("runs")) / "findings.json"
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: not there; next: unhang judge {run}") from None
    except (OSError, ValueError) as problem:
        raise UserError(f"{path}: cannot be read: {problem}") from None
    if not isinstance(content, dict) or not isinstance(content.get("findings"), list):
        raise UserError(f"{path}: expected a findings document, found something else; next: unhang judge {run}")
    return path, content


def audit_evidence(path: Path, findings: Mapping[str, Any], hosts: Sequence[str], causes: Mapping[str, Mapping[str, Any]]) -> list[Evidence]:
    """Evidence of the findings on the log's hosts; when the log names none of the run's hosts, of all of them at half weight."""
    by_rule = {rule: cause for cause, row in causes.items() for rule in row.get("rules", ())}
    known = {_bare(host) for host in hosts}
    failed = [one for one in findings["findings"] if isinstance(one, Mapping) and one.get("verdict") == "fail" and one.get("rule") in by_rule]
    shared = [one for one in failed if known & set(map(_bare, _hosts(one)))]
    factor = 1.0 if shared else 0.5
    chosen = shared or ([] if known and _names_any(findings, known) else failed)
    seen: dict[tuple[str, str], Evidence] = {}
    for one in chosen:
        cause = by_rule[one["rule"]]
        where = ", ".join(_hosts(one)[:4])
        text = f"{where}: {one.get('title', one['rule'])}: {one.get('found', '')}"[:400]
        event = Event(_signature(str(one["rule"]), text), str(path), 1, text, {}, Prefix(host=next(iter(_hosts(one)), None)))
        weight = WEIGHTS[_LEVELS.get(str(one.get("severity")), "weak")] * factor
        seen.setdefault((cause, one["rule"]), Evidence(cause, weight, f"the audit found {one['rule']} on {where}", (event,), f"audit:{one['rule']}"))
    return list(seen.values())


def _names_any(findings: Mapping[str, Any], known: set[str]) -> bool:
    return any(known & set(map(_bare, _hosts(one))) for one in findings["findings"] if isinstance(one, Mapping))


def audited_hosts(findings: Mapping[str, Any], hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """{host, findings: [rule]} of the log's hosts that the run knows."""
    by_host: dict[str, list[str]] = {}
    for one in findings["findings"]:
        if isinstance(one, Mapping) and one.get("verdict") == "fail":
            for host in _hosts(one):
                by_host.setdefault(_bare(host), []).append(str(one.get("rule")))
    for host in hosts:
        if _bare(host) in by_host:
            yield {"host": host, "findings": sorted(set(by_host[_bare(host)]))}


def _hosts(finding: Mapping[str, Any]) -> list[str]:
    hosts = finding.get("hosts") or ([finding["host"]] if finding.get("host") else [])
    return [str(host) for host in hosts]


def _bare(host: str) -> str:
    """gpu001 of gpu001.cluster.example: logs and inventories write it either way."""
    return host.split(".")[0].lower()


def _signature(rule: str, text: str) -> Signature:
    import re

    return Signature(rule, "fact", (b"audit",), re.compile("audit"), text, "unhang audit", "any")
