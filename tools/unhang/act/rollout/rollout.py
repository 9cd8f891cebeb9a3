"""Answers for the playbooks that change nodes: whether a policy may be applied, the hardware is
still complete, and the node is proved healthy. The verdicts come from the audit's judge."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unhang.act.plan.policy_check import refusals_of
from unhang.act.rollout.baseline import KEPT, Baseline, baseline_of, from_document, to_document
from unhang.act.rollout.hardware import losses, read_hardware
from unhang.act.rollout.proof import Asked, prove
from unhang.audit.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.core.errors import UserError
from unhang.core.run.documents import NodeDocument
from unhang.core.run.record import FINDINGS, Finding, read_findings_record
from unhang.core.run.run_folder import file_stem
from unhang.core.run.run_input import RunInput, of_one_host, read_nodes, read_run_input
from unhang.core.run.whole_files import write_atomically

BEFORE = "findings-before.json"
PROOFS = "proofs"  # beside the plan: what each proof saw on its node
Judge = Callable[..., object]
"""run_judging.judge_folder."""


def begin(
    run: Path, rules: list[Path], today: str, judge: Judge, before: Path | None = None
) -> dict[str, Any]:
    """Judges a run before anything is changed: {"nodes": {host: {status, message, refusals,
    baseline}}}. before: run folder with the nodes' state before a rollout that is undone, which is
    then the baseline; no policy is refused, for none is applied.

    baseline: the host's file in the run folder with its state before the change. Raises UserError,
    OSError."""
    run_input = read_run_input(run)
    load_catalogue()  # once: the judge's child process has it from here
    judge(run, rules, None, today)
    write_atomically(run / BEFORE, (run / FINDINGS).read_text(encoding="utf-8"))
    findings, catalogue = read_findings_record(run).findings, load_catalogue(rules)
    if before is None:
        return {
            "nodes": {
                node.host: _begin_node(run_input, node, findings, catalogue, today)
                for node in read_nodes(run_input)
            }
        }
    earlier, findings = read_run_input(before), read_findings_record(before).findings
    kept = {
        node.host: _keep_baseline(
            earlier, _document(earlier, node), node.host, findings, run_input.folder
        )
        for node in read_nodes(earlier)
    }
    nodes = [node for node in read_nodes(run_input) if node.host in kept]
    return {"nodes": {node.host: _begun(node, [], kept[node.host]) for node in nodes}}


def _begun(node: NodeDocument, refusals: list[str], baseline: str) -> dict[str, Any]:
    return {
        "status": node.status,
        "message": node.message or "",
        "refusals": refusals,
        "baseline": baseline,
    }


def _begin_node(
    run: RunInput, node: NodeDocument, findings: list[Finding], catalogue: Catalogue, today: str
) -> dict[str, Any]:
    document = _document(run, node)
    refused = refusals_of(document, catalogue, today) if document else []
    refusals = [
        f"{one['title']} ({one['rule']}): the check found {one['found']}, and expected"
        f" {one['expected']}"
        for one in refused
    ]
    path = _keep_baseline(run, document, node.host, findings, run.folder)
    return _begun(node, refusals, path)


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
    rules: list[Path],
    today: str,
    about: dict[str, Any],
    asked: Asked,
    baseline: Baseline,
    judge: Judge,
    beside: Path | None = None,
) -> dict[str, Any]:
    """Judges the node again by its new facts, and records whether it is healthy: the proof, with
    `lost`: hardware of its baseline that it does not have (yet). Raises UserError, OSError,
    ValueError. about: further keys of the proof's document. baseline: the node's state before the
    change. beside: folder of the plan, to keep there what a proof saw."""
    load_catalogue()  # once: the judge's child process has it from here
    run_input = of_one_host(read_run_input(run), host)
    with tempfile.TemporaryDirectory(prefix="unhang-proof-") as folder:
        judge(run, rules, None, today, out=Path(folder) / FINDINGS, host=host)
        after = read_findings_record(Path(folder)).findings
    node = next(read_nodes(run_input))
    policy_rules = frozenset(
        rule.id
        for rule in load_catalogue(rules).rules
        if any(path[0] == "policy" for path in rule.decision_reads)
    )
    lost = _losses(run_input, node, baseline) if node.status == "ok" else []
    proof = prove(baseline, after, host, replace(asked, policy_rules=policy_rules), lost)
    if node.status != "ok":
        proof = {
            **proof,
            "healthy": False,
            "reasons": [f"it was not read: {node.status}, {node.message}", *proof["reasons"]],
        }
    proof["lost"] = lost
    document = {"schema": "unhang/remediation/1", "host": host, **about, **proof}
    write_atomically(
        run / f"remediation-{file_stem(host)}.json", json.dumps(document, indent=1) + "\n"
    )
    if beside is not None and proof["healthy"]:
        (beside / PROOFS).mkdir(exist_ok=True)
        hardware = read_hardware(_sections(_document(run_input, node)))
        seen = baseline_of(str(run_input.document["id"]), after, host, hardware)
        write_atomically(_proof_file(beside, host), json.dumps(to_document(seen), indent=1) + "\n")
    return proof


def proof_of(beside: Path, host: str) -> Baseline | None:
    """What the latest proof of a host saw after the change; None if nothing was kept. beside: the
    folder of the plan. Raises UserError, OSError."""
    return _read_beside(_proof_file(beside, host))


def baseline_beside(beside: Path, host: str) -> Baseline:
    """The copy of the host's baseline, for a node that has lost its own. beside: the folder of the
    plan. Raises UserError, also if there is none."""
    kept = _read_beside(path := beside / KEPT / f"{file_stem(host)}.json")
    if kept is None:
        raise UserError(
            f"the baseline of {host} is neither on the node nor in {path}: how the node was before"
            " the change is not known, so nothing can prove it"
        )
    return kept


def _read_beside(path: Path) -> Baseline | None:
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else None
        return None if text is None else from_document(json.loads(text))
    except ValueError as problem:
        raise UserError(
            f"{path} must hold the state of a node, and is not JSON: {problem}"
        ) from None


def _proof_file(beside: Path, host: str) -> Path:
    return beside / PROOFS / f"{file_stem(host)}.json"


def _losses(run: RunInput, node: NodeDocument, baseline: Baseline) -> list[str]:
    document = _document(run, node)
    return losses(
        baseline.hardware, read_hardware(_sections(document)), (document or {}).get("policy") or {}
    )


def _document(run: RunInput, node: NodeDocument) -> dict[str, Any] | None:
    return (
        dict(json.loads(run.files[node.host].read_text(encoding="utf-8")))
        if node.status == "ok"
        else None
    )


def _sections(document: dict[str, Any] | None) -> dict[str, Any]:
    return dict(document["facts"]["sections"]) if document else {}
