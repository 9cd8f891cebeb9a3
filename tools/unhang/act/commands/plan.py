"""`unhang plan RUN`: turns a run's findings into a plan, writes it into the run folder and shows
it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from unhang.act.commands.asking_schedulers import MOST_BYTES, ask_schedulers
from unhang.act.plan.description import describe_limits, describe_manual_work, describe_totals
from unhang.act.plan.later_waivers import waivers_now, without_waived
from unhang.act.plan.plan_document import (
    FILE,
    JOURNAL,
    LOCK,
    Job,
    Plan,
    digest_of_plan,
    read_plan,
    render_plan,
)
from unhang.act.plan.plan_table import render_plan_table
from unhang.act.plan.planned_findings import read_planned_findings
from unhang.act.plan.planning import (
    FLOOR,
    MAX_UNAVAILABLE,
    PlanOptions,
    plan_run,
    without_collections,
)
from unhang.act.plan.scheduler_jobs import SchedulerJobs
from unhang.audit.commands.filters import Filters, add_filters, asked_filter, typed
from unhang.core.commands.common_options import (
    add_examples,
    add_flag,
    add_format_option,
    add_quiet,
    add_repeatable,
    add_value,
)
from unhang.core.commands.deliver import deliver
from unhang.core.commands.row_output import show_rows
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.project import program_as_typed
from unhang.core.run import run_folder
from unhang.core.run.actions import ANY_INVENTORY, Setting, remediate_options
from unhang.core.run.findings import read_findings
from unhang.core.run.own_runs import is_own, own_inventories, own_options
from unhang.core.run.run_folder import as_typed, read_run
from unhang.core.run.run_input import read_nodes, read_run_input
from unhang.core.strict_json import NotStrict, read_bounded
from unhang.core.terminal import terminal_shape
from unhang.core.text import ascii_only, visible
from unhang.judge.rules.compiled_catalogue import load_catalogue

FORMATS = ("table", "csv", "json")
COLUMNS = ("wave", "host", "role", "before", "after", "because", "reboots", "refused", "person")
EXAMPLES = """\
  unhang plan                                                  of the last audit: shows the plan, and makes it if there is none yet
  unhang plan --max-unavailable 5% --floor 90% --group-limit 'rack*=1'
  unhang plan --rule driver-545-23-08-p2p-deadlock --host 'gpu[001-016]'   for one cause
  unhang plan -o csv > plan.csv                                a row for each node and role"""  # noqa: E501
WIDTH, WIDEST = 80, 120
REPLACED = "gpu-needs-replacement"  # the rule whose nodes get a ticket
ASKED = "scheduler-jobs.json"  # the schedulers' answers that the run's plan was made with
DIGEST_SHOWN = 12
KeepTicket = Callable[[Path, Mapping[str, Any], str], Path]
"""report_ticket.keep_ticket, which the command line hands over."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default=run_folder.latest_run(),
        help="run folder or its id (default: %(default)s)",
    )
    repeatable = "; repeatable"
    add_filters(parser, "findings to plan for")
    parser.add_argument(
        "--except",
        dest="except_",
        action="append",
        default=[],
        metavar="HOSTS",
        help=f"exclude hosts or groups: 'gpu[001-004]'{repeatable}",
    )
    most = "nodes out of service at the same time, of those that answered (default: %(default)s)"
    add_value(parser, "--max-unavailable", "N|N%", most, default=MAX_UNAVAILABLE)
    add_value(
        parser,
        "--floor",
        "N|N%",
        "nodes that always stay in service (default: %(default)s)",
        default=FLOOR,
    )
    of_group = (
        "nodes of an inventory group out of service at the same time: 'rack*=1',"
        f" 'debug=50%%'{repeatable}"
    )
    add_repeatable(parser, "--group-limit", "GROUP=N", of_group)
    add_flag(
        parser, "--new", "make another plan where the run has one; the old one is kept beside it"
    )
    add_format_option(parser, FORMATS, {"csv": "also with every manual action"})
    add_quiet(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace, keep_ticket: KeepTicket) -> int:
    """0 if a plan was made, even an empty one; raises UserError if none can be made."""
    folder = run_folder.find_run(arguments.run)
    limits = PlanOptions(
        arguments.max_unavailable,
        arguments.floor,
        arguments.group_limit,
        except_=arguments.except_,
    )
    filters = Filters.of(arguments)
    plan = plan_of(folder, limits, filters, keep_ticket, arguments.new)
    if arguments.format == "json" and not arguments.quiet:
        deliver(render_plan(plan), "-")
    elif arguments.format == "table" and not arguments.quiet:
        deliver(_table(plan, folder, deciding(limits, filters)), "-")
    else:
        show_rows(arguments.format, arguments.quiet, lambda width: (), list(rows_of(plan)), COLUMNS)
    return 0


