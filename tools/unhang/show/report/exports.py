"""Findings for other programs: names of nodes, CSV, JSON lines, Markdown, JUnit, SARIF. A findings document in, text out.

Text from nodes is escaped by `visible`, and a cell that a spreadsheet would read as a formula begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

import msgspec

from unhang.base.nodeset import fold_hosts
from unhang.base.text import visible
from unhang.show.report import phrases
from unhang.show.report.folding import hosts_of, item_label

COLUMNS = ("severity", "verdict", "host", "rule", "title", "where", "expected", "found", "do", "run")
SARIF_LEVELS = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_names(findings: Mapping[str, Any]) -> str:
    """Every node that has a cause, one a line, for programs that read names of hosts."""
    named = {host for cause in findings["causes"] for host in cause["nodes"]}
    ordered = [host for hosts in findings["node_verdicts"].values() for host in hosts]
    return "".join(f"{visible(host, 1024)}\n" for host in ordered if host in named)


def render_csv(findings: Mapping[str, Any]) -> str:
    """One row a finding and host."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    commands = {
        (rule, host): cause["command"] for cause in reversed(findings["causes"]) for rule in (cause["rule"], *cause["explains"]) for host in cause["nodes"]
    }
    for one in findings["findings"]:
        for host in hosts_of(one) or ("",):
            shown = (one["severity"], one["verdict"], host, one["rule"], one["title"], item_label(one.get("where")), one["expected"], one["found"])
            command = commands.get((one["rule"], host), "") if one["verdict"] == "fail" else ""
            writer.writerow([_cell(visible(value)) for value in (*shown, phrases.action(one), command)])
    return out.getvalue()


def _commands(findings: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """(rule, host) -> the command of the most severe cause that explains it."""
    found: dict[tuple[str, str], str] = {}
    for cause in findings["causes"]:
        for rule in (cause["rule"], *cause["explains"]):
            for host in cause["nodes"]:
                found.setdefault((rule, host), cause["command"])
    return found


def _cell(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def render_jsonl(findings: Mapping[str, Any]) -> str:
    """One JSON object a line: each finding of findings.json, with the ids of its causes."""
    of_finding: dict[int, list[str]] = {}
    for cause in findings["causes"]:
        for place in cause["findings"]:
            of_finding.setdefault(place, []).append(cause["id"])
    rows = ({**one, "causes": of_finding.get(place, [])} for place, one in enumerate(findings["findings"]))
    return "".join(json.dumps(msgspec.to_builtins(row), ensure_ascii=True, separators=(",", ":")) + "\n" for row in rows)


def render_markdown(findings: Mapping[str, Any]) -> str:
    """Causes as a table for an issue or a chat."""
    counts = ", ".join(f"{len(hosts):,} {verdict}" for verdict, hosts in findings["node_verdicts"].items() if hosts)
    lines = [
        f"Nodes: {counts or 'none'}; {_plain(phrases.judged_by(findings))}",
        "",
        "| severity | nodes | cause | do | command |",
        "| --- | --- | --- | --- | --- |",
    ]
    for cause in findings["causes"]:
        title = f"{_plain(cause['title'])} ({_plain(cause['rule'])})"
        cells = (cause["severity"], _plain(fold_hosts(cause["nodes"])), title, _plain(phrases.cause_action(cause)), f"`{_code(cause['command'])}`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _plain(text: object) -> str:
    """Text with Markdown's special characters escaped."""
    shown = visible(text, 2000)
    for sign, plain in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"), ("[", "\\["), ("*", "\\*"), ("_", "\\_")):
        shown = shown.replace(sign, plain)
    return shown


def _code(text: object) -> str:
    """Text between backticks in a table."""
    return visible(text, 4000).replace("`", "'").replace("|", "\\|")


def render_junit(findings: Mapping[str, Any]) -> str:
    """One test case a node: a failure for each finding, an error for a node that was not read, because a skipped test case would look good."""
    of_host: dict[str, list[Mapping[str, Any]]] = {}
    for one in findings["findings"]:
        for host in hosts_of(one) if one["verdict"] == "fail" else ():
            of_host.setdefault(host, []).append(one)
    verdicts = findings["node_verdicts"]
    hosts = [host for among in verdicts.values() for host in among]
    unread = set(verdicts["unread"])
    suite = ElementTree.Element("testsuite", name="unhang", tests=str(len(hosts)))
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="judged_by", value=phrases.judged_by(findings))
    for host in hosts:
        case = ElementTree.SubElement(suite, "testcase", classname="unhang.node", name=visible(host, 1024))
        for one in of_host.get(host, ()):
            kind = "error" if host in unread else "failure"
            element = ElementTree.SubElement(case, kind, type=f"{one['severity']}: {one['rule']}", message=visible(one["title"], 300))
            element.text = f"expected {visible(one['expected'])}; found {visible(one['found'])}; {phrases.action(one)}"
        if host in unread and not len(case):
            ElementTree.SubElement(case, "error", type="unread", message="the node was not read")
    for name, kind in (("failures", "failure"), ("errors", "error")):
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def render_sarif(findings: Mapping[str, Any]) -> str:
    """One SARIF log: a result for each failure, its nodes as logical locations."""
    rules = sorted({(one["rule"], one["title"]) for one in findings["findings"]})
    driver = {"name": "unhang", "rules": [{"id": rule, "shortDescription": {"text": title}} for rule, title in rules]}
    by = phrases.judged_by(findings)
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": list(_results(findings)), "properties": {"judgedBy": by}}],
    }
    return json.dumps(log, ensure_ascii=True, indent=1) + "\n"


def _results(findings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in findings["findings"]:
        if one["verdict"] == "fail":
            places = [{"name": visible(host, 1024), "kind": "resource"} for host in hosts_of(one)]
            text = f"{visible(one['title'])}: expected {visible(one['expected'])}; found {visible(one['found'])}; {phrases.action(one)}"
            located = {"locations": [{"logicalLocations": places}]} if places else {}
            yield {"ruleId": one["rule"], "level": SARIF_LEVELS[one["severity"]], "message": {"text": text}, **located}


RENDERERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "name": render_names, "csv": render_csv, "jsonl": render_jsonl, "markdown": render_markdown, "junit": render_junit, "sarif": render_sarif,
}  # fmt: skip
