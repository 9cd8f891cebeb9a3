"""What health monitors wrote about a node, to verdicts. Values in, values out: every text is a
stranger's, and is cut and cleaned here.

Each parser takes a JSON value, and returns None unless it is a document of its monitor. A verdict
is {of, verdict, since, text}: of what, `ok`, `degraded` or `failed`, since when (RFC 3339, UTC; ""
where the monitor does not say) and the monitor's own words.

Sources of the formats: https://github.com/NVIDIA/DCGM (dcgmi/Health.cpp, dcgmi/DcgmiOutput.cpp,
nvvs), https://docs.nvidia.com/health-validation/reference/verdict-schema, the Kubernetes API
(NodeCondition), https://github.com/NVIDIA/NVSentinel (platform-connectors),
https://github.com/leptonai/gpud/blob/main/api/v1/types.go, https://slurm.schedmd.com/rest_api.html,
https://github.com/mej/nhc/blob/master/nhc
"""

from __future__ import annotations

import re
import time

from ...base.parse.values import as_map, as_maps, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Verdict = dict[str, str]
    Parser = Callable[[Any, frozenset[str]], "list[Verdict] | None"]

OF, TEXT = 128, 300  # characters
MOST_ROWS = 16  # of one document
OK, DEGRADED, FAILED = "ok", "degraded", "failed"
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)

HEALTH = {"Healthy": OK, "Warning": DEGRADED, "Failure": FAILED, "Internal error": DEGRADED}
DIAG = {"fail": FAILED, "warn": DEGRADED}
SEVERITY = {"PASS": OK, "INFO": OK, "WARNING": DEGRADED, "CRITICAL": FAILED, "UNKNOWN": DEGRADED}
GPUD = {"Healthy": OK, "Initializing": OK, "Degraded": DEGRADED, "Unhealthy": FAILED}
# Node conditions that are good news while True; every other one reports a problem then, but that
# of a control plane's member, and this program's own.
GOOD_WHEN_TRUE = re.compile(r"(?<!Not)(Ready|Healthy)\Z")
NO_VERDICT = ("EtcdIsVoter", "UnhangProblem")
# Conditions after which no job may be expected to run, whoever set them.
FATAL_CONDITIONS = ("KernelDeadlock", "ReadonlyFilesystem")
SLURM_FAILED = frozenset(("DOWN", "FAIL", "FAILING", "ERROR"))
OWN_REASON = "unhang"  # a drain of this program's own plan is no other monitor's verdict

NHC_FAILURE = re.compile(r"Health check failed:\s+(.*)")
NHC_PASS = ("Node Health Check completed successfully", "/node-mark-online ")


def verdict(of: object, word: str, text: object = "", since: object = "") -> Verdict:
    """One row, with texts cut and cleaned."""
    return {
        "of": clean(str(of), OF) or "node",
        "verdict": word,
        "since": str(since)[:19] + "Z" if RFC3339.match(str(since)) else "",
        "text": clean(str(text), TEXT),
    }


def parse_dcgm_health(found: Any, _names: frozenset[str]) -> list[Verdict] | None:
    """`dcgmi health -c -j`."""
    body = as_map(as_map(found).get("body"))
    overall = as_map(body.get("Overall Health")).get("value")
    if not isinstance(overall, str):
        return None
    word = HEALTH.get(overall, DEGRADED)
    rows = [] if word == OK else list(_dcgm_systems(body))
    return rows or [verdict("node", word, overall)]


def _dcgm_systems(body: dict[str, Any]) -> Iterator[Verdict]:
    for group, entities in body.items():
        for number, entity in _children(entities):
            for _errors, errors in _children(entity):
                for system, row in _children(errors):
                    word = HEALTH.get(str(row.get("value")), DEGRADED)
                    if word != OK:
                        text = " ".join(_texts(row.get("overflow"))) or row.get("value")
                        yield verdict(f"{group} {number}: {system}", word, text)


