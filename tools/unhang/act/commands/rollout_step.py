"""`unhang rollout-step`: called by the playbooks that change nodes; prints JSON. No help lists
it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unhang.act.rollout.baseline import from_document
from unhang.act.rollout.proof import SERIOUS, Asked
from unhang.act.rollout.rollout import baseline_beside, begin, prove_node
from unhang.audit.rules.rules import SEVERITIES
from unhang.audit.triage.run_judging import judge_folder
from unhang.core.commands.common_options import (
    add_flag,
    add_value,
)
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.list_arguments import split_list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        choices=("begin", "prove"),
        help="begin: judge the run and its policies; prove: judge one node again",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder")
    parser.add_argument(
        "host", metavar="HOST", nargs="?", default="", help="the host that is proved"
    )
    parser.add_argument(
        "--rules",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a folder with additional rules; repeatable",
    )
    add_value(
        parser,
        "--before",
        "RUN",
        "with begin: run folder with the state before a rollout that is undone: the baseline",
        Path,
    )
    parser.add_argument(
        "--severities",
        default=",".join(SERIOUS),
        help="severities that keep a node from being healthy",
    )
    add_value(
        parser,
        "--baseline",
        "JSON",
        "the baseline that the node has kept; null: the copy in the folder of --beside",
        default="null",
    )
    add_value(
        parser,
        "--about",
        "JSON",
        "what is written beside the proof; roles: those that were played; for_a_person: rules"
        " that the plan leaves to a person",
        default="{}",
    )
    add_flag(parser, "--rolled-back", "the node was brought back, and not to its policy")
    add_value(
        parser,
        "--beside",
        "DIR",
        "with prove: the folder of the plan, in which what a proof saw is kept",
        Path,
    )
    add_flag(
        parser,
        "--found-by-this-run",
        "the baseline is not from before the changes that were rolled back",
    )


def run(arguments: argparse.Namespace) -> int:
    """0 with JSON on standard output. Raises UserError."""
    try:
        print(json.dumps(_answer(arguments)))
    except ValueError as problem:
        raise UserError(str(problem)) from None
    return 0


def _answer(arguments: argparse.Namespace) -> dict[str, Any]:
    today = today_or(None)
    if arguments.step == "begin":
        return begin(arguments.run, arguments.rules, today, judge_folder, arguments.before)
    own, about = json.loads(arguments.baseline), json.loads(arguments.about)
    if own is None and arguments.beside is not None:
        baseline = baseline_beside(arguments.beside, arguments.host)
    else:
        baseline = from_document(own)
    severities = split_list(arguments.severities, "--severities", SEVERITIES)
    asked = Asked(
        severities=severities,
        roles=about.get("roles", ()),
        rolled_back=arguments.rolled_back,
        found_by_this_run=arguments.found_by_this_run,
        for_a_person=about.get("for_a_person", ()),
    )
    return prove_node(
        arguments.run,
        arguments.host,
        arguments.rules,
        today,
        about,
        asked,
        baseline,
        judge_folder,
        arguments.beside,
    )
