"""Makes the diagnosis document (`unhang/diagnosis/1`) from names of files: reads, scans, ranks."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.owners import DEFAULT_OWNER
from unhang.core.together import NOT_READ, Together
from unhang.jobs.diagnose.affected import who_is_meant
from unhang.jobs.diagnose.audited import printed_evidence
from unhang.jobs.diagnose.fitting_remedies import (
    commands_of_others,
    experiments_made,
    fitting_remedy,
    how_to_raise,
    launchers,
    other_accelerator,
    own_words,
)
from unhang.jobs.diagnose.log_facts import Facts, describe, evidence_of, gather_facts
from unhang.jobs.diagnose.logs.archives import Stream
from unhang.jobs.diagnose.logs.flight_dumps import LARGEST_DUMP, read_dumps
from unhang.jobs.diagnose.logs.reading import (
    MOST_BYTES,
    Input,
    find_inputs,
    open_input,
    read_blocks,
)
from unhang.jobs.diagnose.looked import Reference
from unhang.jobs.diagnose.matching.scanning import (
    MOST_OF_OUTPUT,
    Event,
    Scan,
    Sieve,
    names_in,
    scan_blocks,
)
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures
from unhang.jobs.diagnose.meaning.conclusion import NO_LOG, conclude, describe_conclusion
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang.jobs.diagnose.meaning.rules.job_file_rules import FROM_JOB
from unhang.jobs.diagnose.meaning.rules.work_rules import said_alone
from unhang.jobs.diagnose.next_steps import (
    commands_with_output,
    explained,
    next_steps,
    not_given,
)
from unhang.jobs.diagnose.rank_names import each_rank
from unhang.jobs.diagnose.ranking import (
    Cause,
    certainty_of,
    is_decided,
    is_trouble,
    lines_of,
    rank_causes,
)
from unhang.jobs.flight import Flight
from unhang.jobs.job_files import DEEPSPEED, LOGS_ALONE, JobReader

SCHEMA = "unhang/diagnosis/1"
MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S = 256 << 30, 1800
MOST_JOB_FILES = 200
MOST_SAID = 4
# remarks that an exception of the program does not need
OF_WAITS = ("rank_desync_app", "slow_rank_or_io", "watchdog_timeout_too_short")


def with_printed(facts: Facts, reference: Reference) -> tuple[Facts, list[Evidence]]:
    """The facts, with what a machine's tools show of its health and stacks of a hang, and what the
    rules find in it."""
    found, read = printed_evidence(facts.ends, reference.judged)
    return replace(facts, of_tools=read, stuck=reference.stuck(facts.stacks)), found


def diagnose_text(text: str) -> dict[str, Any]:
    """The diagnosis of a text by itself, such as one error message. Text in, document out."""
    content = f"{text}\n".encode("utf-8", "surrogateescape")
    inputs, scans, _ = read_all((), texts=[("(text)", content)])
    return document(inputs, gather_facts(scans))


def read_all(
    names: Iterable[str],
    *,
    texts: Sequence[tuple[str, bytes]] = (),
    sieve: Sieve | None = None,
    together: Together | None = None,
    reader: JobReader = LOGS_ALONE,
) -> tuple[list[Input], list[Scan], list[Flight]]:
    """The scan of each input; an input that cannot be read is noted, and is fatal only if none can
    be read. texts: logs that are no files, as (name, content). sieve: of the signatures to search,
    None for all. together: the limits of all files, by default those of this module. reader: of
    files of the job."""
    sieve = sieve or _sieve_of_all()
    together = together or Together(MOST_BYTES_OF_ALL, LONGEST_OF_ALL_S)
    inputs = [Input(name) for name, _ in texts]
    scans = [
        _scan_of(io.BytesIO(text), about, sieve)
        for about, (_, text) in zip(inputs, texts, strict=True)
    ]
    flights: list[Flight] = []
    found = [(name, path, reader.kind(path)) for name, path in find_inputs(names)]
    beside_log = bool(scans) or any(kind is None for _, _, kind in found)
    for name, path, kind in found:
        about = Input(name, most_bytes=min(MOST_BYTES, together.left_bytes))
        inputs.append(about)
        if over := together.reached():
            about.kind = "unread"
            about.notes.append(f"{over}; name those that matter")
            continue
        try:
            if beside_log and kind and path:
                _read_job_file(reader, name, path, kind, about, sieve, scans)
            else:
                _read_one(name, path, about, sieve, scans, flights)
                if about.kind == "log" and path and kind and reader.only_starts(path, kind):
                    about.notes.append(NO_LOG)
        except OSError as problem:
            about.kind = "unread"
            about.notes.append(problem.strerror or str(problem))
        together.bytes += about.bytes
    return inputs, scans, flights


@cache
def _sieve_of_all() -> Sieve:
    """The sieve of all signatures, made once in a process, because sorting all anchors takes longer
    than reading a short log."""
    return Sieve(load_signatures())


def _read_one(
    name: str,
    path: Path | None,
    about: Input,
    sieve: Sieve,
    scans: list[Scan],
    flights: list[Flight],
) -> None:
    stream = open_input(path)
    try:
        read = _scan_of(stream, about, sieve)
    finally:
        if path:
            stream.close()
    if about.kind == "dump" and path:
        reopened = open_input(path)
        try:
            flights += read_dumps(
                reopened.read(LARGEST_DUMP + 1), name, written_s=path.stat().st_mtime
            )
        except (ValueError, EOFError) as problem:
            about.kind = "unread"
            about.notes.append(f"is not a flight-recorder dump that can be read: {problem}")
        finally:
            reopened.close()
        return
    scans.append(read)


def _scan_of(stream: Stream, about: Input, sieve: Sieve) -> Scan:
    """The scan of a log."""
    scan = scan_blocks(read_blocks(stream, about), about.name, sieve)
    if scan.left_out:
        about.notes.append(
            f"{NOT_READ}: as output of tools the first {about.bytes - MOST_OF_OUTPUT:,} bytes were"
            " not; split it"
        )
    if scan.full:
        about.notes.append(f"more than enough lines of: {', '.join(sorted(scan.full))}")
    return scan


def _read_job_file(
    reader: JobReader,
    name: str,
    path: Path,
    kind: str,
    about: Input,
    sieve: Sieve,
    scans: list[Scan],
) -> None:
    """Reads a file with which the job was started. Of a script's lines that match signatures, only
    those count that configure the job."""
    about.kind = "job"
    job = (
        reader.read(name, path, kind)
        if sum(scan.job is not None for scan in scans) < MOST_JOB_FILES
        else None
    )
    if job is None:
        about.notes.append(f"was not read: binary, or more than {MOST_JOB_FILES} files of the job")
        return
    about.lines, about.bytes = job.lines, path.stat().st_size
    graver = [f"line {one.line} {one.rule}" for one in job.findings if one.severity != "info"]
    if graver:
        about.notes.append(f"unhang lint: {', '.join(graver[:4])}{' ...' * (len(graver) > 4)}")
    scan = Scan(name, job=job)
    if kind not in ("python", DEEPSPEED):
        with path.open("rb") as stream:
            read = scan_blocks(read_blocks(stream, Input(name)), name, sieve)
        # of a script the lines that describe or configure the job: what lint reads as set for it
        lasting = set(job.settings)
        own = [
            event
            for event in read.events
            if event.fact in ("one_gpu_per_task", "several_local_ranks")
            or (event.fact == "setting" and (event.fields["name"] or "", event.line) in lasting)
        ]
        scan = replace(read, job=job) if job.has_state else replace(scan, events=own)
    scans.append(scan)


def document(
    inputs: Sequence[Input],
    facts: Facts,
    more: Sequence[Evidence] = (),
    *,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """The diagnosis document. Values in, value out. without: ids of rules that must not be used, to
    measure the others."""
    rows = load_causes()
    causes = rank_causes(facts, rows, more, without)
    maker = other_accelerator(facts)
    causes = [cause for cause in causes if not (maker and cause.id in table("causes_of_nvidia"))]
    decided = is_decided(causes)
    found = any(cause.severity != "info" for cause in causes)
    trouble = is_trouble(facts, more, without)
    conclusion = conclude(facts, inputs, found=found, trouble=trouble)
    first = facts.first_error
    is_raised = conclusion.word == "failure" and first and first.fact == "crash"
    if is_raised and not (facts.timeouts or any(map(facts.of, names_in("with_limit")))):
        causes = [cause for cause in causes if cause.id not in OF_WAITS]
    named = [cause for cause in causes if cause.severity != "info"]
    given = [
        *commands_with_output(facts),
        *experiments_made(facts),
        *commands_of_others(launchers(facts)),
    ]
    line, row = (None if named else explained(facts, conclusion)) or (None, None)
    if row:
        conclusion = conclusion._replace(
            why=f"{conclusion.why}; such words mean: {row['means']}", event=line
        )
    causes_shown = [_cause(cause, rows[cause.id], facts, given) for cause in causes]
    accused = [who for one in causes_shown[: bool(named)] for who in one["where"]]
    then, steps = next_steps(facts, conclusion, named, rows, row)
    return {
        "schema": SCHEMA,
        "inputs": [
            {
                "file": one.name,
                "kind": one.kind,
                "lines": one.lines,
                "bytes": one.bytes,
                "notes": one.notes,
            }
            for one in inputs
        ],
        "outcome": describe_conclusion(conclusion),
        "found": found,
        "trouble": trouble,
        "decided": decided,
        "facts": {**describe(facts), "said_alone": _said_alone(facts, accused)},
        "waited_for": to_builtins(facts.waited_row()),
        "causes": causes_shown,
        "remarks": [*_of_other_accelerator(maker, facts), *_remarks(facts, causes)],
        "collect_next": [] if decided else steps,
        "named": [],
        "not_given": not_given(facts),
        "next": then,
    }


def _cause(
    cause: Cause, row: Mapping[str, Any], facts: Facts, given: Sequence[str]
) -> dict[str, Any]:
    own = own_words(cause.id, cause.for_)
    remedy = fitting_remedy(row["remedy"], facts, own)
    if (
        cause.id in ("watchdog_timeout_too_short", "slow_rank_or_io")
        and own.get("owner") != "sre"
        and any(map(facts.of, names_in("with_limit")))
    ):
        remedy["how"] = how_to_raise(facts.values("framework"))
    if repairs := _repairs_of_the_job(cause, facts):
        remedy["how"] = {**repairs, **remedy.get("how", {})}
    sources = {source["url"]: dict(source) for one in cause.for_ for source in one.sources[:2]}
    if not (own.get("title") and sources):  # the row's are about the cause in general
        sources.update((source["url"], dict(source)) for source in row["sources"])
    # a line that speaks for a cause is not shown against it
    spoken = {(one["file"], one["line"]) for one in lines_of(cause.for_)}
    return {
        "cause": cause.id,
        "title": own.get("title") or row["title"],
        "score": round(cause.score, 3),
        "points": round(cause.points, 2),
        "severity": cause.severity,
        "owner": own.get("owner") or row.get("owner", DEFAULT_OWNER),
        "certainty": certainty_of(cause),
        "where": who_is_meant(cause.for_, facts),
        "means": own.get("means") or row["means"],
        "evidence": lines_of(cause.for_),
        "against": [
            one
            for one in lines_of(cause.against)
            if not one["line"] or (one["file"], one["line"]) not in spoken
        ],
        "remedy": remedy,
        "workaround": None if own.get("person") else row.get("workaround"),
        "collect": [
            one
            for one in (own.get("check") or row["collect"][0], *row["collect"][1:])
            if not one.startswith(tuple(given))
        ],
        "confidence": row["confidence"],
        "sources": list(sources.values())[:8],
    }


def _said_alone(facts: Facts, accused: Iterable[str]) -> list[dict[str, Any]]:
    """What ranks that a cause or a wait names printed otherwise than all others. It accuses nobody
    by itself."""
    named = {*each_rank(facts.answer.roots), *accused}
    return [
        {**evidence_of(next(iter(few.values()))), "said": said, "ranks": [*few], "others": others}
        for (said, few), (others, _) in map(dict.items, said_alone(facts.of("rank_said")))
        if named.issuperset(each_rank(few))
    ][:MOST_SAID]


def _repairs_of_the_job(cause: Cause, facts: Facts) -> dict[str, str]:
    """file:line -> the replacement, from lint's findings that support the cause."""
    meant = {
        (place["file"], place["line"], one.id.removeprefix(FROM_JOB))
        for one in cause.for_
        if one.id.startswith(FROM_JOB)
        for place in one.places
    }
    return {
        f"{file.name}:{one.line}": one.instead
        for file in facts.job
        for one in file.findings
        if (file.name, one.line, one.rule) in meant
    }


