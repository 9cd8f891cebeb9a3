"""report.html: the run as one file that loads nothing, for a browser, a mailbox or a printer.

Text from nodes reaches the page only through `visible` and the template's escaping; the page's Content-Security-Policy allows its own style and
script by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from unhang.nodeset import fold_hosts
from unhang.report import phrases
from unhang.report.drawing import Drawing, Matrix, draw, matrix
from unhang.report.fleet import KIND_WORDS, Panel, Standing, panels, standings
from unhang.report.folding import Fold, Unread, fold_findings, fold_unread, hosts_of
from unhang.report.run import NodeSummary, never_asked, read_findings, read_nodes, read_run
from unhang.report.topology import Topology, troubles
from unhang.text import counted, visible

TEMPLATES = Path(__file__).parent / "templates"
MOST_DRAWINGS = 24
LONGEST_PLACE, MOST_PLACES = 320, 60  # characters of one set of hosts where it stands first; sets in the details, which have every host
MOST_UNFOLDED = 4  # critical findings that stand open; the others show title, place and action until opened
LONGEST_TEXT = 200_000  # folded host names of a large fleet; everything else is cut far earlier
_INTERCONNECT = ("interconnect.", "fabric_manager.", "network.rdma")


@dataclass(frozen=True)
class Joined:
    """Nodes whose GPUs are joined alike, drawn once."""

    anchor: str
    hosts: tuple[str, ...]
    topology: Topology
    drawing: Drawing
    matrix: Matrix
    troubles: tuple[str, ...]


def render_html(
    run_dir: Path,
    *,
    run_name: str = "runs/latest",
    beside: Path | None = None,
    plan: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
) -> str:
    """The page of one run folder, or of another judgement of it in the file `beside`.

    plan, rollout: of plan.plan_view and rollout.status_view, where there is one.

    Raises run.Unreadable when there is no findings.json in it.
    """
    findings, run, nodes = read_findings(run_dir, beside), read_run(run_dir), list(read_nodes(run_dir))
    return render_page(findings, run, nodes + never_asked(run, nodes), run_name=run_name, plan=plan, rollout=rollout)


def render_page(
    findings: Mapping[str, Any],
    run: Mapping[str, Any],
    nodes: Sequence[NodeSummary],
    *,
    run_name: str = "runs/latest",
    plan: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
) -> str:
    """The page as text. `findings` and `run` are the objects of findings.json and run.json, `nodes` one summary per node file."""
    by_verdict: dict[str, list[Mapping[str, Any]]] = {"fail": [], "unknown": [], "waived": []}
    for finding in findings.get("findings") or []:
        by_verdict.setdefault(str(finding.get("verdict")), []).append(finding)
    folds, waived = fold_findings(by_verdict["fail"]), fold_findings(by_verdict["waived"])
    unknown_by_host = Counter(host for finding in by_verdict["unknown"] for host in hosts_of(finding))
    told = standings(nodes, folds, unknown_by_host)
    anchors = {node.host: f"n{number}" for number, node in enumerate(nodes, start=1)}
    mapped = panels(nodes, folds, told, anchors) if nodes else []
    joined = _joined(nodes, folds, mapped)
    return _page(
        header=_header(findings.get("run") or {}, run),
        tools=_tools(run.get("controller")),
        run_name=run_name,
        left_out=phrases.left_out(findings),
        tally=phrases.tally(findings, folds),
        folds=[_fold_view(number, fold, joined) for number, fold in enumerate(folds, start=1)],
        unread=[_unread_view(gap) for gap in fold_unread(by_verdict["unknown"])],
        waived=waived,
        plan=plan,
        rollout=rollout,
        panels=mapped,
        joined=joined[:MOST_DRAWINGS],
        undrawn=len(joined[MOST_DRAWINGS:]),
        tables=_tables(mapped, nodes, told, anchors),
        legend=[(kind, word) for kind, word in KIND_WORDS.items() if any(cell.kind == kind for panel in mapped for cell in panel.cells)],
    )


def _header(judged: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which run this is: (label, text)."""
    inventory = run.get("inventory")
    named = ", ".join(_end_of_path(str(part)) for part in (inventory if isinstance(inventory, list) else [inventory or ""]))
    rows = (("Run", judged.get("id")), ("Started", judged.get("started")), ("Inventory", named), ("Limit", run.get("limit")))
    return [(label, visible(text, 120)) for label, text in rows if text]


def _end_of_path(path: str) -> str:
    """`inventory/demo` of a path from the root: the rest says nothing to those who read a report elsewhere."""
    return "/".join(path.rstrip("/").split("/")[-2:]) if path.startswith("/") else path


def _tools(controller: object) -> str:
    named = controller if isinstance(controller, dict) else {}
    return ", ".join(f"{name} {visible(named[key], 40)}" for name, key in (("unhang", "unhang"), ("ansible-core", "ansible_core")) if named.get(key))


