"""Findings for other programs: CSV, JUnit, SARIF. A findings document in, text out.

Text from nodes is escaped by `visible`, and a cell that a spreadsheet would read as a formula
begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unhang.audit.report import phrases
from unhang.audit.report.folding import item_label
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.junit import Case, Outcome, render_suite
from unhang.core.run.findings import NOT_A_GPU_NODE, blamed_hosts, hosts_of
from unhang.core.text import cell_for_csv, text_for_sarif, visible
from unhang.judge.rules.rules import SEVERITIES

COLUMNS = (
    "severity",
    "owner",
    "verdict",
    "host",
    "rule",
    "title",
    "where",
    "uuid",
    "serial",
    "pci_address",
    "expected",
    "found",
    "do",
    "run",
)
WHOLE_FLEET = "the whole fleet"  # test case of findings that name no node
SARIF_LEVELS = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def render_csv(findings: Mapping[str, Any]) -> str:
    """One row a finding and host."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    commands = {
        (rule, host): cause["command"]
        for cause in reversed(findings["causes"])
        for rule in (cause["rule"], *cause["explains"])
        for host in cause["nodes"]
    }
    devices: dict[str, list[Mapping[str, Any]]] = {}
    for row in (row for cause in findings["causes"] for row in cause["devices"]):
        devices.setdefault(row["host"], []).append(row)
    for one in findings["findings"]:
        for host in hosts_of(one) or ("",):
            device = [
                _device(devices, host, one.get("where") or {}).get(name) or ""
                for name in ("uuid", "serial", "pci_address")
            ]
            head = (
                one["severity"],
                one.get("owner", DEFAULT_OWNER),
                one["verdict"],
                host,
                one["rule"],
                one["title"],
                item_label(one.get("where")),
            )
            shown = (*head, *device, one["expected"], one["found"])
            command = commands.get((one["rule"], host), "") if one["verdict"] == "fail" else ""
            writer.writerow(
                [cell_for_csv(visible(value)) for value in (*shown, phrases.action(one), command)]
            )
    return out.getvalue()


def _device(
    devices: Mapping[str, Sequence[Mapping[str, Any]]], host: str, where: Mapping[str, Any]
) -> Mapping[str, Any]:
    """UUID, serial number and PCI address of the device of a finding, as far as any finding of the
    node says them."""
    names = {
        "gpu": where.get("index", where.get("gpu")),
        "uuid": where.get("uuid"),
        "pci_address": where.get("pci_address"),
    }
    for row in devices.get(host, ()):
        if any(value is not None and row.get(name) == value for name, value in names.items()):
            return row
    return names


def render_junit(findings: Mapping[str, Any], fail_on: str = "warning") -> str:
    """One test case a node. It fails at findings of the severity `fail_on` or above; lesser ones
    are its output. A node that was not read is an error where it counts as one, as in the exit
    code; one that is not a GPU node is skipped."""
    of_host: dict[str, list[Mapping[str, Any]]] = {}
    for one, blamed in zip(findings["findings"], blamed_hosts(findings), strict=True):
        for host in (
            blamed or ([] if hosts_of(one) else [WHOLE_FLEET]) if one["verdict"] == "fail" else ()
        ):
            of_host.setdefault(host, []).append(one)
    verdicts = findings["node_verdicts"]
    unread, no_gpu_node = set(verdicts["unread"]), set(verdicts.get(NOT_A_GPU_NODE, ()))
    counted = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    hosts = [host for among in verdicts.values() for host in among]
    cases = [
        _without_gpus(host, of_host.get(host, ()), findings)
        if host in no_gpu_node
        else _case(host, of_host.get(host, ()), counted, host in unread)
        for host in (*hosts, *([WHOLE_FLEET] if WHOLE_FLEET in of_host else []))
    ]
    return render_suite(
        "unhang", cases, {"judged_by": phrases.judged_by(findings), "fail_on": fail_on}
    )


def _without_gpus(
    host: str, found: Sequence[Mapping[str, Any]], findings: Mapping[str, Any]
) -> Case:
    why = phrases.applied_checks([host], findings)
    return Case(
        "unhang.node", host, Outcome("skipped", f"{NOT_A_GPU_NODE}: {why}", [], NOT_A_GPU_NODE),
        [_line(one) for one in found],
    )  # fmt: skip


def _case(
    host: str, found: Sequence[Mapping[str, Any]], counted: Sequence[str], unread: bool
) -> Case:
    """The test case of one node. counted: severities with which a node fails."""
    if unread:
        why = [_line(one) for one in found] or ["the node was not read"]
        return Case(
            "unhang.node",
            host,
            Outcome("error" if "error" in counted else "skipped", why[0], why, "unread"),
        )
    failed = sorted(
        (one for one in found if one["severity"] in counted),
        key=lambda one: SEVERITIES.index(one["severity"]),
    )
    lesser = [_line(one) for one in found if one["severity"] not in counted]
    if not failed:
        return Case("unhang.node", host, output=lesser)
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return Case(
        "unhang.node",
        host,
        Outcome(
            "failure",
            failed[0]["title"] + more,
            [_line(one) for one in failed],
            failed[0]["severity"],
        ),
        lesser,
    )


def _line(one: Mapping[str, Any]) -> str:
    return (
        f"{one['severity']} {one['rule']}: {one['title']}: the check found {one['found']},"
        f" and needs {one['expected']}; {phrases.action(one)}"
    )


def render_sarif(findings: Mapping[str, Any]) -> str:
    """One SARIF log: a result for each failure, its nodes as logical locations."""
    rules = sorted({(one["rule"], one["title"]) for one in findings["findings"]})
    driver = {
        "name": "unhang",
        "rules": [
            {"id": rule, "shortDescription": {"text": text_for_sarif(title)}}
            for rule, title in rules
        ],
    }
    by = phrases.judged_by(findings)
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "results": list(_results(findings)),
                "properties": {"judgedBy": by},
            }
        ],
    }
    return json.dumps(log, ensure_ascii=True, indent=1) + "\n"


def _results(findings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in findings["findings"]:
        if one["verdict"] == "fail":
            places = [{"name": visible(host, 1024), "kind": "resource"} for host in hosts_of(one)]
            text = (
                f"{visible(one['title'])}: the check found {visible(one['found'])},"
                f" and needs {visible(one['expected'])}; {phrases.action(one)}"
            )
            located = {"locations": [{"logicalLocations": places}]} if places else {}
            yield {
                "ruleId": one["rule"],
                "level": SARIF_LEVELS[one["severity"]],
                "message": {"text": text_for_sarif(text)},
                **located,
            }


RENDERERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "csv": render_csv,
    "junit": render_junit,
    "sarif": render_sarif,
}
