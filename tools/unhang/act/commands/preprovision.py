"""`unhang preprovision --host HOSTS`: runs playbooks/preprovision.yml, shows which nodes may join;
`--verify` checks the record of one that joined."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from unhang.act.commands.record_check import check_record
from unhang.act.gate.deciding import FAIL as FAILED
from unhang.act.gate.deciding import NOT_PROVED
from unhang.act.gate.deciding import PASS as PASSED
from unhang.act.gate.host_programs import FAIL, PASS, PROGRAMS, UNKNOWN, answer_for, give
from unhang.act.gate.outcome import exit_code
from unhang.act.gate.records import read_gate
from unhang.audit.commands.audit_ways import ReadOptions, folder_of
from unhang.audit.report.gate import render_gate, render_gate_junit
from unhang.core import project
from unhang.core.ansible import ansible_env, packed_pynvml
from unhang.core.ansible.plain_data import data_for_ansible
from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import (
    ended_early,
    inventories_of,
    limit_arguments,
    play_into,
    why_no_run,
)
from unhang.core.commands.common_options import (
    add_ansible,
    add_examples,
    add_flag,
    add_format_option,
    add_inventory,
    add_out,
    add_repeatable,
    add_value,
)
from unhang.core.errors import UserError
from unhang.core.list_arguments import split_list
from unhang.core.nodeset import expand_limit
from unhang.core.run.own_runs import mark_as_own
from unhang.core.run.run_folder import as_typed
from unhang.core.secrets_in_text import masked_document
from unhang.core.signing import public_key
from unhang.core.terminal import terminal_shape
from unhang.judge.rules.rules import SEVERITIES

FORMATS = ("table", "json", "junit")
EXAMPLES = """\
  unhang preprovision --host 'gpu[017-018]' -i inventory/mycluster --reference gpu001   beside a node that is known to be good
  unhang preprovision --host rack7 -i inventory/mycluster --key gate_key --days 90 -o junit
  unhang preprovision --verify runs/latest/admission/gpu017 --key gate_key.pub
  unhang preprovision --verify /etc/unhang/admission --key gate_key.pub --facts node.json -o json   whether this node is still the one that was admitted"""  # noqa: E501
# Banner of a task -> the message when it begins.
STEPS = {
    "Judge the facts of the audit": "judge the facts of the audit",
    "Smoke test, each node alone": "smoke test, each node alone",
    "Smoke test, together": "smoke test, together",
    "Report what was decided": "decide",
}
SMOKE_STEPS = [name for name, meaning in STEPS.items() if "smoke" in meaning]
VERDICTS = {PASSED: PASS, FAILED: FAIL, NOT_PROVED: UNKNOWN}
BANNER = re.compile(r"TASK \[(?:\w+ : )?(.*)\] \**$")
# Ansible passes over a host that the inventory lacks: the others would pass for it
STRICT = {"ANSIBLE_HOST_PATTERN_MISMATCH": "error"}
MESSAGE = re.compile(r"^\s*\"?msg\"?: (.+?),?$", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="?", help=argparse.SUPPRESS)  # --host, before it had a name
    add_inventory(parser)
    nodes = "node sets (gpu[001-016]), groups, Ansible patterns"
    add_repeatable(parser, "-l --host", "HOSTS", nodes)
    add_value(
        parser,
        "--reference",
        "HOST",
        "a node that is known to be good; it is tested with the others and must be idle",
    )
    severities = (
        f"severities of audit findings that fail a node: {', '.join(SEVERITIES)} (default:"
        " %(default)s)"
    )
    add_value(parser, "--severities", "LIST", severities, default="critical,error")
    add_value(parser, "--python", "PATH", "the Python with the users' torch on the nodes")
    add_value(parser, "--container-image", "IMAGE", "run the smoke test in this image")
    quick = (
        "run only the audit, which includes changes since admission: no smoke test, no GPU time, no"
        " admission record"
    )
    add_flag(parser, "--quick", quick)
    answer = (
        "with --quick and one node: print the answer and use the exit code that this program"
        " expects; only a fail drains"
    )
    parser.add_argument(
        "--as",
        dest="host_program",
        choices=PROGRAMS,
        metavar="PROGRAM",
        help=f"{answer} ({', '.join(PROGRAMS)})",
    )
    add_value(
        parser,
        "--key",
        "FILE",
        "the gate's private key, which signs the admission records of nodes that pass; it stays"
        " on this machine. With --verify its public key: the controller's copy, not the node's",
    )
    add_value(
        parser, "--days", "N", "days until an admission expires (default: %(default)s)", int, 365
    )
    parser.add_argument("-f", "--forks", type=int, metavar="N", help="nodes to contact at a time")
    add_value(
        parser,
        "--verify",
        "RECORD",
        "test no node; check this admission record: its signature, its node, and changes"
        " since. RUN/admission/HOST, or /etc/unhang/admission of a node",
        Path,
    )
    facts = (
        "with --verify: facts of the node, runs/ID/nodes/HOST.json or output of unhang collect;"
        " without them the record is not compared with the node"
    )
    add_value(parser, "--facts", "FILE", facts, Path)
    add_value(
        parser,
        "--now",
        "DATE",
        "with --verify: the date of the check, for example 2026-12-31 (default: today)",
    )
    add_out(parser)
    add_ansible(parser)
    add_format_option(parser, FORMATS)
    add_examples(parser, EXAMPLES)


class GateOptions(ReadOptions, frozen=True, kw_only=True):
    """Which nodes are tested, and how; key: the file of the private key that signs admissions."""

    hosts: str
    reference: str | None
    severities: str
    python: str | None
    container_image: str | None
    quick: bool
    key: str | None
    days: int


def run(arguments: argparse.Namespace) -> int:
    """0 all pass, 1 a node failed, 3 no node failed and not all are proved; with --as the code for
    that program, with --verify 0 good, 3 not proved, 1 any other state."""
    arguments.hosts = ",".join([*arguments.host, *filter(None, [arguments.hosts])])
    if arguments.verify:
        if arguments.hosts:
            raise UserError(f"--verify takes no --host beside it; leave out {arguments.hosts}")
        return check_record(
            arguments.verify, arguments.key, arguments.now, arguments.facts, arguments.format
        )
    if not arguments.hosts or arguments.facts or arguments.now:
        raise UserError(
            "preprovision takes --host alone, or --verify RECORD; see unhang preprovision --help"
        )
    if arguments.host_program:
        return answer_host_program(arguments.host_program, GateOptions.of(arguments))
    document, folder = gate(GateOptions.of(arguments))
    deliver(document, arguments.format, folder)
    return exit_code(document)


def answer_host_program(program: str, options: GateOptions) -> int:
    """The exit code for the host program. Wrong use, or a gate without a decision, is no fail,
    because it would drain a node without a reason."""
    try:
        if not options.quick:
            raise UserError(
                "--as needs --quick beside it; a host program has no time for smoke tests"
            )
        document, _ = gate(options)
        rows = [row for row in document["nodes"] if row["host"] != document["reference"]]
        if len(rows) != 1:
            raise UserError(
                f"--as takes one node, not {len(rows)}:"
                f" {', '.join(row['host'] for row in rows)[:200]}"
            )
        verdict, reason, node = (
            VERDICTS[rows[0]["outcome"]],
            "; ".join(rows[0]["reasons"]) or "nothing found",
            rows[0]["host"],
        )
    except UserError as problem:
        verdict, reason, node = UNKNOWN, f"not checked: {problem}", ""
    return give(answer_for(program, verdict, reason, node))


def gate(options: GateOptions) -> tuple[dict[str, Any], Path]:
    """(gate.json of a new run, its folder). Raises UserError."""
    home = project.find_project()
    packed_pynvml.link_pynvml(home)
    variables = variables_of(options)
    folder = folder_of(options)
    command = [
        ansible_env.ansible_program("ansible-playbook"),
        str(home / "playbooks" / "preprovision.yml"),
    ]
    command += [
        word for inventory in inventories_of(options.inventory, home) for word in ("-i", inventory)
    ]
    command += ["--forks", str(options.forks)] if options.forks else []
    steps = {
        name: meaning
        for name, meaning in STEPS.items()
        if not (options.quick and name in SMOKE_STEPS)
    }
    with limit_arguments(limit_of(options.hosts, options.reference)) as limit:
        print("unhang: audit", file=sys.stderr, flush=True)
        played = play_into(
            [*command, *limit, "-e", data_for_ansible(variables), *options.ansible],
            home,
            folder,
            partial(show_step, steps),
            STRICT,
        )
    mark_as_own(folder)
    return outcome_of(folder, played, options), folder


def limit_of(hosts: str, reference: str | None) -> str:
    """The nodes of the run, always including the reference."""
    if reference is None or hosts.startswith("@") or reference in expand_limit(hosts):
        return hosts
    return f"{hosts},{reference}"


def variables_of(options: GateOptions) -> dict[str, Any]:
    """The playbook's variables. Raises UserError."""
    severities = split_list(options.severities, "--severities", SEVERITIES)
    if options.days < 1:
        raise UserError(f"--days takes a number of days above 0, not {options.days}")
    if options.key:
        public_key(Path(options.key))  # refused before anything is tested
    if options.quick and options.key:
        raise UserError("--key does not go with --quick, which tests no GPU and admits no node")
    given = {
        "preprovision_severities": severities,
        "preprovision_admission_days": options.days,
        "preprovision_key": options.key and str(Path(options.key).absolute()),
        "preprovision_reference": options.reference,
        "preprovision_quick": options.quick,
        "smoke_test_python": options.python,
        "smoke_test_container_image": options.container_image,
    }
    return {name: value for name, value in given.items() if value}


