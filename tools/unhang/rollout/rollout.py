"""What remediate.yml asks the controller: may this node's policy be applied, and is it proved healthy now. Both by the same judge as the audit.

python -m unhang.rollout.rollout begin RUN                 judges a run, keeps the findings; {"nodes": {host: {"status", "message", "refusals"}}}
python -m unhang.rollout.rollout prove RUN HOST [...]      judges it again, compares; the proof, which is written to RUN/remediation-HOST.json too
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unhang.errors import UserError
from unhang.judge.compiled_catalogue import load_catalogue
from unhang.judge.run_input import read_nodes, read_run_input
from unhang.judge.run_judging import judge_folder
from unhang.plan.policy_check import refusals_of
from unhang.rollout.proof import SERIOUS, prove
from unhang.run_folder import write_atomically

BEFORE = "findings-before.json"


def begin(run: Path, rules: list[Path], today: str) -> dict[str, Any]:
    """Judges a run before anything is changed. Raises UserError, OSError."""
    run_input = read_run_input(run)
    judge_folder(run, rules, None, today)
    write_atomically(run / BEFORE, (run / "findings.json").read_text(encoding="utf-8"))
    catalogue = load_catalogue(rules)
    nodes = {}
    for node in read_nodes(run_input):
        raw = json.loads(run_input.files[node.host].read_text(encoding="utf-8")) if node.status == "ok" else None
        refused = refusals_of(raw, catalogue, today) if raw else []
        refusals = [f"{one['title']} ({one['rule']}): expected {one['expected']}, found {one['found']}" for one in refused]
        nodes[node.host] = {"status": node.status, "message": node.message or "", "refusals": refusals}
    return {"nodes": nodes}


def prove_node(run: Path, host: str, rules: list[Path], today: str, about: dict[str, Any], serious: list[str]) -> dict[str, Any]:
    """Judges the run again, with the node as it was read since, and writes down whether it is healthy. Raises UserError, OSError, ValueError."""
    judge_folder(run, rules, None, today)
    before, after = (json.loads((run / name).read_text(encoding="utf-8"))["findings"] for name in (BEFORE, "findings.json"))
    node = next(one for one in read_nodes(read_run_input(run)) if one.host == host)
    proof = prove(before, after, host, serious)
    if node.status != "ok":
        proof = {**proof, "healthy": False, "reasons": [f"it was not read: {node.status}, {node.message}", *proof["reasons"]]}
    document = {"schema": "unhang/remediation/1", "host": host, **about, **proof}
    write_atomically(run / f"remediation-{quote(host, safe='')}.json", json.dumps(document, indent=1) + "\n")
    return proof


def main(arguments: list[str] | None = None) -> int:
    """0 with JSON on standard output; 2 and one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m unhang.rollout.rollout", description="The controller's side of playbooks/remediate.yml")
    parser.add_argument("what", choices=("begin", "prove"))
    parser.add_argument("run", type=Path)
    parser.add_argument("host", nargs="?")
    parser.add_argument("--rules", action="append", default=[], type=Path)
    parser.add_argument("--severities", default=",".join(SERIOUS), help="those that keep a node from being healthy")
    parser.add_argument("--about", default="{}", help="JSON to be written down beside the proof")
    chosen = parser.parse_args(arguments)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        if chosen.what == "begin":
            answer = begin(chosen.run, chosen.rules, today)
        else:
            answer = prove_node(chosen.run, chosen.host or "", chosen.rules, today, json.loads(chosen.about), chosen.severities.split(","))
    except (UserError, OSError, ValueError, StopIteration) as problem:
        sys.stderr.write(f"unhang: {problem}\n")
        return 2
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
