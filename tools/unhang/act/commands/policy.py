"""`unhang policy --from HOSTS|RUN`: writes a policy from nodes that are known to be good."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unhang.act.plan.policy_from_nodes import Draft, policy_from_nodes, render_policy
from unhang.audit.commands.audit_ways import ReadOptions, folder_of, read_nodes
from unhang.core.baselines import bandwidth_rows, read_baselines
from unhang.core.commands.common_options import (
    add_examples,
    add_inventory,
    add_repeatable,
    add_value,
)
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts
from unhang.core.path_arguments import checked_output
from unhang.core.run import run_folder, whole_files
from unhang.core.run.documents import InvalidNode, to_facts
from unhang.core.run.record import Finding, read_findings_record
from unhang.core.text import visible
from unhang.judge.triage.run_judging import judge_folder

SERIOUS = ("critical", "error")
MOST_SHOWN = 8
EXAMPLES = """\
  unhang policy --from latest --host 'gpu[001-004]' --out policy.yml    what these nodes of the last audit have in common
  unhang policy --from 'gpu[001-004]' -i inventory/mycluster            audits them now"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        metavar="HOSTS|RUN",
        required=True,
        help="a run folder or its id; or nodes, which the command audits first",
    )
    only = "only these nodes of the run: names and node sets (gpu[001-016])"
    add_repeatable(parser, "-l --host", "HOSTS", only)
    add_inventory(parser, "inventory file or folder of HOSTS (default: this machine)")
    accept = "write the policy despite this critical or error finding; repeatable"
    add_repeatable(parser, "--accept", "RULE", accept)
    add_repeatable(
        parser,
        "--smoke",
        "RESULT",
        "the JSON result of a smoke test on these nodes; its bandwidth is added to the policy",
    )
    add_value(
        parser,
        "--out",
        "FILE",
        "write to this file, which must not exist yet (default: standard output)",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0 with the policy; UserError if the nodes are not good or could not be read."""
    bandwidth = bandwidth_rows(read_baselines(arguments.smoke))
    out = Path(arguments.out) if arguments.out else None
    if out and out.exists():
        raise UserError(f"--out: {out} exists already, and stays as it is")
    if out:
        checked_output(arguments.out)
    source = source_run(arguments.source, arguments.inventory)
    nodes = good_nodes(source, ",".join(arguments.host))
    draft = policy_from_nodes({host: node["facts"]["sections"] for host, node in nodes.items()})
    text = render_policy(draft, head_lines(source.name, list(nodes), arguments.accept), bandwidth)
    refuse_bad_nodes(source, nodes, text, arguments.accept)
    if out:
        whole_files.write_named(out, text)
        print(f"{out}: {summary_of(draft)}")
    else:
        print(text, end="")
    return 0


def source_run(named: str, inventory: list[str] | None) -> Path:
    """The named run folder, or a new run of the named nodes. Raises UserError."""
    try:
        return run_folder.find_run(named)
    except UserError:
        if "/" in named or named == "latest":
            raise
    options = ReadOptions(inventory, named)
    folder = folder_of(options)
    read_nodes(options, folder)
    return folder


def good_nodes(folder: Path, limit: str | None) -> dict[str, dict[str, Any]]:
    """host -> node document of the selected nodes. Raises UserError if one of them was not read, or
    none remains."""
    wanted = set(expand_limit(limit)) if limit else None
    nodes = dict(map(_node_in, run_folder.node_files(folder)))
    if wanted is not None and (missing := sorted(wanted - set(nodes))):
        raise UserError(f"--host names {fold_hosts(missing)}, which {folder} does not have")
    chosen = {
        host: node for host, node in sorted(nodes.items()) if wanted is None or host in wanted
    }
    unread = [
        host
        for host, node in chosen.items()
        if node.get("status") != "ok" or not isinstance(node.get("facts"), dict)
    ]
    if unread or not chosen:
        lacking = f"facts of {fold_hosts(unread)}" if unread else "nodes that were read"
        raise UserError(
            f"there are no {lacking} in {folder}; choose others with --host, or audit them again"
        )
    for host, node in chosen.items():
        try:
            to_facts(node["facts"])
        except InvalidNode as problem:
            raise UserError(
                f"{folder}: {visible(host, 100)}: {problem}; choose others with --host, or audit"
                " it again"
            ) from None
    return chosen


def _node_in(path: Path) -> tuple[str, dict[str, Any]]:
    """(host, node document); the document is empty if the file cannot be read."""
    try:
        node = run_folder.read_node(path)
    except UserError:
        return unquote(path.stem), {}
    return str(node.get("host")), node


def refuse_bad_nodes(
    folder: Path, nodes: Mapping[str, Mapping[str, Any]], policy: str, accepted: Sequence[str]
) -> None:
    """Judges these nodes under their own policy. Raises UserError for findings of severity critical
    or error that are not accepted."""
    found = [
        row
        for row in judged(folder, nodes, policy)
        if row.verdict == "fail" and row.severity in SERIOUS and row.rule not in accepted
    ]
    if not found:
        return
    lines = [
        f"  {row.severity}: {row.rule}: {visible(row.title, 200)} ({fold_hosts(row.about())})"
        for row in found
    ]
    more = [f"  and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
    options = " ".join(f"--accept {rule}" for rule in dict.fromkeys(row.rule for row in found))
    shown = "\n".join([*lines[:MOST_SHOWN], *more])
    raise UserError(
        f"the catalogue does not find all nodes good:\n{shown}\nmend them first, choose others with"
        f" --host, or add: {options}"
    )


def judged(folder: Path, nodes: Mapping[str, Mapping[str, Any]], policy: str) -> list[Finding]:
    """Findings of only these nodes under a policy; the run itself is not changed."""
    with tempfile.TemporaryDirectory(prefix="unhang-policy-") as place:
        copy = Path(place, "run")
        (copy / "nodes").mkdir(parents=True)
        run_folder.write_document(
            copy / "run.json", {**run_folder.read_run(folder).document, "hosts": list(nodes)}
        )
        for host, node in nodes.items():
            run_folder.write_document(copy / "nodes" / f"{run_folder.file_stem(host)}.json", node)
        Path(place, "policy.yml").write_text(policy, encoding="utf-8")
        judge_folder(copy, [], str(Path(place, "policy.yml")), today_or(None))
        return read_findings_record(copy).findings


def head_lines(run: str, hosts: list[str], accepted: Sequence[str]) -> list[str]:
    lines = [
        f"Written by unhang policy from {fold_hosts(hosts)} (run {run}): what these nodes share."
        " Read it before it is used; every key may be left out."
    ]
    return lines + (
        [f"Accepted although found on these nodes: {', '.join(accepted)}."] if accepted else []
    )


def summary_of(draft: Draft) -> str:
    return f"{len(draft.pins)} keys pinned, {len(draft.undecided)} left open"
