"""unhang-quick: facts, the rules of severity error and above, and changes since admission; no
torch, no GPU time. For prologs and boot."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time

from unhang_quick.host_programs import (
    FAIL,
    NOT_MADE,
    PASS,
    PROGRAMS,
    UNKNOWN,
    answer_for,
    give,
    write_line,
)

from unhang_node.base.program import load_nvidia_ml_py, open_standard_descriptors
from unhang_node.facts.collect import collect

SEVERITIES = ("critical", "error", "warning", "info")
MOST_BYTES = 64 * 1024 * 1024
MARKED = {0: 65, 1: 64}
# no verdict on a scheduler's node: to drain it would empty a partition without GPUs
NO_GPUS = "no-gpus"


class NotGiven(Exception):
    """A file has another content than expected; the text is for people."""


def main(arguments):
    """The exit code: 0 nothing found, 1 findings at or above --fail-on or no GPU node, 2 the check
    could not be made; with --as the code that the program expects."""
    open_standard_descriptors()
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    try:
        chosen = parser().parse_args(arguments)
    except (
        SystemExit
    ) as ended:  # otherwise wrong use in a prolog would drain each node on which it runs
        for_scheduler = any(word.split("=")[0] == "--as" for word in arguments) and not {
            "kubernetes",
            "--as=kubernetes",
            "--require-proof",
        } & set(arguments)
        return (
            (0 if for_scheduler else NOT_MADE)
            if ended.code
            else MARKED[0]
            if "--marked" in arguments
            else 0
        )
    code = answer(chosen)
    return MARKED.get(code, code) if chosen.marked else code


def answer(chosen):
    """The exit code of a check with these options."""
    try:
        verdict, reason, rows = look(chosen)
    except Exception as problem:  # any exception: a check that fails must not drain a cluster
        kind = "" if isinstance(problem, NotGiven) else "{}: ".format(type(problem).__name__)
        verdict, reason, rows = (
            UNKNOWN,
            "not checked: {}{}".format(kind, " ".join(str(problem).split())[:300]),
            [],
        )
    if chosen.host_program:
        return give(
            answer_for(
                chosen.host_program,
                UNKNOWN if verdict == NO_GPUS else verdict,
                reason,
                chosen.node or node_name(),
                chosen.require_proof,
            )
        )
    show(rows, reason, chosen.format)
    return {PASS: 0, FAIL: 1, NO_GPUS: 1}.get(verdict, NOT_MADE)


def parser():
    """The options."""
    options = argparse.ArgumentParser(
        prog="unhang-quick",
        description=(
            "Judges this node by the rules of severity error and above. Changes nothing, uses no"
            " GPU."
        ),
        allow_abbrev=False,  # whether --as is there is asked before options are read
    )
    options.add_argument(
        "--as",
        dest="host_program",
        choices=PROGRAMS,
        help="answer as this program takes it; only a fail drains",
    )
    options.add_argument(
        "--fail-on",
        choices=SEVERITIES[:2],
        default="error",
        help="what fails the node (default: %(default)s)",
    )
    options.add_argument(
        "--facts",
        metavar="FILE",
        help="judge these facts (unhang-collect's output) instead of this machine",
    )
    options.add_argument("--policy", metavar="FILE", help="the node's policy as JSON")
    options.add_argument(
        "--node",
        metavar="NAME",
        help="its name in Slurm (default: slurmd's own, else the host name)",
    )
    marked = (
        "for a script: end with 65 for 0 and with 64 for 1, which no Python that is broken does"
    )
    options.add_argument("--marked", action="store_true", help=marked)
    proof = (
        "under --as, keep jobs off a node that could not be checked: {} instead of 0, and a drain"
        " by slurm-healthcheck"
    )
    options.add_argument("--require-proof", action="store_true", help=proof.format(NOT_MADE))
    options.add_argument("--format", choices=("table", "json"), default="table")
    return options


def node_name():
    """This node as slurmd calls it, else its host name."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]


def look(chosen):
    """(verdict, one line, rows). Passes every exception on."""
    facts = (
        read_json(chosen.facts)
        if chosen.facts
        else collect({"collected_via": "file"}, load_nvidia_ml_py)
    )
    if not isinstance(facts, dict) or not isinstance(facts.get("sections"), dict):
        raise NotGiven(
            "{} holds a document without sections, not the output of unhang-collect".format(
                chosen.facts
            )
        )
    from unhang_quick.judging import (
        judge,
        policy_fault,
    )  # after the facts were read: "cannot be read" and "cannot be judged" are different results

    policy = read_json(chosen.policy) if chosen.policy else {}
    policy = policy.get("unhang_policy", policy) if isinstance(policy, dict) else policy
    fault = policy_fault(policy)
    if fault:
        raise NotGiven("policy {}: {}".format(chosen.policy, fault))
    rows = judge(facts, policy, time.strftime("%Y-%m-%d", time.gmtime()), os.uname().nodename)
    counted = SEVERITIES[: SEVERITIES.index(chosen.fail_on) + 1]
    failed = [row for row in rows if row["verdict"] == "fail" and row["severity"] in counted]
    # schedulers keep 80 to 200 characters of the reason
    failed.sort(key=lambda row: SEVERITIES.index(row["severity"]))
    if failed:
        return (
            FAIL,
            "; ".join(dict.fromkeys("{}: {}".format(row["rule"], row["found"]) for row in failed)),
            rows,
        )
    sections = [
        name
        for name, section in facts["sections"].items()
        if section["probe"]["status"] not in ("ok", "absent")
    ]
    if sections:
        return UNKNOWN, "not read: {}".format(", ".join(sections)), rows
    if is_without_gpus(facts["sections"]):
        return NO_GPUS, "not a GPU node: no NVIDIA GPU on the PCI bus and no driver", rows
    return PASS, "nothing found", rows


def is_without_gpus(sections):
    """As the judge of a run decides it: no GPU on the bus, none that the driver shows, no driver
    in the kernel; not in WSL, whose GPUs are on no bus."""
    gpus, loaded = sections.get("gpus") or {}, (sections.get("driver") or {}).get("loaded") or {}
    machine = (sections.get("node") or {}).get("virtualization") or {}
    return (
        gpus.get("pci_count") == 0
        and not gpus.get("count")
        and not loaded.get("is_loaded")
        and machine.get("kind") != "wsl"
    )


def read_json(path):
    """A JSON document of a regular file. Raises NotGiven."""
    try:
        # a pipe may never be written to
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise NotGiven("{} is not a regular file".format(path))
            text = source.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise NotGiven("more than {} bytes are in {}".format(MOST_BYTES, path))
        return json.loads(text.decode("utf-8"))
    except OSError as problem:
        raise NotGiven("{} cannot be read: {}".format(path, problem.strerror)) from None
    except ValueError as problem:
        raise NotGiven("{} does not hold JSON: {}".format(path, problem)) from None


def show(rows, reason, form):
    """To standard output."""
    if form == "json":
        write_line(sys.stdout, json.dumps(rows))
        return
    for row in rows:
        if row["verdict"] == "fail":
            for line in (
                "{severity}: {rule}: {title}",
                "  expected  {expected}",
                "  found     {found}",
            ):
                write_line(sys.stdout, line.format(**row))
    write_line(sys.stdout, reason)
