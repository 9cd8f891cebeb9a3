"""report.html: the run as one file that loads nothing, for a browser, a mailbox or a printer.

Text from nodes reaches the page only through `without_secrets`, `visible` and the template's
escaping; the page's Content-Security-Policy allows its own style and script by their hashes and
nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from unhang.audit.report import phrases
from unhang.audit.report.cards import (
    LONGEST_PLACE,
    about_interconnect,
    card_view,
    cards_of,
    explained,
)
from unhang.audit.report.drawing import Drawing, Matrix, draw, matrix
from unhang.audit.report.fleet import (
    KIND_WORDS,
    KINDS,
    MOST_NAMED,
    Panel,
    Standing,
    panels,
    standings,
    stated,
)
from unhang.audit.report.folding import Fold, Unread, fold_findings, fold_unread, of_verdict
from unhang.audit.report.manual_work import with_manual_work
from unhang.audit.report.run import NodeSummary, never_asked, read_nodes
from unhang.audit.report.smoke_results import read_smoke_tests
from unhang.audit.report.smoke_view import SmokeView, folded, smoke_view
from unhang.audit.report.topology import Topology, troubles
from unhang.audit.report.versions import Drift, drift
from unhang.core.nodeset import fold_hosts
from unhang.core.run.findings import NOT_A_GPU_NODE, SEVERITIES, hosts_of, read_findings, read_run
from unhang.core.secrets_in_text import without_secrets
from unhang.core.text import counted, visible

TEMPLATES = Path(__file__).parent / "templates"
MOST_DRAWINGS = 24
SCRIPTS = ("model.js", "filter.js", "node.js", "export.js", "page.js")  # one script, in this order
# causes on the printed summary, the same number as in model.js and report.css; characters of their
# hosts
MOST_SUMMARISED, SUMMARY_PLACE = 12, 80
FIRMWARE = ("GSP firmware", "VBIOS", "NIC firmware", "BIOS")
LONGEST_NODES = 400  # characters of a list of hosts
MOST_LINKS = 12  # findings of a node to which its row links
# characters of folded host names of a large fleet; all other texts are shortened far earlier
LONGEST_TEXT = 200_000


@dataclass(frozen=True)
class Joined:
    """Nodes with the same topology, drawn once."""

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
    program: str = "unhang",
    beside: Path | None = None,
    command_of: Callable[[Mapping[str, Any]], str] | None = None,
    plan: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
    smoke_files: Sequence[Path] = (),
    pasts: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The page of one run folder, or of another judgement of it in the file `beside`.

    run_name, program: the run and this program as a person types them. command_of: the command of a
    cause, if it differs from the one in findings.json. plan,
    rollout: results of plan.plan_view and rollout.status_view, if they exist. smoke_files: results
    of smoke tests besides those in the run folder. pasts: host -> lines of its history, the newest
    first. Raises run.Unreadable if there is no findings.json in it.
    """
    findings, run, nodes = (
        with_manual_work(read_findings(run_dir, beside)),
        read_run(run_dir),
        list(read_nodes(run_dir)),
    )
    smoke = smoke_view(read_smoke_tests(run_dir, smoke_files))
    asked = nodes + never_asked(run, nodes)
    named: dict[str, Any] = {
        "run_name": run_name,
        "program": program,
        "command_of": command_of,
    }
    return render_page(
        findings, run, asked, plan=plan, rollout=rollout, smoke=smoke, pasts=pasts, **named
    )