def parse_dcgm_diag(found: Any, _names: frozenset[str]) -> list[Verdict] | None:
    """`dcgmi diag -r N -j`, of DCGM 2 to 4."""
    top = as_map(found)
    top = as_map(top.get("DCGM Diagnostic", top.get("DCGM GPU Diagnostic")))
    if not top:
        return None
    rows = [
        verdict(
            f"{test.get('name')} on {_dcgm_entity(result)}",
            DIAG[str(result.get("status")).lower()],
            " ".join(_texts(result.get("warnings"))),
        )
        for category in as_maps(top.get("test_categories"))
        for test in as_maps(category.get("tests"))
        for result in as_maps(test.get("results"))
        if str(result.get("status")).lower() in DIAG
    ]
    if top.get("runtime_error"):
        rows.append(verdict("the diagnostic itself", DEGRADED, top["runtime_error"]))
    return rows or [verdict("node", OK if as_maps(top.get("test_categories")) else DEGRADED)]


def _dcgm_entity(result: dict[str, Any]) -> str:
    for key in ("gpu_ids", "gpu_id"):
        if key in result:
            return f"GPU {result[key]}"
    return f"{result.get('entity_group', 'GPU')} {result.get('entity_id', 'unknown')}"


def parse_health_validation(found: Any, _names: frozenset[str]) -> list[Verdict] | None:
    """The verdict of NVIDIA Health Validation."""
    overall = as_map(found).get("overall_severity")
    if not isinstance(overall, str):
        return None
    word = SEVERITY.get(overall.upper(), DEGRADED)
    rows = [
        verdict(
            f"{row.get('category')} {' '.join(_texts(row.get('entities')))}",
            SEVERITY.get(str(row.get("max_severity")).upper(), DEGRADED),
            " ".join(_texts(row.get("check_ids"))),
        )
        for row in as_maps(found.get("affected_components"))
    ]
    return (
        [row for row in rows if row["verdict"] != OK]
        if word != OK and rows
        else [verdict("node", word, overall)]
    )


def parse_kubernetes(found: Any, names: frozenset[str]) -> list[Verdict] | None:
    """`kubectl get node -o json`, also of all nodes: the conditions of that node which has one of
    `names` (host name, machine id), the first without names, and the GPUs that no pod may have."""
    top = as_map(found)
    nodes = [row for row in [top, *as_maps(top.get("items"))] if row.get("kind") == "Node"]
    if not nodes:
        return None
    node = next((row for row in nodes if _names_of(row) & names or not names), None)
    if node is None:
        raise ValueError("none of its nodes has this node's machine id or name")
    status = as_map(node.get("status"))
    most, left = (as_map(status.get(one)) for one in ("capacity", "allocatable"))
    rows = [
        verdict(
            row.get("type"),
            word,
            f"{row.get('status')}, {row.get('reason')}: {row.get('message')}",
            row.get("lastTransitionTime"),
        )
        for row in as_maps(status.get("conditions"))
        for word in [condition_verdict(row)]
        if word != OK
    ]
    rows += [
        verdict(name, DEGRADED, f"{left[name]} of {most[name]} allocatable")
        for name in most
        if name.startswith("nvidia.com/") and left.get(name, most[name]) != most[name]
    ]
    return rows or [verdict("node", OK)]


def _names_of(node: dict[str, Any]) -> frozenset[str]:
    metadata, status = as_map(node.get("metadata")), as_map(node.get("status"))
    return _distinct_names(
        metadata.get("name"),
        as_map(metadata.get("labels")).get("kubernetes.io/hostname"),
        as_map(status.get("nodeInfo")).get("machineID"),
    )


def _distinct_names(*names: object) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str) and name)


def condition_verdict(row: dict[str, Any]) -> str:
    """What a node condition says: NVSentinel's checks and node-problem-detector's problems are True
    while something is wrong, Ready and conditions named like it while nothing is."""
    kind, status = str(row.get("type")), row.get("status")
    if kind in NO_VERDICT:
        return OK
    if GOOD_WHEN_TRUE.search(kind):
        return OK if status == "True" else FAILED
    if status != "True":
        return OK
    fatal = kind in FATAL_CONDITIONS or str(row.get("reason")).endswith("IsNotHealthy")
    return FAILED if fatal else DEGRADED


