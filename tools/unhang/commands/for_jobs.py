"""What is handed to the commands about a job: to diagnose how files with which it was started, and
looks at it, are read; to inspect how nodes are asked by Ansible. Each is imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unhang.jobs.diagnose.looked import Look, LookReader, Printed, Reference
from unhang.jobs.job_files import JobFile, JobReader

if TYPE_CHECKING:  # of one command
    from unhang.core.verdict.answer import JobAnswer
    from unhang.core.verdict.by_stacks import Stack, Stuck
    from unhang.jobs.commands.inspect import InspectOptions


def _kind(path: Path | None) -> str | None:
    from unhang.jobs.lint.job_kinds import job_kind

    return job_kind(path)


def _read(name: str, path: Path, kind: str) -> JobFile | None:
    from unhang.jobs.lint.job_reading import read_job_file

    return read_job_file(name, path, kind)


def _only_starts(path: Path, kind: str) -> bool:
    from unhang.jobs.lint.job_reading import only_starts_a_job

    return only_starts_a_job(path, kind)


JOB_READER = JobReader(_kind, _read, _only_starts)


def _is_bundle(path: Path) -> bool:
    from unhang.jobs.inspect.bundle import is_evidence

    return is_evidence(path)


def _look(names: Sequence[str]) -> Look:
    from unhang.jobs.inspect.diagnosed import look_in

    return look_in(names)


def _joined(diagnosis: Mapping[str, Any], look: Look) -> dict[str, Any]:
    from unhang.jobs.inspect.diagnosed import with_verdict
    from unhang.jobs.inspect.inspection import inspection_in

    return with_verdict(diagnosis, look.file, inspection_in(look.verdict))


def _render(verdict: Mapping[str, Any], plain: bool) -> str:
    from unhang.jobs.inspect.inspection import inspection_in
    from unhang.jobs.inspect.rendering import render_details

    return render_details(inspection_in(verdict), plain)


def _answer(verdict: Mapping[str, Any]) -> JobAnswer:
    from unhang.jobs.inspect.answer import answer_of
    from unhang.jobs.inspect.inspection import inspection_in

    return answer_of(inspection_in(verdict))


LOOK_READER = LookReader(_is_bundle, _look, _joined, _answer, _render)


def _named(text: str) -> list[str]:
    from unhang.judge.reference.named_in_text import named_in
    from unhang.judge.rules.compiled_catalogue import load_catalogue

    return named_in(load_catalogue([]), text)


def _run(name: str) -> tuple[Path, Sequence[Any]]:
    from unhang.core.run.record import FINDINGS, read_findings_record
    from unhang.core.run.run_folder import find_run

    folder = find_run(name)
    return folder / FINDINGS, read_findings_record(folder).findings


def _judged(files: Mapping[str, Sequence[str]]) -> Printed:
    from unhang.commands.printed_findings import judged_nodes
    from unhang.commands.printed_lines import lines_apart
    from unhang.commands.printed_nodes import printed_nodes
    from unhang.judge.rules.compiled_catalogue import load_catalogue

    nodes = printed_nodes(files)
    faults, read = judged_nodes(load_catalogue([]), nodes) if nodes else ((), {})
    known = {place for fault in faults for place in fault.places}
    apart = [one for one in lines_apart(files) if not known.issuperset(one.places)]
    return (*faults, *apart), read


def _stuck(stacks: Mapping[str, Mapping[str, Stack]]) -> Stuck:
    from unhang.core.verdict.looks_of_stacks import stuck_in_stacks

    return stuck_in_stacks(stacks)


REFERENCE = Reference(_named, _run, _judged, _stuck)


def node_documents(asked: InspectOptions, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The evidence of nodes that --host and --inventory name. Raises UserError."""
    from unhang.jobs.commands.inspect_nodes import node_documents as documents

    return documents(asked, options)
