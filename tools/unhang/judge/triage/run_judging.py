"""Judges a run folder in a child process with limits: rules that exceed them are skipped and
reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.limits import Limits, Stopped, run_limited
from unhang.core.run.actions import Setting
from unhang.core.run.own_runs import is_own, own_options
from unhang.core.run.run_input import RunInput, of_one_host, read_run_input
from unhang.core.schemas.policy import PolicyFile, load_policy
from unhang.judge.fleet.findings import Entry
from unhang.judge.fleet.judged_node import Conclude, JudgedNode
from unhang.judge.fleet.judging import judge_run, thresholds_of
from unhang.judge.rules.compiled_catalogue import Catalogue, load_catalogue
from unhang.judge.rules.found import Found
from unhang.judge.rules.rules import Rule
from unhang.judge.triage.causes import Repairs, triage, with_role_by_host
from unhang.judge.triage.found import found_of_entries
from unhang.judge.triage.grouping import explaining_of

RepairsOfRun = Callable[
    [RunInput, Catalogue, str, Mapping[str, Sequence[Found]]], Mapping[str, Repairs]
]
"""Who repairs the findings of each host: run, catalogue, day, findings by host."""
MOST_STOPPED = 5
SHOWN_FAULTS = 20


def judge_folder(
    folder: Path,
    rules: list[Path],
    policy: str | None,
    today: str,
    limits: Limits | None = None,
    out: Path | None = None,
    repairs: RepairsOfRun | None = None,
    host: str | None = None,
) -> dict[str, Any]:
    """Writes findings.json (or `out`) and returns it without its findings. A rule that must be
    stopped is skipped and reported. Raises UserError, OSError. repairs: of the plan; without it the
    rule's role is shown. host: judges this host of the run alone, without comparing it."""
    run_input = read_run_input(folder)
    if host is not None:
        run_input = of_one_host(run_input, host)
    limits = limits or _limits(len(run_input.files))
    stopped: list[str] = []
    while True:
        found = run_limited(
            _work(run_input, rules, policy, today, list(stopped), out, repairs), limits
        )
        if not isinstance(found, Stopped):
            return found
        if not found.at or found.at in stopped or len(stopped) >= MOST_STOPPED:
            raise UserError(
                f"judging was stopped: it used up its {found.by} ({limits}); last at"
                f" {found.at or 'reading the rules'}"
            )
        stopped.append(found.at)


def check_rules_and_policy(rules: list[Path], policy: str | None) -> None:
    """Raises UserError for rules or a policy that could not be used, before any work that needs
    them."""

    def work(mark: Callable[[str], None]) -> list[str]:
        catalogue = load_catalogue(rules)
        if policy:
            load_policy(Path(policy), thresholds_of(catalogue.rules))
        return list(catalogue.faults)

    faults = run_limited(work, Limits()) if rules or policy else []
    if isinstance(faults, Stopped):
        raise UserError(
            f"reading the rules was stopped: it used up its {faults.by}; unhang catalogue check DIR"
            " names the rule of a folder"
        )
    if faults:
        more = [f"and {len(faults) - SHOWN_FAULTS} more"] if len(faults) > SHOWN_FAULTS else []
        raise UserError(
            "\n".join(
                [
                    *faults[:SHOWN_FAULTS],
                    *more,
                    "no node was asked; check rules with: unhang catalogue check DIR",
                ]
            )
        )


def conclusion(
    rules: Sequence[Rule],
    judged_by: Mapping[str, Any] | None = None,
    setting: Setting | None = None,
    repairs_of: Callable[
        [Mapping[str, Sequence[Found]]], Mapping[str, Repairs]
    ] = lambda findings: {},
) -> Conclude:
    """The function that the judge calls when all findings are known; it returns the keys of
    findings.json that triage adds. judged_by: as in the schema findings-1; setting: surroundings
    for the commands of the causes; repairs_of: who repairs the findings of these hosts."""
    explaining = explaining_of({rule.id: rule.row for rule in rules})

    def conclude(entries: list[Entry], nodes: dict[str, JudgedNode]) -> dict[str, Any]:
        by = {} if judged_by is None else {"judged_by": _with_used_policies(judged_by, nodes)}
        found = list(found_of_entries(entries))
        return {
            **by,
            **triage(found, explaining, nodes, setting, repairs_of(with_role_by_host(found))),
        }

    return conclude


def _with_used_policies(
    judged_by: Mapping[str, Any], nodes: Mapping[str, JudgedNode]
) -> dict[str, Any]:
    """judged_by, with policies_from: none where the nodes' own policies count and no node has one
    that can be used."""
    nobody_has_one = "policies_from" in judged_by and not any(
        node.policy for node in nodes.values()
    )
    return {**judged_by, **({"policies_from": "none"} if nobody_has_one else {})}


def _limits(nodes: int) -> Limits:
    """Limits far above the needs of any regular catalogue, so that only a rule that never ends
    reaches them."""
    return Limits(60 + nodes // 50, (1 << 30) + nodes * 100_000, 600 + nodes // 5)


def _work(
    run_input: RunInput,
    rules: list[Path],
    policy: str | None,
    today: str,
    without: list[str],
    out: Path | None,
    repairs: RepairsOfRun | None = None,
) -> Callable[[Callable[[str], None]], Any]:
    inventories = run_input.document.get("inventory")
    own = {} if policy else {"policies_from": "documents" if inventories is None else "inventory"}
    judged_by = {"policy": policy, "rules": [str(folder) for folder in rules], **own}
    # roles are proved by the inventory's policy, and a plan reads only findings.json
    planned = "" if policy or out else str(run_input.document["id"])
    options = tuple(own_options(run_input.folder))
    setting = Setting(
        run=planned,
        reachable=inventories is not None,
        options=options,
        is_own=is_own(run_input.folder),
    )

    def work(mark: Callable[[str], None]) -> dict[str, Any]:
        catalogue = load_catalogue(rules)
        if not catalogue.rules:
            raise UserError(
                "\n".join(
                    [
                        *catalogue.faults[:SHOWN_FAULTS],
                        "there are no rules that can be used",
                    ]
                )
            )
        chosen: PolicyFile | None = (
            load_policy(Path(policy), thresholds_of(catalogue.rules)) if policy else None
        )

        def repairs_of(findings: Mapping[str, Sequence[Found]]) -> Mapping[str, Repairs]:
            return repairs(run_input, catalogue, today, findings) if repairs and planned else {}

        return judge_run(
            run_input,
            catalogue,
            today,
            chosen,
            mark,
            without,
            conclusion(catalogue.rules, judged_by, setting, repairs_of),
            out,
        )

    return work
