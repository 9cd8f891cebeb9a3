"""`unhang remediate PLAN|RUN`: rolls a plan out in waves with playbooks/remediate.yml, shows it,
continues after any interruption. Previews unless --apply is given."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from unhang.act.commands.plan import KeepTicket, name_of, plan_of
from unhang.act.commands.preview import refuse_another_than_previewed, run_preview, shown_line
from unhang.act.commands.rollout_display import following
from unhang.act.commands.typed_again import MAX_FAILED, RemediateOptions, typed_again
from unhang.act.commands.undo import planned_undo
from unhang.act.plan.description import describe_schedulers, describe_totals, describe_unrepaired
from unhang.act.plan.plan_document import FILE, Plan, read_plan
from unhang.act.plan.planned_findings import read_planned_findings
from unhang.act.plan.planning import PlanOptions
from unhang.act.plan.role_remedies import ROLE_ORDER
from unhang.act.rollout.failure_limit import allowed_failures, is_over
from unhang.act.rollout.journal import (
    append,
    controllers_of_a_lost_journal,
    read_journal,
)
from unhang.act.rollout.rollout_state import RolloutState, replay
from unhang.act.rollout.soak import DEFAULT as DEFAULT_SOAK
from unhang.act.rollout.soak import describe_soak, parse_soak, seconds_left, soaking_before
from unhang.act.rollout.status import describe_waiting, exit_code, status_of, undo_command
from unhang.act.rollout.status_table import ORDER, render_status
from unhang.act.rollout.steps import DONE, ROLLOUT, Entry
from unhang.act.rollout.targets import limits_of, waves_of
from unhang.act.rollout.undone import undone_of
from unhang.audit.commands.filters import OPTIONS, add_filters, typed
from unhang.core import project
from unhang.core.ansible import ansible_env, controllers, packed_pynvml
from unhang.core.ansible.plain_data import data_for_ansible
from unhang.core.ansible.play_process import Played, stopped_once
from unhang.core.ansible.playbook_command import (
    inventories_of,
    limit_arguments,
    play_into,
)
from unhang.core.ansible.run_files import NOT_LATEST_ENV
from unhang.core.commands.common_options import (
    add_ansible,
    add_examples,
    add_flag,
    add_format_option,
    add_inventory,
    add_quiet,
    add_value,
)
from unhang.core.commands.deliver import deliver
from unhang.core.errors import UserError
from unhang.core.json_text import render_json
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run import run_folder
from unhang.core.run.own_runs import is_own, own_inventories
from unhang.core.terminal import terminal_shape
from unhang.core.text import ascii_only, visible

EXAMPLES = """\
  unhang remediate                                       previews the plan of the last audit
  unhang remediate --role gpu_driver --host 'gpu[01-04]'   audits these nodes, plans for this role and previews it
  unhang remediate runs/20261120T043323Z-a8229f1434 --rule build-ninja-missing --host mega01   plans for one cause and previews it
  unhang remediate --apply --max-failed 2                acts
  unhang remediate --undo runs/20261120T043323Z-a8229f1434 --host gpu001 --apply   undoes a rollout on one of its nodes
  unhang remediate --status -o json                      the step of each node, also after the controller has died"""  # noqa: E501
FORMATS = ("table", "json")
EVIDENCE = "evidence.json"  # the status at the end of a rollout, for readers of the run folder


class NotYet(UserError):
    """Nothing failed: the same command goes on later."""

    code = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    latest = run_folder.latest_run()
    parser.add_argument(
        "plan",
        metavar="PLAN|RUN",
        nargs="?",
        default=latest,
        help="plan.json, or its run folder or id (default: %(default)s)",
    )
    ways = parser.add_mutually_exclusive_group()
    add_flag(
        ways,
        "--apply",
        "apply the plan to the nodes that are free, and go on with those that waited for jobs;"
        " without it the roles run in check mode and write nothing on any node",
    )
    add_filters(parser, "first plan only these findings (as unhang plan RUN with the same options)")
    add_flag(
        parser,
        "--new",
        "with these filters: make that plan also where the run has another one, which is kept"
        " beside it",
    )
    add_flag(
        ways,
        "--status",
        "start nothing; show the state of each node and the next step, also after the"
        " controller has died",
    )
    now = (
        "audit the nodes of --host first, and plan what this role repairs there; with --apply it is"
        " done at once. Repeatable: "
    ) + ", ".join(ROLE_ORDER)
    parser.add_argument(
        "--role", action="append", default=[], choices=ROLE_ORDER, metavar="ROLE", help=now
    )
    undoes = (
        "undo the rollout of this run, as a rollout of its own: drain, restore, reboot, prove,"
        " release. Previews too, unless --apply is given"
    )
    add_flag(parser, "--undo", undoes)
    add_flag(
        parser,
        "--through",
        "with --undo: first undo what later runs have changed on these nodes; without it, a"
        " node on which a later run has changed the same is refused",
    )
    ends = (
        "end the rollout of this run for good: release unchanged nodes, leave others drained with"
        " the reason, remove locks. At once, without --apply"
    )
    add_flag(ways, "--end", ends)
    add_inventory(parser, "inventory file or folder (default: those of the plan's run)")
    hands = (
        "the scheduler that drains the nodes: slurm, kubernetes, command, none, or auto (default),"
        " which is the one whose daemon the node has"
    )
    parser.add_argument(
        "--drain",
        metavar="ADAPTER",
        choices=("auto", "slurm", "kubernetes", "command", "none"),
        help=hands,
    )
    soaks = (
        "how long released nodes are left to jobs before they are asked again and the next wave"
        " begins; 0: not at all"
    )
    add_value(parser, "--soak", "TIME", f"{soaks} (default: %(default)s)", default=DEFAULT_SOAK)
    most = (
        "number or percentage of nodes after the canaries that may fail before the rollout starts"
        " no further node (default: %(default)s)"
    )
    add_value(parser, "--max-failed", "N|N%", most, default=MAX_FAILED)
    add_flag(parser, "--no-smoke", "skip the smoke test; the journal records this")
    add_flag(parser, "--take-over", "declare an earlier controller dead and take over its locks")
    add_ansible(parser)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show Ansible's own output while it runs"
    )
    add_quiet(parser)
    add_format_option(parser, FORMATS, {"json": "of a preview: with the lines that would change"})
    add_examples(parser, EXAMPLES)


def run(
    arguments: argparse.Namespace,
    keep_ticket: KeepTicket,
    audit: Callable[[list[str]], int],
) -> int:
    """0 all nodes are proved (or the preview succeeded); 1 not all are; 2 it could not be started;
    3 the same command goes on later: nodes wait for jobs or soak, another controller is at work, or
    it was stopped. audit: `unhang audit`."""
    options = RemediateOptions.of(arguments)
    _check_max_failed(options.max_failed)
    parse_soak(options.soak)
    if options.role:
        options = _audited(options, audit)
        if not options.rule:
            return 0
    folder, plan = _planned(options, keep_ticket)
    if options.status:
        return show(folder, plan, options)
    if not plan.waves:
        raise UserError(
            "\n  ".join(
                [
                    (
                        f"{run_folder.as_typed(folder / FILE)} has no waves: there is nothing that"
                        " a role repairs"
                    ),
                    *describe_unrepaired(plan),
                ]
            )
        )
    if options.apply:
        if (code := _nothing_left(folder, plan, options)) is not None:
            return code
        settle_controller(folder, options)
        refuse_another_than_previewed(folder, plan)
        sys.stderr.write(
            f"unhang: applying {name_of(plan)}: {describe_totals(plan)}; drained by"
            f" {options.drain or describe_schedulers(plan)}\n"
        )
    home = project.find_project()
    packed_pynvml.link_pynvml(home)
    new_run = (folder.parent.parent if plan.undoes else folder.parent) / run_folder.new_run_id()
    playbook = "rollback.yml" if plan.undoes else "remediate.yml"
    playbook = "end.yml" if options.end else playbook
    command = [ansible_env.ansible_program("ansible-playbook"), str(home / "playbooks" / playbook)]
    given = inventories_of(options.inventory or own_inventories(folder) or None, home)
    command += [word for inventory in given for word in ("-i", inventory)]
    hosts = ",".join(plan.wave_of)
    with limit_arguments("" if options.end else hosts) as limit:
        variables = variables_of(options, folder, plan)
        argv = [*command, *limit, "-e", data_for_ansible(variables), *options.ansible]
        if not options.apply and not options.end:
            return run_preview(argv, home, new_run, folder, plan, options)
        again, earlier = True, len(read_journal(folder).entries)
        while again:
            since = run_folder.utc_now()
            played = _played(argv, home, new_run, folder, plan, options)
            again = not (played.stopped or played.code < 0 or options.end) and _soaked(
                folder, options, since
            )
            new_run = new_run.parent / run_folder.new_run_id()
    return _outcome(played, folder, plan, options, earlier)


def _audited(options: RemediateOptions, audit: Callable[[list[str]], int]) -> RemediateOptions:
    """The options for a new run of these nodes alone, and for the rules that failed there and whose
    repair is one of the roles. Raises UserError."""
    latest = Path(named := run_folder.latest_run())
    others = options.rule or options.undo or options.status or options.end
    if not options.host or others or options.plan != named:
        raise UserError(
            "--role needs --host beside it, and no RUN, --rule, --status, --undo or --end: it"
            " audits these nodes first"
        )
    known = options.inventory or (own_inventories(latest) if latest.is_dir() else None)
    words = [word for inventory in known or () for word in ("-i", inventory)]
    words += ["-q", "--limit", ",".join(options.host), "--", *options.ansible]
    if audit(words) > 1:
        raise UserError("the nodes could not be audited, so nothing is planned")
    folder = latest.resolve()
    rules = {
        one["rule"]
        for one in read_planned_findings(folder)["findings"]
        if one["verdict"] == "fail" and (one["remedy"] or {}).get("role") in options.role
    }
    if not rules:
        sys.stderr.write(
            f"unhang: the audit in {run_folder.as_typed(folder)} found nothing that"
            f" {' or '.join(options.role)} repairs; nothing is planned\n"
        )
    return replace(options, plan=str(folder), rule=sorted(rules))


def _nothing_left(folder: Path, plan: Plan, options: RemediateOptions) -> int | None:
    """The exit code of a rollout that has ended, which a line reports, so that a timer that goes
    on with it ends too; None of any other."""
    standing = RolloutState(waves_of(plan)).take(read_journal(folder).entries)
    soaking = soaking_before(standing, plan, parse_soak(options.soak), len(plan.waves))
    groups = {one.group: [one.group] for one in plan.limits.groups}  # any: nothing is begun
    if soaking or not is_over(standing, limits_of(plan, groups, options.max_failed)):
        return None
    status = _status(folder, plan, options)
    counts = [f"{status['counts'][state]} {state}" for state in ORDER if state in status["counts"]]
    sys.stderr.write(
        f"unhang: nothing is left to do: {', '.join(counts)}; each node:"
        f" {project.program_as_typed()} remediate {run_folder.as_typed(folder)} --status\n"
    )
    return exit_code(status)


def settle_controller(folder: Path, options: RemediateOptions) -> None:
    """Raises NotYet while another controller works on the rollout. Of one that died it records the
    end, which nobody could know after the next boot of this machine."""
    standing = replay(read_journal(folder).entries)
    newest = standing.begun
    if newest is None or standing.ended:
        return
    over = controllers.is_over(newest.evidence)
    if over:
        ended = Entry(run_folder.utc_now(), "", ROLLOUT, DONE, standing.epoch)
        append(folder, standing.epoch, ended)
    elif over is False and not options.take_over:
        raise NotYet(
            f"another controller works on the rollout in {run_folder.as_typed(folder)}:"
            f" {newest.evidence.get('by')} (process {newest.evidence['controller']['pid']}), who"
            f" began {newest.at}; when it has ended, go on with: {_again(folder, options)}"
        )


def _soaked(folder: Path, options: RemediateOptions, since: str) -> bool:
    """Whether the playbook, which last began at `since`, is to be run again because it ended at a
    soak; waits for its end first. Raises UserError."""
    soak = replay(read_journal(folder).entries).soak
    until = str(soak.evidence.get("until")) if soak is not None else ""
    if until <= since:
        return False
    sys.stderr.write(
        f"unhang: {describe_soak(soak)}; nothing is done until then, and the same command goes on"
        " if this one is stopped\n"
    )
    try:
        with stopped_once():
            time.sleep(seconds_left(until, run_folder.utc_now(), parse_soak(options.soak)))
    except KeyboardInterrupt:
        raise NotYet(
            "it was stopped by hand while released nodes soak; go on with:"
            f" {_again(folder, options)}"
        ) from None
    return True


def _check_max_failed(given: str) -> None:
    """Raises UserError before Ansible is started."""
    try:
        allowed_failures(given, 1)
    except UserError as problem:
        raise UserError(f"--max-failed: {problem}") from None


def _planned(options: RemediateOptions, keep_ticket: KeepTicket) -> tuple[Path, Plan]:
    """(run folder, plan): a new plan for the selected findings, else the existing one."""
    if options.through and not options.undo:
        raise UserError("--through needs --undo beside it")
    if options.undo:
        return planned_undo(_newest_planned(options.plan), options)
    filters = typed(options)
    if options.new and (options.end or not filters):
        raise UserError(
            f"--new needs --{', --'.join(OPTIONS[:-1])} or --{OPTIONS[-1]} beside it; another"
            " plan of all findings: unhang plan RUN --new"
        )
    if options.end:
        folder, plan = find_plan(_newest_planned(options.plan))
        if not read_journal(folder).entries and not controllers_of_a_lost_journal(folder):
            raise UserError(
                f"--end: no rollout of {run_folder.as_typed(folder)} has begun: there is nothing to"
                " end, and nothing was written"
            )
        return folder, plan
    if not filters:
        if options.apply:
            _refuse_to_choose(options)
        return find_plan(_newest_planned(options.plan) if options.status else options.plan)
    if options.status or Path(options.plan).is_file():
        beside = "--status" if options.status else visible(options.plan, 200)
        raise UserError(
            f"--{filters[0][0]} needs a run folder beside it, for which a plan is made, not"
            f" {beside}"
        )
    folder = run_folder.find_run(options.plan).resolve()
    plan = plan_of(folder, PlanOptions(), options, keep_ticket, options.new)
    sys.stderr.write(f"unhang: planned: {describe_totals(plan)}\n")
    return folder, plan


def _refuse_to_choose(options: RemediateOptions) -> None:
    """Raises UserError if no run was named, and another than the latest has a rollout that still
    holds nodes: whoever types the command may mean either."""
    latest = run_folder.latest_run()
    if options.plan != latest or not Path(latest).is_dir():
        return
    newest = Path(latest).resolve()
    held = [
        f"{shortened(fold_hosts(hosts), 80)} by the rollout of {run.name}:"
        f" {typed_again(run.absolute(), options, '--apply')}"
        for run in run_folder.list_runs(run_folder.runs_folder())
        if run.resolve() != newest and (hosts := _held(run))
    ]
    if held:
        latest_one = f"of the latest run: {typed_again(newest, options, '--apply')}"
        more = [latest_one] if (newest / FILE).is_file() else []
        raise UserError(
            "\n  ".join(
                [
                    "no run is given, and an earlier rollout is not over; nodes are held",
                    *held,
                    *more,
                ]
            )
        )


def _held(run: Path) -> list[str]:
    """Nodes that a rollout of this user still holds: waiting, or with a step to come. Raises
    UserError."""
    if not (run / FILE).is_file() or not is_own(run):
        return []
    standing = replay(read_journal(run).entries)
    held = [] if standing.closed else list(filter(standing.holds, standing.nodes))
    return held if held and not undone_of(run, run.name) else []


def _newest_planned(named: str) -> str:
    """The run of the rollout: if none was named and the latest audit has no plan, the newest run
    with a plan."""
    latest = run_folder.latest_run()
    if named != latest or not Path(latest).is_dir() or (Path(latest) / FILE).is_file():
        return named
    planned = [
        run for run in run_folder.list_runs(run_folder.runs_folder()) if (run / FILE).is_file()
    ]
    if not planned:
        return named
    sys.stderr.write(
        f"unhang: {visible(named, 200)} has no plan; this is the newest run that has one\n"
    )
    return run_folder.as_typed(planned[-1].absolute())


def find_plan(named: str) -> tuple[Path, Plan]:
    """(run folder, plan) of a plan.json, a run folder or a run's id. Raises UserError."""
    path = Path(named)
    folder = path.parent if path.is_file() else run_folder.find_run(named)
    if path.is_file() and path.name != FILE:
        raise UserError(
            f"{visible(named, 200)} is not called {FILE}: the journal needs the plan of a run"
            " folder under its own name beside it"
        )
    return folder.resolve(), read_plan(folder)


