"""Whether a node may join a cluster: pass, fail, or not proved, from findings and smoke tests.
Values in, values out.

Only the verdict `fail` makes a node fail; `unknown`, `skip` and `waived` do not. But a node that
could not be examined, or for which nothing could be proved, does not pass either: its outcome is
`not proved`: a node that failed because a fact could not be read would send somebody after a fault
that nobody has seen. To Ansible the three are ok, failed and unreachable, so that a program can
open a ticket on the playbook's exit code 2 and try again on 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.act.gate.peers import PeerDifference, is_drift, peer_difference
from unhang.core.run.findings import NOT_A_GPU_NODE

PASS, FAIL, NOT_PROVED = "pass", "fail", "not proved"
# rules about nodes that the audit could not read
NOT_READ = (
    "node-unreachable",
    "node-timeout",
    "node-failed",
    "node-answer-invalid",
    "node-missing",
)
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Observation:
    """audit: findings document, None if nothing could be judged. alone: results of the hosts' own
    smoke tests, by host. together: of the group's, None if there was none. reference: a node that
    is known to be good, or None. severities: of findings with which a node fails. quick: only the
    audit was requested, without smoke tests."""

    audit: Result | None
    alone: Mapping[str, Result]
    together: Result | None
    reference: str | None
    severities: Sequence[str]
    quick: bool = False

    @property
    def findings(self) -> Sequence[Result]:
        return (self.audit or {}).get("findings") or ()

    @property
    def group(self) -> set[str]:
        """The hosts that were tested together."""
        return {row["host"] for row in (self.together or {}).get("hosts") or ()}


def fit_for_the_group(
    hosts: Sequence[str], alone: Mapping[str, Result], reference: str | None
) -> list[str]:
    """The hosts to test together: the reference first, then those that passed alone, because one
    bad node would hide the others. [] if such a test could prove nothing."""
    able = [host for host in hosts if _passed(host, alone)]
    if reference is not None and reference not in able:
        return []
    order = ([reference] if reference is not None else []) + [
        host for host in able if host != reference
    ]
    return order if len(order) > 1 else []


def decide(hosts: Sequence[str], observed: Observation) -> dict[str, dict[str, Any]]:
    """{host: {outcome, reasons, differences}}. Reasons are one line each; differences are those
    from its peers, of any severity."""
    ill = _ill_reference(observed)
    faulty = {host for host in _compared(observed) if _own_failures(host, observed)}
    differences = {host: differences_of(host, observed, faulty) for host in hosts}
    return {
        host: {
            **_decide(host, observed, differences[host], ill, len(hosts)),
            "differences": [one.row() for one in differences[host]],
        }
        for host in hosts
    }


def differences_of(
    host: str, observed: Observation, faulty: Collection[str]
) -> list[PeerDifference]:
    """The differences of a node from the reference, or from the healthy nodes of its group."""
    found = [
        peer_difference(finding, host, observed.reference, faulty) for finding in _drift(observed)
    ]
    return [one for one in found if one is not None]


def _drift(observed: Observation) -> list[Result]:
    return [
        finding
        for finding in observed.findings
        if finding.get("verdict") == "fail" and is_drift(finding)
    ]


def _compared(observed: Observation) -> set[str]:
    """All hosts that a drift finding compares."""
    return {
        host
        for finding in _drift(observed)
        for row in finding["comparison"]["counts"]
        for host in row["hosts"]
    }


def _ill_reference(observed: Observation) -> str | None:
    """The reason why the reference proves nothing for the others."""
    if observed.reference is None:
        return None
    reasons = [*_own_failures(observed.reference, observed), *_gaps(observed.reference, observed)]
    return (
        f"the reference {observed.reference} is not good itself ({reasons[0]}): nothing was proved"
        " together with it"
        if reasons
        else None
    )


def _decide(
    host: str,
    observed: Observation,
    differences: Sequence[PeerDifference],
    ill: str | None,
    count: int,
) -> dict[str, Any]:
    counted = [one for one in differences if one.severity in observed.severities]
    failures = _once(
        [
            *_own_failures(host, observed),
            *(f"audit: {one.line()}" for one in counted if one.decided),
        ]
    )
    gaps = _gaps(host, observed) + ([ill] if ill and host != observed.reference else [])
    if not ill:
        advice = (
            "" if observed.reference else "; name a node that is known to be good with --reference"
        )
        gaps += [f"audit: {one.line()}{advice}" for one in counted if not one.decided]
    if failures:
        return {"outcome": FAIL, "reasons": failures}
    if gaps:
        return {"outcome": NOT_PROVED, "reasons": gaps}
    return {
        "outcome": PASS,
        "reasons": (
            [] if count > 1 or observed.quick else ["alone: no other node was within the limit"]
        ),
    }


def _own_failures(host: str, observed: Observation) -> list[str]:
    """The reasons why this node fails, without its differences from others."""
    return _once([
        *([f"audit: {NOT_A_GPU_NODE}: no NVIDIA GPU on its PCI bus and no driver"] if host in ((observed.audit or {}).get("without_gpus") or ()) else []),  # noqa: E501
        *(f"audit: {finding['rule']}: {finding.get('title') or ''}".rstrip(": ") for finding in _failures_of(host, observed)  # noqa: E501
          if finding.get("severity") in observed.severities and finding["rule"] not in NOT_READ and not is_drift(finding)),  # noqa: E501
        *(f"alone: {suspect['why']}" for suspect in _suspects(observed.alone.get(host)) if not suspect.get("blind")),  # noqa: E501
        *(f"together: {suspect['why']}" for suspect in _suspects(observed.together) if not suspect.get("blind") and _meant(host, suspect, observed)),  # noqa: E501
    ])  # fmt: skip


def _gaps(host: str, observed: Observation) -> list[str]:
    """The parts that could not be examined, or that proved nothing."""
    gaps = [] if observed.audit is not None else ["audit: nothing could be judged"]
    gaps += [
        f"audit: {finding['rule']}: {finding.get('found') or ''}".rstrip(": ")
        for finding in _failures_of(host, observed)
        if finding["rule"] in NOT_READ
    ]
    if observed.quick:
        return _once([*gaps, *_unknown(host, observed)])
    alone = observed.alone.get(host)
    blind = [suspect["why"] for suspect in _suspects(alone) if suspect.get("blind")]
    if blind:
        gaps += [f"alone: {why}" for why in blind]
    elif alone is None or alone.get("verdict") == "error":
        gaps.append("alone: the smoke test proved nothing")
    gaps += [
        f"together: {suspect['why']}"
        for suspect in _suspects(observed.together)
        if suspect.get("blind") and suspect["host"] == host
    ]
    if host in observed.group and (observed.together or {}).get("verdict") == "error" and not gaps:
        gaps.append("together: the smoke test proved nothing")
    return _once(gaps)


def _unknown(host: str, observed: Observation) -> list[str]:
    """Rules that could not be judged for this node and that no smoke test covers."""
    rows = [
        row
        for row in observed.findings
        if row.get("verdict") == "unknown" and row.get("host") == host
    ]
    return [
        f"audit: {row['rule']}: not judged: {row.get('found') or ''}".rstrip(": ")
        for row in rows
        if row.get("severity") in observed.severities
    ]


def _passed(host: str, results: Mapping[str, Result]) -> bool:
    return (results.get(host) or {}).get("verdict") == PASS


def _failures_of(host: str, observed: Observation) -> list[Result]:
    """Findings with the verdict fail that name this host."""
    return [
        row
        for row in observed.findings
        if row.get("verdict") == "fail"
        and (row.get("host") == host or host in (row.get("hosts") or []))
    ]


def _suspects(result: Result | None) -> list[Result]:
    return list((result or {}).get("suspects") or [])


def _meant(host: str, suspect: Result, observed: Observation) -> bool:
    """Whether a suspect of the group is this host, or one of its links. The reference is never one,
    because it is known to be good."""
    if suspect["host"] is not None:
        return bool(suspect["host"] == host)
    links = ((observed.together or {}).get("isolation") or {}).get("bad_links") or []
    group = {node for link in links for node in link} or observed.group
    return host in group and host != observed.reference


def _once(lines: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(lines))
