"""The options of commands that judge a run: `audit` and `judge`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.audit.commands.fail_on import add_fail_on
from unhang.audit.commands.filters import add_filters, check_filters
from unhang.audit.commands.run_output import ShownRun, add_format, check_page
from unhang.core.commands.common_options import (
    add_rules,
    add_value,
)
from unhang.core.commands.hooks import Hooks, add_hooks, check_hooks
from unhang.judge.triage.run_judging import check_rules_and_policy


def add_judging_options(parser: argparse.ArgumentParser, policy: str, *, is_new: bool) -> None:
    """Rules and policy, and how the findings are shown and counted. policy: what --policy replaces;
    is_new: what changed since the run before can be
    reported."""
    add_rules(parser)
    add_value(parser, "--policy", "FILE", f"use this policy instead of {policy}")
    add_format(parser)
    add_filters(parser, reads=is_new)
    add_fail_on(parser)
    if is_new:
        add_hooks(parser)


class JudgingOptions(ShownRun, frozen=True):
    """rules: folders of further rules; policy: a file, in place of the run's own."""

    rules: list[str]
    policy: str | None


def check_judging_options(options: JudgingOptions, hooks: Hooks) -> None:
    """Raises UserError for what would be found to be wrong only after the run was read."""
    rules = [Path(one) for one in options.rules]
    check_rules_and_policy(rules, options.policy)
    check_filters(options, rules)
    check_page(options)
    check_hooks(hooks)