def variables_of(options: RemediateOptions, folder: Path, plan: Plan) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "unhang_plan": str(folder),
        "unhang_apply": options.apply,
        "unhang_max_failed": options.max_failed,
        "unhang_soak": options.soak,
        "unhang_command": typed_again(folder, options, "--apply"),
    }
    given = {
        "drain_adapter": options.drain,
        "unhang_smoke": False if options.no_smoke else None,
        "unhang_take_over": plan.run.id if options.take_over else None,
    }
    return chosen | {name: value for name, value in given.items() if value is not None}


def show(folder: Path, plan: Plan, options: RemediateOptions) -> int:
    status = _status(folder, plan, options)
    if options.quiet:
        return exit_code(status)
    columns, _, plain = terminal_shape(sys.stdout, os.environ)
    width = columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None
    text = render_json(status) if options.format == "json" else render_status(status, width)
    deliver(ascii_only(text) if plain and options.format != "json" else text, "-")
    return exit_code(status)


def _status(folder: Path, plan: Plan, options: RemediateOptions) -> dict[str, Any]:
    undo = (
        ""
        if plan.undoes
        else undo_command(
            project.program_as_typed(), run_folder.as_typed(folder), options.inventory or ()
        )
    )
    lost = controllers_of_a_lost_journal(folder)
    return status_of(
        plan,
        read_journal(folder),
        undo,
        controllers.is_over,
        lost,
        is_own=is_own(folder),
        undone=undone_of(folder, plan.run.id),
    )