def plan_of(
    folder: Path, limits: PlanOptions, filters: Filters, keep_ticket: KeepTicket, is_new: bool
) -> Plan:
    """The plan that the run has; another one only if it is to be new, for who looks at a plan must
    not replace it. Raises UserError."""
    plan = _plan_that_is_there(folder)
    if is_new or plan is None:
        return _make_plan(folder, limits, filters, keep_ticket)
    if asked := deciding(limits, filters):
        made = compute_plan(folder, limits, filters)
        if digest_of_plan(made) != digest_of_plan(plan):
            raise UserError(
                f"this run already has {name_of(plan)} ({describe_limits(plan)}), shown by: unhang"
                f" plan {as_typed(folder)}; to make another with {shlex.join(asked)}, add --new"
            )
    return plan


def _plan_that_is_there(folder: Path) -> Plan | None:
    """None without a plan, and for one that cannot be read, which nobody could apply."""
    try:
        return read_plan(folder) if (folder / FILE).is_file() else None
    except UserError:
        return None


def name_of(plan: Plan) -> str:
    """What a person knows the plan by."""
    return f"plan {digest_of_plan(plan)[:DIGEST_SHOWN]}"


def _make_plan(
    folder: Path, limits: PlanOptions, filters: Filters, keep_ticket: KeepTicket
) -> Plan:
    """Makes the plan as compute_plan does, and writes plan.json. Another plan that the run has had
    is kept beside it, and the difference is printed."""
    (folder / ASKED).unlink(missing_ok=True)
    plan = compute_plan(folder, limits, filters)
    _keep(folder, plan)
    _keep_tickets(folder, plan, keep_ticket)
    return plan


def _keep_tickets(folder: Path, plan: Plan, keep_ticket: KeepTicket) -> None:
    """Writes the vendor's ticket of each node of the plan with a GPU to replace, and names it."""
    hosts = [one.host for one in plan.hosts if REPLACED in {person.rule for person in one.person}]
    findings = read_findings(folder) if hosts else {}
    for host in hosts:
        ticket = keep_ticket(folder, findings, host)
        sys.stderr.write(
            f"unhang: a GPU of {visible(host, 200)} must be replaced; the vendor's"
            f" ticket: {as_typed(ticket)}\n"
        )


@without_collections()
def compute_plan(folder: Path, limits: PlanOptions, filters: Filters) -> Plan:
    """The plan for the findings that the filters select, by the rules that judged the run, without
    those that the inventory's policy waives by now, which are listed."""
    findings, waived = _without_waived(folder)
    if waived:
        sys.stderr.write(
            "unhang: left out by waivers that the inventory's policy has now, written after the"
            f" audit: {'; '.join(waived)}\n"
        )
    further = (findings.get("judged_by") or {}).get("rules") or ()
    return plan_run(
        folder,
        load_catalogue([Path(one) for one in further]),
        _narrowed(limits, folder, findings, filters),
        findings,
        lambda hosts: _scheduler_jobs(folder, hosts),
    )


def _scheduler_jobs(folder: Path, hosts: Mapping[str, Sequence[str]]) -> SchedulerJobs:
    """The answers of the schedulers, which are asked when the first plan of the run, or with --new
    another one, is made: what else is computed from the run has the same. Nobody is asked about a
    run that was not made here."""
    kept = folder / ASKED
    with suppress(OSError, NotStrict, ValueError):
        return msgspec.json.decode(read_bounded(kept, MOST_BYTES), type=dict[str, list[Job]])
    if not is_own(folder):
        return {}
    asked = ask_schedulers(hosts, own_inventories(folder), own_options(folder))
    run_folder.write_atomically(kept, msgspec.json.encode(asked).decode() + "\n")
    return asked


def _without_waived(folder: Path) -> tuple[dict[str, Any], list[str]]:
    findings = read_planned_findings(folder)
    waivers = waivers_now(folder, today_or(None))
    if not waivers:
        return findings, []
    groups_of = {node.host: node.groups for node in read_nodes(read_run_input(folder))}
    return without_waived(findings, waivers, groups_of)