def _page(**view: Any) -> str:
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.globals.update(
        phrases=phrases,
        fold_hosts=fold_hosts,
        visible=visible,
        counted=counted,
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own two files, nothing from a node
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'",
    )
    return environment.get_template("report.html.j2").render(**view)


def _shown(value: Any) -> Any:
    """Last gate before the page: whatever a template prints has no control characters and no reordering marks."""
    return visible(value, LONGEST_TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _fold_view(number: int, fold: Fold, joined: Sequence[Joined]) -> dict[str, Any]:
    finding = fold.example
    hosts = set(fold.hosts)
    shown, everywhere = phrases.places(fold, 6, LONGEST_PLACE), phrases.places(fold, MOST_PLACES)
    drawn = [group.anchor for group in joined[:MOST_DRAWINGS] if hosts & set(group.hosts)] if _about_interconnect(finding) else []
    return {
        "number": number,
        "fold": fold,
        "severity": str(finding["severity"]),
        "title": finding.get("title"),
        "rule": finding.get("rule"),
        "places": shown,
        "everywhere": [] if shown == everywhere else everywhere,
        "expected": visible(finding.get("expected") or ""),
        "found": visible(finding.get("found") or ""),
        "others": [visible(text) for text in fold.others],
        "comparison": phrases.comparison(finding, 12),
        "action": phrases.action(finding),
        "workaround": phrases.workaround(finding),
        "evidence": phrases.evidence(finding),
        "situations": phrases.situations(finding),
        "confidence": phrases.confidence(finding),
        "sources": [_source(row) for row in finding.get("sources") or []],
        "drawings": drawn[:6],
        "brief": phrases.places(fold, 2, LONGEST_PLACE // 2),
        "unfolded": finding["severity"] == "critical" and number <= MOST_UNFOLDED,
    }


def _unread_view(gap: Unread) -> dict[str, Any]:
    return {"path": visible(gap.path, 160), "reason": visible(gap.reason, 300), "rules": [visible(rule, 120) for rule in gap.rules], "hosts": gap.hosts}


def _source(row: Mapping[str, Any]) -> dict[str, str]:
    url = str(row.get("url") or "")
    try:
        parts = urlsplit(url)
        linked = parts.scheme == "https" and bool(parts.hostname) and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        linked = False
    return {"url": url if linked else "", "text": visible(url, 200), "says": visible(row.get("says") or "", 400)}


def _about_interconnect(finding: Mapping[str, Any]) -> bool:
    """Whether a node's drawing helps: the rule read links, pairs, the fabric, RDMA ports, a GPU's PCIe slot, or a GPU that does not answer."""
    paths = [str(row.get("path") or "") for row in finding.get("evidence") or []]
    return any(path.startswith(_INTERCONNECT) or (path.startswith("gpus.devices") and (".pcie" in path or path.endswith(".error"))) for path in paths)


def _joined(nodes: Sequence[NodeSummary], folds: Sequence[Fold], mapped: Sequence[Panel]) -> list[Joined]:
    """Topologies worth drawing: those of nodes with an interconnect finding, and each panel's commonest for comparison; the troubled first."""
    hosts_of_topology: dict[Topology, list[str]] = {}
    topology_of_host: dict[str, Topology] = {}
    for node in nodes:
        if node.topology is not None:
            hosts_of_topology.setdefault(node.topology, []).append(node.host)
            topology_of_host[node.host] = node.topology
    blamed = {host for fold in folds if _about_interconnect(fold.example) for host in fold.hosts}
    wanted = {topology_of_host[host]: None for host in sorted(blamed) if host in topology_of_host}
    for panel in mapped:
        common = Counter(topology_of_host[host] for host in panel.hosts if host in topology_of_host).most_common(1)
        wanted.update({topology: None for topology, _ in common})
    marked = {topology: troubles(topology) for topology in wanted}
    ordered = sorted(wanted, key=lambda topology: (not marked[topology], -len(hosts_of_topology[topology])))
    return [
        Joined(f"t{number}", tuple(sorted(hosts_of_topology[topology])), topology, draw(topology), matrix(topology), tuple(marked[topology]))
        for number, topology in enumerate(ordered[:MOST_DRAWINGS], start=1)
    ] + [Joined("", (), topology, Drawing(0, 0, 0, ()), Matrix(0, 0, (), (), ()), ()) for topology in ordered[MOST_DRAWINGS:]]


def _tables(mapped: Sequence[Panel], nodes: Sequence[NodeSummary], told: Mapping[str, Standing], anchors: Mapping[str, str]) -> list[dict[str, Any]]:
    by_host = {node.host: node for node in nodes}
    tables = []
    for panel in mapped:
        rows = [{"node": by_host[host], "name": visible(host, 200), "stands": told[host], "anchor": anchors[host]} for host in panel.hosts]
        tables.append({"panel": panel, "rows": rows})
    return tables