def _of_other_accelerator(maker: str | None, facts: Facts) -> list[dict[str, Any]]:
    """A remark that this accelerator's driver and library are not covered."""
    if maker is None:
        return []
    says = (
        f"the accelerators are {maker}'s: causes in NVIDIA's GPUs, driver and NCCL are left out,"
        f" and {maker}'s own are not covered"
    )
    event = facts.of("other_accelerator")[0]
    return [{**_remark(event), "kind": "not covered", "says": says, "instead": None, "sources": []}]


def _remarks(facts: Facts, causes: Sequence[Cause]) -> list[dict[str, Any]]:
    """Harmless lines and folklore, each once, with better advice. A missing plugin is not harmless
    where it is the cause."""
    seen: dict[str, dict[str, Any]] = {}
    without = [
        "nccl-pxn-plugin-none"
        for cause in causes
        if cause.id == "net_plugin_not_loaded" and cause.severity != "info"
    ]
    for event in facts.events:
        if event.id not in without and event.kind in ("harmless", "folklore"):
            seen.setdefault(event.id, _remark(event))
    return list(seen.values())


def _remark(event: Event) -> dict[str, Any]:
    signature = event.signature
    return {
        "id": signature.id, "kind": signature.kind, "says": signature.says,
        "instead": signature.instead, "evidence": [evidence_of(event)],
        "sources": [dict(one) for one in signature.sources],
    }  # fmt: skip


def render_json(diagnosis: Mapping[str, Any]) -> str:
    """One JSON object and nothing else."""
    return json.dumps(diagnosis, ensure_ascii=False, indent=1) + "\n"
