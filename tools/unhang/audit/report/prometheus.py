"""A judged run as metrics for Prometheus, in the text format of node_exporter's textfile collector.
A findings document in, text out.

The number of series does not depend on the number of nodes, unless series for nodes are requested.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from unhang import __version__
from unhang.audit.report.phrases import rules_left_out
from unhang.core.run.documents import STATUSES
from unhang.core.run.findings import NODE_VERDICTS, hosts_of
from unhang.core.text import visible
from unhang.judge.rules.rules import SEVERITIES

CHECK_VERDICTS = ("pass", "fail", "unknown", "waived", "skip")
Rows = Iterable[tuple[tuple[str, ...], float]]


def render_prometheus(
    findings: Mapping[str, Any], most_nodes: int = 0, labels: Mapping[str, str] | None = None
) -> str:
    """The metrics of a run.

    most_nodes  how many nodes have a series of their own, the worst first
    labels      of every series
    """
    registry = CollectorRegistry()
    registry.register(_Run(findings, most_nodes, labels or {}))
    return generate_latest(registry).decode()


def nodes_without_series(findings: Mapping[str, Any], most_nodes: int) -> int:
    """The number of nodes without a series of their own, if series for nodes are requested."""
    return (
        max(0, sum(map(len, findings["node_verdicts"].values())) - most_nodes) if most_nodes else 0
    )


class _Run(Collector):
    """The collector of metrics for the client library."""

    def __init__(
        self, findings: Mapping[str, Any], most_nodes: int, labels: Mapping[str, str]
    ) -> None:
        self.findings, self.most_nodes, self.labels = findings, most_nodes, labels

    def collect(self) -> Iterator[Metric]:
        """Each metric once."""
        for name, meaning, own, rows in (
            *_of_nodes(self.findings, self.most_nodes),
            *_of_findings(self.findings),
            *_of_the_run(self.findings),
        ):
            family = GaugeMetricFamily(f"unhang_{name}", meaning, labels=(*own, *self.labels))
            for values, number in rows:
                family.add_metric((*values, *self.labels.values()), number)
            yield family


# name, help, labels, values of the labels with the number
Family = tuple[str, str, tuple[str, ...], Rows]


def _of_nodes(findings: Mapping[str, Any], most_nodes: int) -> Iterator[Family]:
    verdicts = findings["node_verdicts"]
    yield (
        "nodes",
        "Nodes by verdict, each node once.",
        ("verdict",),
        [((verdict,), len(verdicts.get(verdict, ()))) for verdict in NODE_VERDICTS],
    )
    statuses = dict.fromkeys((*STATUSES, "missing"), 0)
    for status, count in findings["nodes"].items():
        statuses[status if status in statuses else "invalid"] += count
    yield (
        "nodes_by_status",
        "Nodes by how reading them ended.",
        ("status",),
        [((status,), count) for status, count in statuses.items()],
    )
    if most_nodes:
        named = [
            ((visible(host, 1024), verdict), 1)
            for verdict in NODE_VERDICTS
            for host in verdicts.get(verdict, ())
        ][:most_nodes]
        # two names may look alike, and a series that occurs twice costs the whole file
        named = list(dict.fromkeys(named))
        yield "node_verdict", "1 for the verdict of a node.", ("node", "verdict"), named
        yield (
            "nodes_without_series",
            "Nodes beyond the number of series asked for.",
            (),
            [((), nodes_without_series(findings, most_nodes))],
        )


def _of_findings(findings: Mapping[str, Any]) -> Iterator[Family]:
    failures = [one for one in findings["findings"] if one["verdict"] == "fail"]
    by_severity = Counter(one["severity"] for one in failures)
    yield (
        "findings",
        "Findings by severity.",
        ("severity",),
        [((severity,), by_severity[severity]) for severity in SEVERITIES],
    )
    causes = Counter(one["severity"] for one in findings["causes"])
    yield (
        "causes",
        "Causes by severity; what one repair ends is one cause.",
        ("severity",),
        [((severity,), causes[severity]) for severity in SEVERITIES],
    )
    hosts: dict[tuple[str, ...], set[str]] = {}
    for one in failures:
        hosts.setdefault((one["rule"], one["severity"]), set()).update(hosts_of(one))
    yield (
        "rule_nodes",
        "Nodes on which a rule finds something.",
        ("rule", "severity"),
        [(key, len(hosts[key])) for key in sorted(hosts)],
    )
    yield (
        "checks",
        "Checks by what came of them.",
        ("verdict",),
        [((verdict,), findings["totals"].get(verdict, 0)) for verdict in CHECK_VERDICTS],
    )


def _of_the_run(findings: Mapping[str, Any]) -> Iterator[Family]:
    run, catalogue = findings["run"], findings["catalogue"]
    began, ended = (_seconds(run.get(name)) for name in ("started", "finished"))
    if ended is not None or began is not None:
        yield (
            "run_timestamp_seconds",
            "When the nodes were read, seconds since 1970.",
            (),
            [((), ended if ended is not None else began or 0)],
        )
    if ended is not None and began is not None:
        yield (
            "run_duration_seconds",
            "How long reading the nodes took.",
            (),
            [((), max(0.0, ended - began))],
        )
    whole = ended is not None and not rules_left_out(findings)
    yield (
        "run_complete",
        "1 when every node was asked and every rule could be used, else 0.",
        (),
        [((), int(whole))],
    )
    states = {
        "used": catalogue["rules"],
        "refused": len(catalogue["refused"]),
        "stopped": len(catalogue["stopped"]),
    }
    yield (
        "rules",
        "Rules that were used or stopped, and faults of rules that were refused.",
        ("state",),
        [((state,), count) for state, count in states.items()],
    )
    yield "build_info", "The unhang that wrote this.", ("version",), [((__version__,), 1)]


def _seconds(moment: object) -> float | None:
    """Seconds since 1970 of a time in run.json; None if it is missing or no time."""
    try:
        found = datetime.datetime.fromisoformat(str(moment))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
