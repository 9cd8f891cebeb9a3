"""Shows a judged run for `unhang audit`, `judge` and `report`: the formats, and the paths that the
printed commands contain."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unhang.audit.commands.filters import Filters, typed
from unhang.audit.report.exports import RENDERERS, render_junit
from unhang.audit.report.manual_work import with_manual_work
from unhang.audit.report.screen import render_screen
from unhang.audit.report.table import render_table
from unhang.core import project
from unhang.core.commands.common_options import (
    add_flag,
    add_format_option,
    add_quiet,
    add_repeatable,
    add_value,
)
from unhang.core.commands.deliver import deliver
from unhang.core.commands.typed_values import number_of
from unhang.core.errors import UserError
from unhang.core.json_text import render_json
from unhang.core.labels import parse_labels
from unhang.core.run import run_folder
from unhang.core.run.actions import Setting, command, needs_list
from unhang.core.run.findings import read_findings, read_run
from unhang.core.run.handed_over import HandedOver
from unhang.core.run.own_runs import is_own, own_options
from unhang.core.run.whole_files import write_atomically
from unhang.core.terminal import PIPED_WIDTH, terminal_shape
from unhang.core.text import counted, visible

FORMATS = (
    "table",
    "csv",
    "json",
    "html",
    "junit",
    "sarif",
    "prometheus",
)
# folder in a run folder: the nodes of a cause, one a line, if they are too many for a command line
LISTS = "limits"


def add_format(parser: argparse.ArgumentParser, more: Mapping[str, str] | None = None) -> None:
    """Adds the options for showing a run. more: further formats and what each is."""
    add_format_option(parser, (*FORMATS, *(more or ())), more)
    add_repeatable(
        parser, "--label", "NAME=VALUE", "prometheus: a label for every series: cluster=production"
    )
    add_value(
        parser,
        "--per-node",
        "MOST",
        "prometheus: a series for each of at most this many nodes, the worst first",
        number_of("nodes"),
        0,
    )
    add_flag(parser, "-v --verbose", "every finding in the table")
    add_quiet(parser)
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
        help="auto (default: on a terminal, unless NO_COLOR is set), always, never",
    )


class ShownRun(Filters, frozen=True):
    """How a run is shown, and what counts for the exit code."""

    format: str
    label: list[str]
    per_node: int
    verbose: bool
    quiet: bool
    color: str
    fail_on: str


def check_page(options: ShownRun) -> None:
    """Raises UserError for --format html with filters: a page shows a whole run."""
    given = [f"--{name} {value}" for name, value in typed(options)]
    if options.format == "html" and given:
        raise UserError(
            f"--format html shows a whole run and takes no {' '.join(given)}; leave that out, or"
            " choose another format"
        )


def show(
    folder: Path,
    findings: Mapping[str, Any],
    options: ShownRun,
    run: str,
    page_of: Callable[[], str],
    out: str | None = None,
    page: Path | None = None,
) -> None:
    """Writes a judged run in the requested format to standard output, or atomically to the file
    `out`. run: as it was typed; page_of: renders html; page: its default path, in the run folder.
    --quiet prints nothing, but a named file is written."""
    if options.quiet and out in (None, "-"):
        return
    check_page(options)
    if options.format == "html":
        given = Path(run)
        out = out or str(
            page
            or (given if given.is_dir() else given.parent if given.is_file() else folder)
            / "report.html"
        )
        deliver(page_of(), out)
        if out != "-" and not options.quiet:
            print(out)
        return
    if options.format != "json":  # which is the object of findings.json
        findings = with_manual_work(findings)
    if options.format == "table":
        text = _for_people(folder, findings, options, run, out in (None, "-"))
    elif options.format == "prometheus":
        text = _metrics(findings, options)
    elif options.format == "junit":
        text = render_junit(findings, options.fail_on)
    else:
        text = {"json": render_json, **RENDERERS}[options.format](
            _with_commands(folder, findings, run)
        )
    deliver(text, out or "-")


def _with_commands(folder: Path, findings: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The findings with commands that work in the current folder, and that contain every host."""
    here = setting_here(folder, findings, run)
    return {
        **findings,
        "causes": [{**cause, "command": command(cause, here)} for cause in findings["causes"]],
    }


def run_of_file(file: Path) -> Path:
    """The run folder of a file of findings: the folder that the file is in, else the run that was
    judged, by its id. Raises UserError."""
    if (file.parent / "run.json").is_file():
        return file.parent
    return run_folder.find_run(read_findings(file.parent, file)["run"]["id"])


def _as_shown(folder: Path, run: str) -> str:
    """The run for the commands that show it again; "" for a file of findings whose run `unhang
    report` does not find."""
    file = Path(run)
    try:
        return (
            _lasting(folder, run)
            if not file.is_file() or run_of_file(file).samefile(folder)
            else ""
        )
    except (OSError, UserError):
        return ""