def _played(
    command: list[str],
    home: Path,
    new_run: Path,
    folder: Path,
    plan: Plan,
    options: RemediateOptions,
) -> Played:
    more = {NOT_LATEST_ENV: "1"}
    if options.verbose:
        return play_into(
            command, home, new_run, lambda line: print(line, file=sys.stderr, flush=True), more
        )
    with following(folder, plan, sys.stderr) as note:
        return play_into(
            command,
            home,
            new_run,
            lambda line: note(shown) if (shown := shown_line(line)) else None,
            more,
        )


def _again(folder: Path, options: RemediateOptions) -> str:
    return typed_again(folder, options, "--end" if options.end else "--apply")


def _outcome(
    played: Played, folder: Path, plan: Plan, options: RemediateOptions, earlier: int
) -> int:
    """earlier: number of entries in the journal before the command: a rollout that was refused has
    written none."""
    again = _again(folder, options)
    has_begun = len(read_journal(folder).entries) > earlier
    settle_controller(folder, options)
    if played.stopped and not has_begun:
        raise NotYet(f"it was stopped by hand before a node was touched; go on with: {again}")
    if not has_begun:
        # otherwise the reason was already printed
        if not any(map(shown_line, played.output.splitlines())):
            sys.stderr.write(played.output)
        raise UserError(f"the rollout did not begin; ansible-playbook ended with {played.code}")
    status = _status(folder, plan, options)
    run_folder.write_atomically(folder / EVIDENCE, render_json(status))
    code = show(folder, plan, options)
    if (code and played.code < 0) or played.stopped:
        what = "it was stopped by hand" if played.stopped else "ansible-playbook was ended"
        raise (NotYet if played.stopped else UserError)(f"{what}; continue with: {again}")
    if waiting := describe_waiting(status):
        sys.stdout.flush()
        sys.stderr.write(
            f"unhang: {waiting}; go on then, or now, by hand or from a timer, with: {again}\n"
        )
    return code
