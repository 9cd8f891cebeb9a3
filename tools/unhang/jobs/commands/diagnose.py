"""`unhang diagnose FILE…`: what happened in a log, what most probably caused it, and what to do
about it."""

from __future__ import annotations

import argparse
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import (
    add_examples,
    add_flag,
    add_format_option,
    add_quiet,
    add_value,
    add_verbose,
)
from unhang.core.errors import UserError
from unhang.core.redact import redacted
from unhang.core.secrets_in_text import masked_document
from unhang.core.verdict.answer import render_evidence, screen_of
from unhang.core.verdict.screen import render_screen
from unhang.jobs.diagnose.answer import answer_of, joined_answers
from unhang.jobs.diagnose.audited import audit_evidence, audited_hosts
from unhang.jobs.diagnose.diagnosing import document, read_all, render_json, with_printed
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.looked import LookReader, Reference
from unhang.jobs.diagnose.meaning.conclusion import EXIT_CODES
from unhang.jobs.diagnose.rendering import no_log, render_page, render_table
from unhang.jobs.job_files import JobReader

SEVERITIES = ("critical", "error", "warning", "info")
# what lines of a log name
_OF_DRIVERS, _OF_FAULTS = re.compile(rb"Xid|[Dd]river"), re.compile(r"Xid |.{1,40}: critical ")
EXAMPLES = """\
  unhang diagnose slurm-1234.out                      one job's log
  unhang diagnose slurm-1234.out train.sbatch train.py   with the files that the job was started with
  unhang diagnose hang.tar.gz                         what unhang inspect --out wrote while the job hung
  unhang diagnose logs/ --run latest                  a folder of ranks' logs, beside what the audit found on their nodes
  kubectl logs job/train | unhang diagnose - --redact   for an issue, with secrets and names masked"""  # noqa: E501
_MOST_LOOKED_UP = 64 << 10  # bytes; bounds the lookup of names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help=(
            "logs of any kind, also .gz .bz2 .xz, folders of logs, flight-recorder dumps, evidence"
            " of unhang inspect and watch, beside a log the job's scripts and configuration; - for"
            " standard input, also the default behind a pipe"
        ),
    )
    add_value(
        parser,
        "--run",
        "RUN",
        "a judged run folder or its id; findings on the log's hosts count as evidence",
    )
    add_format_option(parser, ("table", "json", "evidence"))
    add_verbose(parser)
    add_quiet(parser)
    add_flag(
        parser,
        "--redact",
        "mask host names, addresses and users too; equal values get equal masks; secrets are"
        " always masked",
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        default="warning",
        metavar="SEVERITY",
        help=f"exit with 1 at this severity or above: {', '.join(SEVERITIES)} (default: warning)",
    )
    add_examples(parser, EXAMPLES)


def run(
    arguments: argparse.Namespace,
    job_reader: JobReader,
    look_reader: LookReader,
    reference: Reference,
) -> int:
    """0 healthy, 1 a cause at or above --fail-on, 2 no log, 3 a failure without a known cause or no
    end. An empty input raises UserError, which gives 2."""
    if not arguments.files and not _is_piped():
        raise UserError("no logs, folders of logs or - are given; see unhang diagnose --help")
    files = arguments.files or ["-"]
    found, looked = _diagnosis(files, arguments.run, job_reader, look_reader, reference)
    if all(one["kind"] in ("unread", "binary", "job") for one in found["inputs"]):
        raise UserError(_unread(found, files))
    word = found["outcome"]["word"]
    if word == "nothing" and not found["collect_next"]:
        raise UserError(
            f"{found['inputs'][0]['file'] if found['inputs'] else 'the input'}:"
            f" {found['outcome']['why']}"
        )
    if not arguments.quiet:
        both = {**found, "looked": looked}  # masked together, so that a host has one mask in both
        shown = redacted(both) if arguments.redact else masked_document(both)
        _print(shown, shown.pop("looked"), arguments.format, arguments.verbose, look_reader)
    if word != "cause":
        return EXIT_CODES[word]
    severe = SEVERITIES[: SEVERITIES.index(arguments.fail_on) + 1]
    return int(any(cause["severity"] in severe for cause in found["causes"]))


def _is_piped() -> bool:
    """Whether standard input is a pipe or a file, as in `kubectl logs job/train | unhang
    diagnose`."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _diagnosis(
    files: Sequence[str],
    run_named: str | None,
    job_reader: JobReader,
    reader: LookReader,
    reference: Reference,
) -> tuple[dict[str, Any], Mapping[str, Any] | None]:
    """The diagnosis; and the verdict on the job, if a bundle of `unhang inspect --out` is among the
    files."""
    bundles = [name for name in files if name != "-" and reader.is_bundle(Path(name))]
    look = reader.read(bundles) if bundles else None
    others = [name for name in files if name not in bundles]
    inputs, scans, flights = read_all(others, texts=look.logs if look else (), reader=job_reader)
    flights += look.flights if look else ()
    facts, printed = with_printed(gather_facts(scans, flights), reference)
    seen = [*(look.evidence if look else ()), *printed]
    hosts = [*facts.hosts, *(row["host"] for row in (look.verdict["hosts"] if look else ()))]
    path, findings = reference.run(run_named) if run_named else (Path(), ())
    seen += audit_evidence(path, findings, hosts)
    found = document(inputs, facts, seen)
    if run_named:
        found["facts"]["audited"] = list(audited_hosts(path.parent, findings, hosts))
    if found["outcome"]["word"] not in ("cause", "healthy"):
        is_prose = found["outcome"]["word"] == "nothing"
        text = b"\n".join(
            one
            for scan in scans if scan.end
            for one in scan.end.lines if is_prose or _OF_DRIVERS.search(one)
        )  # fmt: skip
        named = reference.named(text[:_MOST_LOOKED_UP].decode("utf-8", "replace")) if text else []
        found["named"] = [one for one in named if is_prose or _OF_FAULTS.match(one)]
    return (reader.joined(found, look), look.verdict) if look else (found, None)


def _unread(found: dict[str, Any], named: list[str]) -> str:
    if not found["inputs"]:
        return f"there are no logs, and no other file, in {', '.join(named)}"
    first = next((one for one in found["inputs"] if one["kind"] != "job"), found["inputs"][0])
    return f"{first['file']}: {'; '.join(first['notes'])}; nothing could be read"


def _print(
    shown: dict[str, Any],
    looked: dict[str, Any] | None,
    form: str,
    verbose: bool,
    reader: LookReader,
) -> None:
    """looked: the verdict of `unhang inspect` on the job, to whose answer the logs add."""
    if form == "json":
        sys.stdout.write(render_json(shown))
        return
    answer = joined_answers(reader.answer(looked), shown) if looked else answer_of(shown)
    if form == "evidence":
        sys.stdout.write(render_evidence(answer))
    else:
        from unhang.core.terminal import terminal_shape

        width, _colour, plain = terminal_shape(sys.stdout, os.environ)
        if page := no_log(shown):
            sys.stdout.write(render_page(page, width, plain=plain))
            return
        parts = [render_screen(screen_of(answer), width, plain=plain)]
        if verbose:
            parts += [reader.render(looked, plain)] if looked else []
            parts.append(render_table(shown, width, plain=plain))
        sys.stdout.write("\n".join(parts))