def render_page(
    findings: Mapping[str, Any],
    run: Mapping[str, Any],
    nodes: Sequence[NodeSummary],
    *,
    run_name: str = "runs/latest",
    program: str = "unhang",
    command_of: Callable[[Mapping[str, Any]], str] | None = None,
    plan: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
    smoke: SmokeView | None = None,
    pasts: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The page as text. `findings` and `run` are the objects of findings.json and run.json, `nodes`
    one summary per node file."""
    failures = list(findings.get("findings") or [])
    unread = of_verdict("unknown", findings)
    cards = cards_of(failures, findings.get("causes") or [])
    folds = [fold for card in cards for _, fold in card.folds]
    verdicts = {
        host: verdict
        for verdict, hosts in (findings.get("node_verdicts") or {}).items()
        for host in hosts
    }
    unknown = Counter(host for finding in unread for host in hosts_of(finding))
    standing_of = standings(
        nodes,
        folds,
        [card.hosts_of(fold) for card in cards for _, fold in card.folds],
        unknown,
        verdicts,
    )
    fleet, drawn = _fleet_view(nodes, folds, standing_of)
    tally = phrases.tally(findings)
    views = [
        card_view(card, place, drawn, command_of or _command) for place, card in enumerate(cards)
    ]
    drifts = drift({node.host: node.versions for node in nodes})
    return _page(
        header=_header(findings.get("run") or {}, run),
        tools=_tools(run.get("controller")),
        run_name=run_name,
        program=visible(program, 300),
        left_out=[
            *filter(None, [phrases.without_gpus(findings, LONGEST_NODES)]),
            *phrases.left_out(findings),
        ],
        tally=tally,
        worst=next(iter(tally.by_severity), "ok"),
        unread_words=phrases.node_counts(
            replace(
                tally,
                by_status={
                    status: count for status, count in tally.by_status.items() if status != "ok"
                },
            )
        ),
        run_id=visible((findings.get("run") or {}).get("id") or run_name, 120),
        cards=[view for view in views if view["card_severity"] != "info"],
        remarks=[view for view in views if view["card_severity"] == "info"],
        drifts=drifts,
        summary=_summary(views, [one for one in drifts if one.drifts], fleet["panels"], run_name)
        | {"program": visible(program, 300)},
        folds=folds,
        unread=[_unread_view(gap) for gap in fold_unread(unread)],
        waived=fold_findings(of_verdict("waived", findings)),
        plan=plan,
        rollout=rollout,
        smoke=smoke,
        pasts=pasts or {},
        verdicts=phrases.node_verdicts(findings),
        **fleet,
    )


def _fleet_view(
    nodes: Sequence[NodeSummary], folds: Sequence[Fold], standing_of: Mapping[str, Standing]
) -> tuple[dict[str, Any], list[tuple[str, frozenset[str]]]]:
    """(the template's map, drawings and tables of nodes, (id of a drawing, its hosts) of each)."""
    anchors = {node.host: f"n{number}" for number, node in enumerate(nodes, start=1)}
    mapped = panels(nodes, folds, standing_of, anchors) if nodes else []
    joined = _joined(nodes, folds, mapped)
    drawn = [(group.anchor, frozenset(group.hosts)) for group in joined[:MOST_DRAWINGS]]
    kinds = Counter(stands.kind for stands in standing_of.values())
    view = {
        "kinds": stated(kinds),
        "no_gpu": NOT_A_GPU_NODE,
        "panels": mapped,
        "is_large": len(nodes) > MOST_NAMED,
        "joined": joined[:MOST_DRAWINGS],
        "undrawn": len(joined[MOST_DRAWINGS:]),
        "tables": _tables(
            mapped,
            nodes,
            standing_of,
            anchors,
            folds,
            {host: anchor for anchor, hosts in drawn for host in hosts},
        ),
        "legend": [(kind, KIND_WORDS[kind]) for kind in KINDS if kinds[kind]],
    }
    return view, drawn


def _summary(
    cards: Sequence[dict[str, Any]], drifts: Sequence[Drift], mapped: Sequence[Panel], run_name: str
) -> dict[str, Any]:
    """The content of the printed summary (two pages): the worst of each part."""
    placed = [
        {
            **card,
            "summary_place": (
                phrases.hosts(card["nodes"], SUMMARY_PLACE) or phrases.without_nodes(card["rule"])
            ),
        }
        for card in cards
    ]
    worst_first = sorted(
        mapped,
        key=lambda panel: min((KINDS.index(cell.kind) for cell in panel.cells), default=len(KINDS)),
    )
    return {
        "cards": placed,
        "most": MOST_SUMMARISED,
        "drifts": drifts,
        "panels": worst_first,
        "run_name": visible(run_name, 120),
    }


def _command(cause: Mapping[str, Any]) -> str:
    return str(cause["command"])


def _header(judged: Mapping[str, Any], run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Data that identifies the run: (label, text)."""
    inventory = run.get("inventory")
    named = ", ".join(
        _end_of_path(str(part))
        for part in (inventory if isinstance(inventory, list) else [inventory or ""])
    )
    rows = (
        ("Run", judged.get("id")),
        ("Started", judged.get("started")),
        ("Inventory", named),
        ("Limit", run.get("limit")),
    )
    return [(label, visible(text, 120)) for label, text in rows if text]


def _end_of_path(path: str) -> str:
    """`inventory/demo` from an absolute path, because the rest means nothing to readers on other
    machines."""
    return "/".join(path.rstrip("/").split("/")[-2:]) if path.startswith("/") else path


def _tools(controller: object) -> str:
    named = controller if isinstance(controller, dict) else {}
    return ", ".join(
        f"{name} {visible(named[key], 40)}"
        for name, key in (("unhang", "unhang"), ("ansible-core", "ansible_core"))
        if named.get(key)
    )


def _page(**view: Any) -> str:
    return _environment().get_template("report.html.j2").render(**view)


@functools.cache
def _environment() -> Environment:
    """The page's templates, each compiled once in a process."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["sets"] = _breakable
    environment.globals.update(
        phrases=phrases,
        fold_hosts=fold_hosts,
        visible=visible,
        counted=counted,
        explained=explained,
        hosts_of_test=folded,
        hosts_of_version=lambda hosts: phrases.hosts(hosts, LONGEST_PLACE),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own two files, nothing from a node
        # our own hashes, one of which may look like a secret
        policy=Markup(  # noqa: S704
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}';"
            " base-uri 'none'; form-action 'none'"
        ),
    )
    return environment


def _shown(value: Any) -> Any:
    """The last filter before the page: masks secrets, and removes control characters and reordering
    marks, in all printed text."""
    return (
        visible(without_secrets(value), LONGEST_TEXT)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _breakable(text: str) -> Markup:
    """Text with possible line breaks only after commas, so that no line ends inside a number of a
    node set."""
    return escape(visible(without_secrets(text), LONGEST_TEXT)).replace(",", Markup(",<wbr>"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _unread_view(gap: Unread) -> dict[str, Any]:
    return {
        "path": visible(gap.path, 400),
        "facts": len(gap.paths),
        "reason": visible(gap.reason, 300),
        "rules": [visible(rule, 120) for rule in gap.rules],
        "hosts": gap.hosts,
    }


def _joined(
    nodes: Sequence[NodeSummary], folds: Sequence[Fold], mapped: Sequence[Panel]
) -> list[Joined]:
    """Topologies to draw: those of nodes with an interconnect finding first, then the most frequent
    one of each panel for comparison."""
    hosts_of_topology: dict[Topology, list[str]] = {}
    topology_of_host: dict[str, Topology] = {}
    for node in nodes:
        if node.topology is not None:
            hosts_of_topology.setdefault(node.topology, []).append(node.host)
            topology_of_host[node.host] = node.topology
    blamed = {host for fold in folds if about_interconnect(fold.example) for host in fold.hosts}
    wanted = {topology_of_host[host]: None for host in sorted(blamed) if host in topology_of_host}
    for panel in mapped:
        common = Counter(
            topology_of_host[host] for host in panel.hosts if host in topology_of_host
        ).most_common(1)
        wanted.update({topology: None for topology, _ in common})
    marked = {topology: troubles(topology) for topology in wanted}
    ordered = sorted(
        wanted, key=lambda topology: (not marked[topology], -len(hosts_of_topology[topology]))
    )
    return [
        Joined(
            f"t{number}",
            tuple(sorted(hosts_of_topology[topology])),
            topology,
            draw(topology),
            matrix(topology),
            tuple(marked[topology]),
        )
        for number, topology in enumerate(ordered[:MOST_DRAWINGS], start=1)
    ] + [
        Joined("", (), topology, Drawing(0, 0, 0, ()), Matrix(0, 0, (), (), ()), ())
        for topology in ordered[MOST_DRAWINGS:]
    ]


def _tables(
    mapped: Sequence[Panel],
    nodes: Sequence[NodeSummary],
    standing_of: Mapping[str, Standing],
    anchors: Mapping[str, str],
    folds: Sequence[Fold],
    drawn: Mapping[str, str],
) -> list[dict[str, Any]]:
    """A table for each panel of the map. drawn: host -> the drawing that shows it."""
    by_host = {node.host: node for node in nodes}
    tables = []
    for panel in mapped:
        # a stable sort: keeps the panel's order
        ordered = sorted(panel.hosts, key=lambda host: KINDS.index(standing_of[host].kind))
        rows = [
            _row(by_host[host], standing_of[host], anchors[host], folds, drawn.get(host, ""))
            for host in ordered
        ]
        tables.append({"panel": panel, "rows": rows})
    return tables


def _row(
    node: NodeSummary, stands: Standing, anchor: str, folds: Sequence[Fold], drawing: str
) -> dict[str, Any]:
    """A row of the table. numbers: of the node's folds, for the page's script, with the number of
    findings on the node if it is not one (`3x8`)."""
    numbers = [(number, folds[number - 1].by_host.get(node.host, 1)) for number in stands.folds]
    links = sorted(
        stands.folds,
        key=lambda number: (SEVERITIES.index(str(folds[number - 1].example["severity"])), number),
    )
    return {
        "node": node,
        "name": visible(node.host, 200),
        "stands": stands,
        "anchor": anchor,
        "drawing": drawing,
        "worst": visible(folds[stands.worst - 1].example.get("title"), 120) if stands.worst else "",
        "numbers": " ".join(
            f"{number}x{count}" if count != 1 else str(number) for number, count in numbers
        ),
        "links": [
            (number, str(folds[number - 1].example["severity"])) for number in links[:MOST_LINKS]
        ],
        "more": len(links) - MOST_LINKS,
        "cuda": ", ".join(
            value
            for value in (node.versions.get("CUDA toolkit"), node.versions.get("torch"))
            if value
        ),
        "firmware": "; ".join(
            dict.fromkeys(
                f"{name.partition(',')[0]} {value}"
                for name, value in node.versions.items()
                if name.startswith(FIRMWARE)
            )
        ),
    }