def parse_gpud(found: Any, _names: frozenset[str]) -> list[Verdict] | None:
    """The answer of gpud's /v1/states."""
    components = [row for row in as_maps(found) if isinstance(row.get("states"), list)]
    if not components:
        return None
    rows = [
        verdict(
            component.get("component"),
            GPUD.get(str(state.get("health")), DEGRADED),
            state.get("reason"),
            state.get("time"),
        )
        for component in components
        for state in as_maps(component["states"])
    ]
    return [row for row in rows if row["verdict"] != OK] or [verdict("node", OK)]


def parse_slurm(found: Any, names: frozenset[str]) -> list[Verdict] | None:
    """`scontrol show node --json`: why this node is down or drained. A drain of unhang's own is no
    verdict of another."""
    nodes = [row for row in as_maps(as_map(found).get("nodes")) if "state" in row]
    if not nodes:
        return None
    node = next(
        (row for row in nodes if _distinct_names(row.get("name"), row.get("hostname")) & names),
        None,
    )
    if node is None:
        raise ValueError("none of its nodes has this node's name")
    # until Slurm 23.02 `state` was one text, and DRAIN one of the flags beside it
    words = _texts(node["state"]) + _texts(node.get("state_flags"))
    states, reason = frozenset(map(str.upper, words)), clean(str(node.get("reason") or ""), TEXT)
    out = bool(states & SLURM_FAILED)
    if reason.startswith(OWN_REASON) or not (out or "DRAIN" in states):
        return [verdict("node", OK)]
    word = FAILED if out or reason.startswith("NHC:") else DEGRADED
    return [verdict("+".join(sorted(states)), word, reason, _slurm_time(node))]


def _slurm_time(node: dict[str, Any]) -> str:
    """reason_changed_at, a number that newer releases wrap."""
    value = node.get("reason_changed_at")
    value = as_map(value).get("number", value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 33:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value))


def parse_nhc(tail: str) -> list[Verdict]:
    """The end of LBNL NHC's log: what failed since a run last passed; [] for a log of neither."""
    rows: dict[str, Verdict] = {}
    passed = False
    for line in tail.splitlines():
        failure = NHC_FAILURE.search(line)
        if failure and "/node-mark-" not in line:
            check, colon, said = failure.group(1).partition(":")
            rows[check] = verdict(check if colon else "node", FAILED, said or check)
        elif not failure and any(mark in line for mark in NHC_PASS):
            rows, passed = {}, True
    return list(rows.values())[-MOST_ROWS:] or ([verdict("node", OK)] if passed else [])


# name of the monitor, and the parser of what it leaves as JSON
DOCUMENTS: tuple[tuple[str, Parser], ...] = (
    ("dcgm-health", parse_dcgm_health),
    ("dcgm-diag", parse_dcgm_diag),
    ("nvidia-health-validation", parse_health_validation),
    ("kubernetes", parse_kubernetes),
    ("gpud", parse_gpud),
    ("slurm", parse_slurm),
)


def parse_document(found: Any, names: frozenset[str]) -> tuple[str, list[Verdict]]:
    """(monitor, its verdicts, the worst first) of a JSON value, recognised by its shape. Raises
    ValueError for a document of none, or of another node."""
    for source, parse in DOCUMENTS:
        rows = parse(found, names)
        if rows is not None:
            order = (FAILED, DEGRADED, OK)
            rows.sort(key=lambda row: order.index(row["verdict"]))
            return source, rows[:MOST_ROWS]
    raise ValueError("no document of " + ", ".join(source for source, _ in DOCUMENTS))


def _children(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in as_map(as_map(value).get("children")).items():
        yield name, as_map(child)


def _texts(value: Any) -> list[str]:
    """The texts of a list, also of objects that wrap one; [] for anything else, one for a text."""
    if isinstance(value, str):
        return [value]
    rows = value if isinstance(value, list) else []
    unwrapped = (
        row.get("warning", row.get("value")) if isinstance(row, dict) else row for row in rows
    )
    return [row for row in unwrapped if isinstance(row, str)]
