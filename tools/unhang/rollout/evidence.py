"""What roles and modules answered, as evidence for the state machine. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NO_SCHEDULER = "none"
MOST_BANDWIDTHS = 16  # an entry of the journal is a line


def drain_evidence(result: Mapping[str, Any], adapter: str, step: str, beside_jobs: bool = False) -> dict[str, Any]:
    """Of the fact drain_result after this step (drain, wait, release). Without a scheduler there is nothing to drain: who has no job on its GPUs is free."""
    jobs = None if result.get("jobs") is None else [str(one.get("id")) for one in result["jobs"]]
    if step == "wait":
        return {"jobs": [] if beside_jobs else jobs, "beside": jobs if beside_jobs else []}
    if adapter == NO_SCHEDULER:
        return {"drained": step == "drain", "owned": step == "drain", "by": "", "reason": "there is no scheduler", "jobs": jobs}
    drained, owned = bool(result.get("drained")), bool(result.get("owned"))
    by, reason = str(result.get("by") or ""), str(result.get("reason") or "")
    held = f"drained by {by or 'somebody'}: {reason}" if step == "release" and drained and not owned else ""
    return {"drained": drained, "owned": owned, "by": by, "reason": reason, "jobs": jobs, "held": held}


def smoke_evidence(result: Mapping[str, Any], host: str, asked: bool) -> dict[str, Any]:
    """Of a smoke test's result (unhang/smoke/1) for one of its hosts. asked: False where the operator wants none, which the journal then says."""
    if not asked:
        return {"healthy": True, "skipped": "unhang_smoke is false"}
    verdict = str(result.get("verdict") or "no result")
    hosts = [str(row.get("host")) for row in result.get("hosts") or ()]
    if verdict == "pass":
        proof = {"healthy": host in hosts, "with": [one for one in hosts if one != host]}
        return proof | _bandwidth(result)
    suspects = [f"{one.get('host')}: {one.get('why')}" for one in result.get("suspects") or ()]
    return {"healthy": False, "why": f"the smoke test of {', '.join(hosts) or host}: {verdict}; {'; '.join(suspects[:3]) or 'nobody is named'}"}


def before_evidence(result: Mapping[str, Any], host: str, asked: bool) -> dict[str, Any]:
    """Of the smoke test of a node as it was found: never a verdict on the rollout, so what was measured stands even where the test did not pass."""
    if not asked:
        return {"skipped": "it was not asked for"}
    return {key: value for key, value in smoke_evidence(result, host, True).items() if key != "with"} | _bandwidth(result)


def _bandwidth(result: Mapping[str, Any]) -> dict[str, Any]:
    rows = result.get("bandwidth") or _largest_measured(result.get("collectives") or ())
    measured = [{key: row[key] for key in ("op", "size_bytes", "busbw_gb_s")} for row in rows]
    return {"bandwidth": measured[:MOST_BANDWIDTHS]} if measured else {}


def _largest_measured(collectives: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each operation the largest message whose bandwidth was measured, where nothing is known that it could be judged by. One rank sends nothing."""
    largest: dict[str, Mapping[str, Any]] = {}
    for row in collectives:
        if row.get("measures") == "bandwidth" and row["busbw_gb_s"] > 0 and row["size_bytes"] > largest.get(row["op"], {"size_bytes": 0})["size_bytes"]:
            largest[row["op"]] = row
    return list(largest.values())


def groups_of_kinds(asked: Mapping[str, Mapping[str, Any]], step: str) -> list[list[str]]:
    """Who does this step now, one list for each kind: different GPUs or images are no group that trains together. asked: {host: {order, kind}}."""
    kinds: dict[str, list[str]] = {}
    for host, one in asked.items():
        if (one.get("order") or {}).get("step") == step:
            kinds.setdefault(str(one.get("kind")), []).append(host)
    return list(kinds.values())


def rest_of(group: Sequence[str], result: Mapping[str, Any]) -> list[str]:
    """Who of a group that failed is tried once more: those that were not named, where somebody was."""
    named = {str(one.get("host")) for one in result.get("suspects") or ()}
    if result.get("verdict") != "fail" or not named & set(group):
        return []
    return [host for host in group if host not in named]


def first_state(states: Iterable[Mapping[str, Any]], run: str) -> str:
    """Id of the oldest saved state of this run that stands; "" when it has saved nothing. states: oldest first, as saved_state lists them."""
    return next((str(one["id"]) for one in states if one.get("run") == run and one.get("status") != "rolled_back"), "")