def _for_people(
    folder: Path, findings: Mapping[str, Any], options: ShownRun, run: str, to_terminal: bool
) -> str:
    width, colour, plain = (
        terminal_shape(sys.stdout, os.environ) if to_terminal else (PIPED_WIDTH, False, False)
    )
    colour = {"always": True, "never": False}.get(options.color, colour)
    program = project.program_as_typed()
    here = setting_here(folder, findings, run)
    setting_of = _with_lists(folder, run, here)
    shown = _as_shown(folder, run)
    if options.verbose:
        full = not (to_terminal and sys.stdout.isatty())
        return render_table(
            findings,
            width,
            colour,
            plain=plain,
            full=full,
            run=shown,
            program=program,
            setting_of=setting_of,
        )
    return render_screen(
        findings,
        width,
        colour,
        plain=plain,
        run=shown,
        program=program,
        setting_of=setting_of,
        planned=bool(here.run),
    )


def _metrics(findings: Mapping[str, Any], options: ShownRun) -> str:
    # the import takes 0.1 s, and no other format needs it
    from unhang.audit.report.prometheus import nodes_without_series, render_prometheus

    if skipped := nodes_without_series(findings, options.per_node):
        sys.stderr.write(
            f"unhang: {counted(skipped, 'node has', 'nodes have')} no series: --per-node"
            f" {options.per_node}\n"
        )
    return render_prometheus(findings, options.per_node, parse_labels(options.label))


def setting_here(folder: Path, findings: Mapping[str, Any], run: str) -> Setting:
    """The surroundings for the commands of the causes: this run and the current folder. run: as it
    was typed."""
    document = read_run(folder)
    given, own = document.get("inventory"), is_own(folder)
    inventories = tuple(
        _short(str(one))
        for one in (given if isinstance(given, list) else [given] if given else [])
        if not _is_default(str(one))
    )
    judged_by = findings.get("judged_by") or {}
    rules = tuple(_short(str(Path(one).absolute())) for one in judged_by.get("rules") or ())
    named = _lasting(folder, run)
    planned = "" if judged_by.get("policy") or Path(run).is_file() else named
    options = tuple(own_options(folder))
    program = project.program_as_typed()
    fixed = Setting(
        program,
        planned,
        playbooks=" " in program and (project.INSTALLED.parents[2] / project.COLLECTION).is_file(),
        reachable=given is not None,
        options=options,
        is_own=own,
    )
    return replace(fixed, inventories=inventories, rules=rules) if own else fixed


def _lasting(folder: Path, run: str) -> str:
    """The run as a person types it, but by its whole id: `latest`, or the beginning of an id, may
    be another run when a command is pasted."""
    return run if Path(run).is_file() else run_folder.as_typed(folder.resolve())


def page_of(
    folder: Path,
    findings: Mapping[str, Any],
    run: str,
    given: HandedOver,
    beside: Path | None,
    smoke: Sequence[str] = (),
) -> str:
    """The page of a run, with commands as a person types them here. beside: a file of findings that
    are not the run's own, to which no plan belongs; smoke: files of results."""
    setting_of = _with_lists(folder, run, setting_here(folder, findings, run))
    plan, rollout = (None, None) if beside else (given.plan(folder), given.rollout(folder))
    return given.page(
        folder, run_name=_lasting(folder, run),
        program=project.program_as_typed(), beside=beside,
        command_of=lambda cause: command(cause, setting_of(cause)), plan=plan, rollout=rollout,
        smoke_files=[Path(one) for one in smoke],
    )  # fmt: skip


def _with_lists(folder: Path, run: str, fixed: Setting) -> Callable[[Mapping[str, Any]], Setting]:
    """Cause -> its setting; writes long lists of hosts into the run folder."""

    def setting_of(cause: Mapping[str, Any]) -> Setting:
        if not fixed.is_own or not needs_list(cause):
            return fixed
        path = (
            (Path(run) if Path(run).is_dir() and not Path(run).is_symlink() else folder)
            / LISTS
            / f"{cause['id']}-{_digest(cause['nodes'])}.txt"
        )
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, "".join(f"{visible(host, 1024)}\n" for host in cause["nodes"]))
        except OSError:
            return fixed  # the run folder cannot be written, so the command contains every host
        return replace(fixed, list_file=_short(str(path)))

    return setting_of


def _is_default(inventory: str) -> bool:
    """Whether it is the inventory of this machine in an installed wheel, a long path, which is the
    default."""
    return inventory == str(project.INSTALLED / "inventory" / "local")


def _digest(hosts: Sequence[str]) -> str:
    """A digest for the file's name, so that no list of hosts is overwritten while somebody uses
    it."""
    return hashlib.sha256(" ".join(hosts).encode("utf-8", "replace")).hexdigest()[:8]


def _short(path: str) -> str:
    """A path as a person types it. Host lists (host1,host2,) are not changed."""
    return path if "," in path else run_folder.as_typed(Path(path))