def show_step(steps: Mapping[str, str], line: str) -> None:
    """Handles one line of Ansible's output: the beginning of a step is printed on standard error.
    steps: as STEPS."""
    banner = BANNER.match(line)
    if banner and banner[1] in steps:
        print(f"unhang: {steps[banner[1]]}", file=sys.stderr, flush=True)


def outcome_of(folder: Path, played: Played, options: GateOptions) -> dict[str, Any]:
    """gate.json of the run. Raises UserError with the reason if nothing was decided."""
    if played.stopped or played.code < 0:
        raise UserError(ended_early(played, folder))
    try:
        return read_gate(folder)
    except UserError:
        messages = MESSAGE.findall(played.output)
        reason = (
            messages[-1].strip('"')
            if messages
            else why_no_run(played.output, options.inventory, options.hosts)
        )
        if "preprovision_reference among" in reason or (
            options.reference and f"none that {options.reference} names" in reason
        ):
            reason = f"--reference takes a host of the inventory, not {options.reference}"
        raise UserError(
            "nothing was decided:"
            f" {' '.join(reason.split())[:600].removeprefix('Task failed: Action failed: ')}"
        ) from None


def deliver(document: dict[str, Any], form: str, folder: Path) -> None:
    if form == "json":
        print(json.dumps(masked_document(document), indent=2))
    elif form == "junit":
        print(render_gate_junit(document), end="")
    else:
        _, _, plain = terminal_shape(sys.stdout, os.environ)
        print(render_gate(document, as_typed(folder), project.program_as_typed(), plain), end="")
