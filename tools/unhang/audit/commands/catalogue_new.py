"""`unhang catalogue new ID --when CONDITION`, or `--compare VALUE` for a group: prints a row that
is complete except for its texts and sources."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from unhang.core.catalogue.rule_files import own_rule_ids
from unhang.core.commands.common_options import (
    add_examples,
    add_rules,
    add_value,
)
from unhang.core.errors import UserError
from unhang.core.limits import Limits, run_limited
from unhang.core.schemas.shapes import ANY, Shape
from unhang.judge.fleet.drafts import Draft, draft_rule
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.costs import COSTS
from unhang.judge.rules.rules import SEVERITIES, Rule, RuleError, compile_rule
from unhang.judge.rules.syntax import shape_at
from unhang.judge.rules.values import printable

EXAMPLES = """\
  unhang catalogue new numa-on --when 'limits.numa_balancing and gpus.count >= 2'
  unhang catalogue new gpu-hot --for-each gpus.devices --when 'item.temperature_c >= 90'
  unhang catalogue new bios-differs --compare node.dmi.bios_version   the nodes of a group should have the same"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id",
        metavar="ID",
        help="the rule's id: small letters, digits and hyphens; name the fault, not the fix",
    )
    parser.add_argument(
        "--when",
        metavar="EXPRESSION",
        help="true means a finding, for example 'limits.numa_balancing and gpus.count > 1'",
    )
    add_value(parser, "--compare", "EXPRESSION", "the value that all nodes of a group should have")
    add_value(parser, "--applies", "EXPRESSION", "the nodes that the rule applies to")
    add_value(
        parser,
        "--for-each",
        "LIST",
        "a list in the facts; the rule judges each element as item, for example gpus.devices",
    )
    parser.add_argument(
        "--severity",
        choices=SEVERITIES,
        default="warning",
        metavar="SEVERITY",
        help=f"{', '.join(SEVERITIES)} (default: warning)",
    )
    add_rules(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if no examples were found. Raises UserError for an invalid condition or file."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", arguments.id):
        raise UserError(
            "ID takes small letters, digits and single hyphens such as numa-balancing-on,"
            f" not {arguments.id!r}"
        )
    if (arguments.compare is None) == (arguments.when is None):
        raise UserError(
            "give either --when, for a rule of a node, or --compare, for one of a group"
        )
    given = {name: getattr(arguments, name) for name in ("applies", "for_each", "when", "compare")}
    row = {
        "id": arguments.id,
        "severity": arguments.severity,
        "scope": "node" if arguments.compare is None else "group",
        **{key: value for key, value in given.items() if value is not None},
    }
    tables, taken = _tables_and_ids(given.values(), [Path(one) for one in arguments.rules])
    if arguments.id in taken:
        raise UserError(
            f"ID: the id {arguments.id} is taken; unhang explain {arguments.id} prints it"
        )
    found = run_limited(lambda mark: _drafted(row, tables), Limits())
    if isinstance(found, str):
        raise UserError(found)
    if not isinstance(found, tuple):
        raise UserError(
            "the search for examples was stopped at its limit; write them by hand, as"
            " docs/judging.md has it"
        )
    lines, complete = found
    print("\n".join(lines))
    return int(not complete)


def _tables_and_ids(
    expressions: Iterable[str | None], folders: list[Path]
) -> tuple[Mapping[str, Any], set[str]]:
    """(tables, ids of rules). Reading and compiling the whole catalogue takes seconds, so for a
    condition without a table only the ids of the project's own rules are read."""
    if folders or any("tables" in (expression or "") for expression in expressions):
        catalogue = load_catalogue(folders)
        return catalogue.tables, {rule.id for rule in catalogue.rules}
    return {}, own_rule_ids()


def _drafted(row: dict[str, Any], tables: Any) -> tuple[list[str], bool] | str:
    """(lines, whether there are both examples), or the fault of the condition."""
    trial = {**row, "title": "?", "expected": "?", "found": "?", "remedy": {"person": "?"}}
    try:
        quoted = _quoted(compile_rule(trial, tables))
        draft = draft_rule({**trial, "found": quoted}, tables)
    except RuleError as problem:
        return f"--{problem.field.replace('_', '-')}: {printable(str(problem))}"
    return _rendered(row, quoted, draft), bool(draft.matches and draft.near_misses)


def _quoted(rule: Rule) -> str:
    """The text of `found`, which quotes the facts of the condition."""
    item = rule.for_each.kind.items().path if rule.for_each is not None else None
    parts = []
    for path in sorted(
        {
            one[:-1] if one[-1] == "*" else one
            for one in (rule.when.reads if rule.when is not None else ())
        }
    ):
        inside = item is not None and path[: len(item)] == item and len(path) > len(item)
        names = ("item", *path[len(item or ()) :]) if inside else path
        shape = shape_at(path)
        if path[0] not in ("policy", "tables") and "*" not in names and shape is not ANY:
            listed = shape.kind == "list" and shape.item is not None and shape.item.is_scalar
            if shape.is_scalar or listed:
                joined = " | join(', ')" if listed else ""
                parts.append(f"{path[-1]} {{{{ {written(names)}{joined} }}}}")
    named = [f"{name} {{{{ item.{name} }}}}" for name in rule.where_fields[:2]]
    return ", ".join(dict.fromkeys([*parts, *named])) or "the condition holds"


def _rendered(row: dict[str, Any], quoted: str, draft: Draft) -> list[str]:
    """The row as YAML; fields that only a person can write are empty, and `unhang catalogue check`
    names them."""
    lines = [
        "# facts that decide:",
        *(f"#   {written(place.path)}: {_kind(place.shape)}" for place in draft.places),
        "rules:",
    ]
    may_cost = [name for name, (severity, _) in COSTS.items() if severity == row["severity"]]
    fields: dict[str, Any] = {
        "id": "",
        "title": "",
        **row,
        **({"costs": may_cost[0]} if may_cost else {}),
        **({"expected": "", "found": quoted} if row["scope"] == "node" else {}),
        "remedy": {"person": ""},
        "sources": [{"url": "", "says": ""}],
        "confidence": "reported",
    }
    lines += [
        f"  {'- ' if key == 'id' else '  '}{key}: {_flow(value)}"
        + (f"  # of {', '.join(may_cost)}" if key == "costs" else "")
        for key, value in fields.items()
    ]
    lines.append("    examples:")
    for key, examples in (("match", draft.matches), ("near_miss", draft.near_misses)):
        lines.append(
            f"      {key}:" if examples else f"      {key}: []  # none was found: write one"
        )
        lines += [f"        - {_flow(one)}" for one in examples]
    return lines + [
        f"        # {written(path)}: no value of it alone makes a near miss"
        for path in draft.without_near_miss
    ]


def written(path: tuple[str, ...]) -> str:
    """The path as a rule writes it: limits.sysctls['vm.swappiness']; [*] for the items of a
    list."""
    steps = (
        "[*]" if part == "*" else f".{part}" if part.isidentifier() else f"['{part}']"
        for part in path[1:]
        if part != "**"
    )
    return path[0] + "".join(steps)


def _kind(shape: Shape) -> str:
    """flag, number, text of a version, or what the schema allows."""
    kind = f"one of {', '.join(str(one) for one in shape.values)}" if shape.values else shape.kind
    return f"{kind}, compared as a version ({shape.version})" if shape.version else kind


def _flow(value: Any) -> str:
    return (
        yaml.safe_dump(
            value, default_flow_style=True, width=1_000_000, sort_keys=False, allow_unicode=True
        )
        .removesuffix("\n...\n")
        .strip()
    )