def _narrowed(
    limits: PlanOptions, folder: Path, findings: Mapping[str, Any], filters: Filters
) -> PlanOptions:
    asked = asked_filter(folder, findings, filters)
    if asked is None:
        return limits
    found = {
        str(one["rule"])
        for one in findings["findings"]
        if one["verdict"] == "fail" and asked.takes(one)
    }
    if not found:
        raise UserError(f"there are no findings of {asked.typed} to plan for in {as_typed(folder)}")
    rules = sorted(found) if asked.rules or asked.severities or asked.owners else ()
    return replace(limits, only=rules, hosts=asked.hosts)


def _keep(folder: Path, plan: Plan) -> None:
    """Writes plan.json. A rollout that has begun keeps its own plan."""
    path, text = folder / FILE, render_plan(plan)
    has_begun = (folder / JOURNAL).exists() or (folder / LOCK).exists()
    if has_begun and not (path.exists() and path.read_text(encoding="utf-8") == text):
        raise UserError(
            f"{folder / JOURNAL}: a rollout of this run's plan has begun; end it, or audit again"
            " and plan that run"
        )
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        _keep_old(path, plan)
    run_folder.write_atomically(path, text)


def _keep_old(path: Path, plan: Plan) -> None:
    """Keeps the plan that is replaced, under its digest, and prints what differs."""
    old = _plan_that_is_there(path.parent)
    if old is None:
        sys.stderr.write(f"unhang: {name_of(plan)} replaces a plan that could not be read\n")
        return
    kept = path.with_name(f"plan-{digest_of_plan(old)[:DIGEST_SHOWN]}.json")
    run_folder.write_atomically(kept, path.read_text(encoding="utf-8"))
    was, now = (f"{describe_limits(one)}; {describe_totals(one)}" for one in (old, plan))
    sys.stderr.write(
        f"unhang: {name_of(plan)} replaces {name_of(old)}, which is kept in {as_typed(kept)}\n "
        f" before: {was}\n  now:    {now}\n"
    )


def rows_of(plan: Plan) -> Iterator[dict[str, Any]]:
    """One row for each node and role, in the order of the waves; then the nodes with refusals, or
    that only a person can repair."""
    in_waves = [(one.name, plan.by_host[host]) for one in plan.waves for host in one.hosts]
    for wave, entry in [*in_waves, *((None, one) for one in plan.hosts)]:
        empty: dict[str, Any] = {
            **dict.fromkeys(COLUMNS),
            **{name: [] for name in ("because", "refused", "person")},
            "wave": wave,
            "host": entry.host,
            "reboots": sum(one.step != "rollback" for one in entry.reboots),
        }
        if wave is not None:
            yield from (
                {
                    **empty,
                    "role": one.role,
                    "before": one.before,
                    "after": one.after,
                    "because": list(one.because),
                }
                for one in entry.remedies
            )
        elif entry.refused or entry.person:
            yield {
                **empty,
                "reboots": 0,
                "refused": [one.why for one in entry.refused],
                "person": [f"{one.rule}: {one.what}" for one in entry.person],
            }


def _table(plan: Plan, folder: Path, options: Sequence[str]) -> str:
    columns, _colour, plain = terminal_shape(sys.stdout, os.environ)
    width = min(columns, WIDEST) if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDTH
    again = shlex.join(["plan", as_typed(folder), *options, "-o", "csv"])
    whole = f"{program_as_typed()} {again}"
    setting = Setting(is_own=is_own(folder))
    causes = read_planned_findings(folder).get("causes") or ()
    table = render_plan_table(
        plan,
        width,
        next_step=_preview(folder) if plan.waves else "",
        work=describe_manual_work(plan, causes, setting),
        whole=whole,
    )
    return ascii_only(table) if plain else table


def deciding(limits: PlanOptions, filters: Filters) -> list[str]:
    """The options that decide what is planned, as they were typed: the command that shows more
    makes the same plan again."""
    given = [*typed(filters), *(("except", one) for one in limits.except_)]
    if limits.max_unavailable != MAX_UNAVAILABLE:
        given.append(("max-unavailable", limits.max_unavailable))
    if limits.floor != FLOOR:
        given.append(("floor", limits.floor))
    given += (("group-limit", one) for one in limits.group_limits)
    return [f"--{name}={value}" for name, value in given]


def _preview(folder: Path) -> str:
    """The command that previews the changes of the plan's roles, reaching the nodes as the audit
    did; only an additional option applies them."""
    document = read_run(folder).document
    # documents of unhang collect name none
    is_reached = document.get("inventory") is not None and is_own(folder)
    inventory = "" if is_reached else f" -i {ANY_INVENTORY}"
    options = remediate_options(own_options(folder))
    return f"{program_as_typed()} remediate {shlex.quote(as_typed(folder))}{inventory}{options}"
