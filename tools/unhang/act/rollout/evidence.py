"""Answers of roles and modules as evidence for the state machine. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NO_SCHEDULER = "none"
MOST_BANDWIDTHS = 16  # rows in one entry, because an entry of the journal is one line


def drain_evidence(
    result: Mapping[str, Any], adapter: str, step: str, beside_jobs: bool = False
) -> dict[str, Any]:
    """Evidence from the fact drain_result after this step (drain, wait, release). Without a
    scheduler there is nothing to drain: a node without a job on its GPUs is free."""
    jobs = None if result.get("jobs") is None else [_job(one) for one in result["jobs"]]
    ends = [str(one.get("ends") or "") for one in result.get("jobs") or ()]
    waited_for = {"jobs": [] if beside_jobs else jobs, "ends": ends, "at": result.get("at")}
    if step == "wait":
        return {**waited_for, "beside": jobs if beside_jobs else []}
    if adapter == NO_SCHEDULER:
        return {
            "drained": step == "drain",
            "owned": step == "drain",
            "by": "",
            "reason": "there is no scheduler",
            **waited_for,
            "scheduler": adapter,
        }
    drained, owned = bool(result.get("drained")), bool(result.get("owned"))
    by, reason = str(result.get("by") or ""), str(result.get("reason") or "")
    by_others = (
        f"drained by {by or 'somebody'}: {reason}"
        if step == "release" and drained and not owned
        else ""
    )
    return {
        "drained": drained,
        "owned": owned,
        "by": by,
        "reason": reason,
        **waited_for,
        "drained_by_others": by_others,
    }


def _job(job: Mapping[str, Any]) -> str:
    """A job with its owner, as people look for it."""
    return f"{job.get('id')}{f' of {owner}' if (owner := job.get('user')) else ''}"


def smoke_evidence(result: Mapping[str, Any], host: str, asked: bool) -> dict[str, Any]:
    """Evidence from a smoke test's result (unhang/smoke/1) for one of its hosts. asked: False if
    the operator disabled the test, which the journal records."""
    if not asked:
        return {"healthy": True, "skipped": "unhang_smoke is false"}
    verdict = str(result.get("verdict") or "no result")
    hosts = [str(row.get("host")) for row in result.get("hosts") or ()]
    if verdict == "pass":
        proof = {"healthy": host in hosts, "with": [one for one in hosts if one != host]}
        return proof | _bandwidth(result)
    suspects = [f"{one.get('host')}: {one.get('why')}" for one in result.get("suspects") or ()]
    return {
        "healthy": False,
        "why": (
            f"the smoke test of {', '.join(hosts) or host}: {verdict};"
            f" {'; '.join(suspects[:3]) or 'nobody is suspected'}"
        ),
    }


def _bandwidth(result: Mapping[str, Any]) -> dict[str, Any]:
    rows = result.get("bandwidth") or _largest_measured(result.get("collectives") or ())
    measured = [{key: row[key] for key in ("op", "size_bytes", "busbw_gb_s")} for row in rows]
    return {"bandwidth": measured[:MOST_BANDWIDTHS]} if measured else {}


def _largest_measured(collectives: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The largest message of each operation whose bandwidth was measured, if there is no
    expectation to judge it by. With one rank nothing is sent."""
    largest: dict[str, Mapping[str, Any]] = {}
    for row in collectives:
        if (
            row.get("measures") == "bandwidth"
            and row["busbw_gb_s"] > 0
            and row["size_bytes"] > largest.get(row["op"], {"size_bytes": 0})["size_bytes"]
        ):
            largest[row["op"]] = row
    return list(largest.values())


def groups_of_kinds(asked: Mapping[str, Mapping[str, Any]], step: str) -> list[list[str]]:
    """The hosts that do this step now, one list for each kind: nodes with different GPUs or images
    do not train together. asked: {host: {order, kind}}."""
    kinds: dict[str, list[str]] = {}
    for host, one in asked.items():
        if (one.get("order") or {}).get("step") == step:
            kinds.setdefault(str(one.get("kind")), []).append(host)
    return list(kinds.values())


def rest_of(group: Sequence[str], result: Mapping[str, Any]) -> list[str]:
    """The nodes of a failed group to test once more: if there are suspects, all others."""
    named = {str(one.get("host")) for one in result.get("suspects") or ()}
    if result.get("verdict") != "fail" or not named & set(group):
        return []
    return [host for host in group if host not in named]


def first_state(states: Iterable[Mapping[str, Any]], run: str) -> str:
    """Id of this run's oldest saved state that was not rolled back; "" if it has saved none.
    states: oldest first, as saved_state lists them."""
    return next(
        (
            str(one["id"])
            for one in states
            if one.get("run") == run and one.get("status") != "rolled_back"
        ),
        "",
    )
