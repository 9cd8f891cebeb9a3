"""Answers for the playbooks that change nodes: whether a policy may be applied, the hardware is
still complete, and the node is proved healthy. The verdicts come from the audit's judge."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from unhang.act.plan.policy_check import refusals_of
from unhang.act.rollout.baseline import Baseline, baseline_of, to_document
from unhang.act.rollout.hardware import losses, read_hardware
from unhang.act.rollout.kept import keep_proof
from unhang.act.rollout.proof import Asked, prove
from unhang.core.run.documents import NodeDocument
from unhang.core.run.record import FINDINGS, Finding, read_findings_record
from unhang.core.run.run_folder import file_stem
from unhang.core.run.run_input import RunInput, of_one_host, read_nodes, read_run_input
from unhang.core.run.whole_files import write_atomically
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.judge.triage.run_judging import judge_folder

BEFORE = "findings-before.json"


def begin(run: Path, today: str, before: Path | None = None) -> dict[str, Any]:
    """Judges a run before anything is changed: {"nodes": {host: {status, message, refusals,
    baseline}}}. before: run folder with the nodes' state before a rollout that is undone, which is
    then the baseline; no policy is refused, for none is applied.

    baseline: the host's file in the run folder with its state before the change. Raises UserError,
    OSError."""
    run_input, catalogue = read_run_input(run), load_catalogue()  # the judge's child has it too
    judge_folder(run, [], None, today)
    write_atomically(run / BEFORE, (run / FINDINGS).read_text(encoding="utf-8"))
    known = run_input if before is None else read_run_input(before)
    findings = read_findings_record(known.folder).findings
    earlier = {node.host: node for node in read_nodes(known)} if before else {}
    begun: dict[str, Any] = {}
    for node in read_nodes(run_input):
        if node.host in known.files:
            document = _document(known, earlier.get(node.host, node))
            begun[node.host] = {
                "status": node.status,
                "message": node.message or "",
                "refusals": [] if before else _refusals(document, catalogue, today),
                "baseline": _keep_baseline(known, document, node.host, findings, run),
            }
    return {"nodes": begun}


def _refusals(document: dict[str, Any] | None, catalogue: Catalogue, today: str) -> list[str]:
    return [
        f"{one['title']} ({one['rule']}): the check found {one['found']}, and needs"
        f" {one['expected']}"
        for one in (refusals_of(document, catalogue, today) if document else [])
    ]


def _keep_baseline(
    run: RunInput, document: dict[str, Any] | None, host: str, findings: list[Finding], target: Path
) -> str:
    """The path of the host's baseline by this run's findings and facts, written into the folder
    `target`."""
    baseline = baseline_of(
        str(run.document["id"]), findings, host, read_hardware(_sections(document))
    )
    path = target / f"baseline-{file_stem(host)}.json"
    write_atomically(path, json.dumps(to_document(baseline), indent=1) + "\n")
    return str(path.absolute())


def prove_node(
    run: Path,
    host: str,
    today: str,
    about: dict[str, Any],
    asked: Asked,
    baseline: Baseline,
    beside: Path | None = None,
) -> dict[str, Any]:
    """Judges the node again by its new facts, and records whether it is healthy: the proof, with
    `lost`: hardware of its baseline that it does not have (yet). Raises UserError, OSError,
    ValueError. about: further keys of the proof's document. baseline: the node's state before the
    change. beside: folder of the plan, to keep there what a proof saw."""
    load_catalogue()  # once: the judge's child process has it from here
    run_input = of_one_host(read_run_input(run), host)
    with tempfile.TemporaryDirectory(prefix="unhang-proof-") as folder:
        judge_folder(run, [], None, today, out=Path(folder) / FINDINGS, host=host)
        after = read_findings_record(Path(folder)).findings
    node = next(read_nodes(run_input))
    policy_rules = frozenset(
        rule.id
        for rule in load_catalogue().rules
        if any(path[0] == "policy" for path in rule.decision_reads)
    )
    document = _document(run_input, node)
    hardware = read_hardware(_sections(document))
    lost = losses(baseline.hardware, hardware, document.get("policy") or {}) if document else []
    proof = prove(baseline, after, host, replace(asked, policy_rules=policy_rules), lost)
    if document is None:
        proof = {
            **proof,
            "healthy": False,
            "reasons": [f"it was not read: {node.status}, {node.message}", *proof["reasons"]],
        }
    proof["lost"] = lost
    written = {"schema": "unhang/remediation/1", "host": host, **about, **proof}
    write_atomically(
        run / f"remediation-{file_stem(host)}.json", json.dumps(written, indent=1) + "\n"
    )
    if beside is not None and proof["healthy"]:
        keep_proof(beside, host, baseline_of(str(run_input.document["id"]), after, host, hardware))
    return proof


def _document(run: RunInput, node: NodeDocument) -> dict[str, Any] | None:
    return (
        dict(json.loads(run.files[node.host].read_text(encoding="utf-8")))
        if node.status == "ok"
        else None
    )


def _sections(document: dict[str, Any] | None) -> dict[str, Any]:
    return dict(document["facts"]["sections"]) if document else {}
