"""The facts of a log, collected from the events of all files: collectives and ranks, first error,
versions, hosts, network, settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import to_builtins

from unhang.core.verdict.activities import MAIN
from unhang.core.verdict.by_stacks import (
    Stack,
    Standing,
    Stuck,
    seen_in_stacks,
    standings,
)
from unhang.core.verdict.joined import Seen, one_answer
from unhang.core.verdict.waited_rows import WaitedRow, ranks_row, waited_for_row
from unhang.core.verdict.waiting import POSSIBLE, Recording, WaitedFor, are_few
from unhang.jobs.diagnose.log_groups import (
    EVERYBODY,
    WHOLE_JOB,
    Process,
    Timeout,
    log_groups,
    ranks_of_processes,
)
from unhang.jobs.diagnose.logs.calls import Traced, traced_calls
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.logs.rank_hosts import (
    host_of_file,
    hosts_in_names,
    hosts_in_words,
    hosts_of_lines,
)
from unhang.jobs.diagnose.logs.reading import Block
from unhang.jobs.diagnose.logs.records import Stand, stands_by_counts
from unhang.jobs.diagnose.logs.stacks import by_thread
from unhang.jobs.diagnose.looked import Read
from unhang.jobs.diagnose.matching.scanning import Event, Scan, names_in, rank_in_name, rank_of
from unhang.jobs.diagnose.meaning.events import (
    FAULTS,
    events_that_count,
    own_ends,
    without_slow_majority,
)
from unhang.jobs.diagnose.ras_standing import RasStanding, ras_standing
from unhang.jobs.diagnose.waits import (
    messages_in_stacks,
    row_of_waits,
    waits_in_words,
    waits_of_log,
)
from unhang.jobs.flight import Flight
from unhang.jobs.flight_steps import ranked, recording_of
from unhang.jobs.job_files import JobFile

MOST_LISTED = 64
_QUOTES = "\"'"
SIZES = {"world_size": "value", "init_start": "nranks", "init_complete": "nranks"}
# facts of lines that follow from another rank's end or wait
ANY_EXCEPTION = "python-exception"  # the signature of an exception of any name
# lines of torchrun's list of failures
_REPORT = re.compile(r"(?:exitcode {1,4}|traceback ?): |Root Cause \(first")
# a level of logging
_INFORMS = re.compile(
    r"^\W{0,3}(?:\S{1,40}[ \]:]{1,3})?I\d{4} \d\d:|^(?!.*NCCL INFO).{0,80}[\[ :|]INFO[\] :|]"
)


@dataclass(frozen=True, eq=False)
class Facts:
    """events: in the order of files and lines. by_fact: fact name -> its events. last: file -> its
    last lines. job: its own files. steps: rank -> the line of its last step. words: rank -> its
    last line before a watchdog gave up. waited: who is waited for, by NCCL's RAS
    or the lines of watchdogs. ras: what RAS answered. stacks: thread -> rank or
    process -> its last stack; stuck: whom the judge of looks at a running
    job names by them. of_tools: file with output of a
    machine's tools -> names of what rules judged in it, and of what they did not."""

    events: tuple[Event, ...]
    by_fact: Mapping[str, Sequence[Event]]
    timeouts: tuple[Timeout, ...]
    hosts: tuple[str, ...]
    world_size: int | None
    last: Mapping[str, Sequence[tuple[int, str]]] = field(default_factory=dict)
    flights: Recording | None = None
    traced: Traced | None = None
    job: tuple[JobFile, ...] = ()
    steps: Mapping[int, RankLine] = field(default_factory=dict)
    words: Mapping[int, RankLine] = field(default_factory=dict)
    logged: WaitedFor = field(default_factory=WaitedFor)
    ras: RasStanding | None = None
    stacks: Mapping[str, Mapping[str, Stack]] = field(default_factory=dict)
    ends: Mapping[str, Block] = field(default_factory=dict)
    of_tools: Mapping[str, Read] = field(default_factory=dict)
    stuck: Stuck = field(default_factory=Stuck)

    @cached_property
    def counts(self) -> list[Stand]:
        """Who differs by the records of lines that no row knows, and how; or that nobody does."""
        return list(stands_by_counts(self.ends))

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """Where each rank's main thread is."""
        return standings(self.stacks.get(MAIN, {}))

    @cached_property
    def seen(self) -> Seen:
        """What the main threads' stacks show."""
        odd = self.stuck.elsewhere if self.stuck.thread == MAIN else ()
        at = seen_in_stacks(self.standings, odd)
        # a watchdog that gave up is later than any look
        return at._replace(goes_on=at.goes_on and not self.timeouts)

    @cached_property
    def gave_up(self) -> set[int]:
        """The ranks whose watchdog did."""
        return {one.rank for one in self.timeouts if one.rank is not None}

    @cached_property
    def host_of(self) -> Mapping[int, str]:
        """rank -> its host, as far as RAS, lines, or names of files have it."""
        printed: dict[int | None, set[str]] = {}
        for event in self.events:
            if event.prefix.host:
                printed.setdefault(rank_of(event), set()).add(event.prefix.host)
        return {
            **hosts_in_names({file: rank_in_name(file) for file in self.last}),
            **hosts_in_words(self.words),
            **{
                rank: min(hosts)
                for rank, hosts in printed.items()
                if rank is not None and len(hosts) == 1
            },
            **{
                rank: host
                for rank, (host, _) in (self.ras.places if self.ras else {}).items()
                if rank >= 0
            },
        }

    @cached_property
    def set_up(self) -> Sequence[Event]:
        """NCCL's lines about the members of communicators."""
        return (*self.of("init_start"), *self.of("init_complete"))

    @cached_property
    def rank_of_process(self) -> Mapping[Process, int]:
        """(host, process) -> its rank, by these lines."""
        return ranks_of_processes(self.set_up)

    def rank_and_host(self, event: Event) -> tuple[int, str | None] | None:
        """Those of the process whose number a line has, by NCCL's lines; that of a kernel's line
        must be of its host."""
        pid, host = event.fields.get("pid"), event.fields.get("host") or event.prefix.host
        is_of_job = host or len(self.hosts) == 1 or not event.fields.get("task")
        known = self.rank_of_process.items()
        found = [(rank, at) for (at, one), rank in known if one == pid and host in (None, at)]
        return found[0] if is_of_job and len(found) == 1 else None

    def of(self, name: str) -> Sequence[Event]:
        """The events of a fact."""
        return self.by_fact.get(name, ())

    def said(self, *names: str) -> list[Event]:
        """The events of these facts that nobody only quotes."""
        return [event for name in names for event in self.of(name) if not event.quoted]

    def set_to(self, *names: str) -> list[Event]:
        """The events of settings with these names."""
        return [event for event in self.of("setting") if event.fields["name"] in names]

    @cached_property
    def plain(self) -> list[Event]:
        """The events that nobody only quotes."""
        return [one for one in self.events if not one.quoted]

    @cached_property
    def faults(self) -> list[Event]:
        """The errors and symptoms among them."""
        return [one for one in self.plain if one.kind in ("error", "symptom")]

    @cached_property
    def answer(self) -> WaitedFor:
        """Who is waited for, by all kinds of evidence together."""
        known = [self.flights.answer] if self.flights else []
        known += [self.logged, self.messages]
        if self.ras and not _is_nameless(self.ras.waited):
            known.append(self.ras.waited)
        if self.traced and self.timeouts and all(rank >= 0 for rank, _ in self.traced.calls):
            # the log of a running job can end anywhere, and a call that all made may have ended
            known.append(replace(self.traced.answer, full=()))
        known += waits_in_words(self.by_fact)
        answer = one_answer(known, self.seen)
        is_twice = (
            self.timeouts
            or self.flights
            or all(one.stack.before for one in self.standings.values())
        )
        if not is_twice and all(one.certainty == POSSIBLE for one in known):
            # RAS and stacks of one moment, at which one rank of a healthy job is late too
            return replace(answer, certainty=POSSIBLE)
        return answer

    @cached_property
    def messages(self) -> WaitedFor:
        """A wrong peer in stacks with arguments."""
        return WaitedFor() if self.seen.goes_on else messages_in_stacks(self.standings.values())

    @property
    def is_counted(self) -> bool:
        """Whether the number of ranks is stated, by a line or by RAS."""
        return bool(_logged_size(self.by_fact) or (self.ras and self.ras.even_ranks))

    @cached_property
    def first_error(self) -> Event | None:
        """The fault that came first, as far as that is known."""
        return _first_error(self.faults)

    def waited_row(self) -> WaitedRow | None:
        """Who is waited for, as documents keep it; None where nobody waits."""
        steps = (one.event for one in self.timeouts)
        lines = (*steps, *self.of("pg_idle"), *self.of("init_start"))
        texts = {one.place: one.text for one in lines}
        return row_of_waits(self.answer, self.words, texts, self.host_of)

    def waits_in_groups(self) -> bool:
        """Whether ranks are waited for in groups that are not the whole job, or one came too late:
        who timed out and who did not is not the whole answer."""
        roots = set(self.logged.roots)
        parts = {wait.group.name for wait in self.logged.waits} - {WHOLE_JOB, EVERYBODY}
        several = len({one.group for one in self.timeouts}) > 1
        return bool(roots) and bool(parts or several or roots & self.gave_up)

    def has(self, *ids: str) -> list[Event]:
        """The events of signatures with these ids that nobody only quotes."""
        return [event for event in self.plain if event.id in ids]

    def values(self, name: str) -> list[str]:
        """The distinct values of a fact, in their order."""
        return list(
            dict.fromkeys(value for event in self.of(name) if (value := event.fields.get("value")))
        )


def _is_nameless(waited: WaitedFor) -> bool:
    """Whether RAS knows the process that is waited for, and not which rank of the job it is."""
    calls = [ranks for wait in waited.different for ranks in wait.calls.values()]
    return any(rank < 0 for rank in waited.roots) or any(max(one) < 0 for one in calls)


def gather_facts(scans: Sequence[Scan], flights: Sequence[Flight] = ()) -> Facts:
    """The facts of scans. Values in, values out; one pass over the events and a few look-ups."""
    job = tuple(scan.job for scan in scans if scan.job is not None)
    scans = _without_what_the_log_knows(scans) if job else scans
    scans = _with_hosts_of_files(scans)
    words = {rank: line for scan in scans for rank, line in scan.words.lines.items()}
    counted = [event for scan in scans for event in events_that_count(scan.events)]
    if ends := own_ends(counted):
        counted = [
            one
            for one in counted
            if one.kind not in FAULTS or one.line <= ends.get(one.file, one.line)
        ]
        # a job can hang at its end, but not after its communicators: stacks and RAS are of before
        if ends.keys() <= {one.file for one in counted if one.fact == "comm_destroyed"}:
            looks = {scan.file for scan in scans if scan.stacks or scan.ras} - ends.keys()
            counted = [one for one in counted if one.file not in looks]
            scans = [replace(scan, stacks=[], ras=[]) for scan in scans]
    events = without_slow_majority(counted, words)
    by_fact: dict[str, list[Event]] = {}
    for event in events:
        if event.fact:
            by_fact.setdefault(event.fact, []).append(event)
    stacks = by_thread([stack for scan in scans for stack in scan.stacks])
    waiting = seen_in_stacks(standings(stacks.get(MAIN, {}))).waits
    ras = ras_standing([answer for scan in scans for answer in scan.ras], waiting)
    even = ras.even_ranks if ras else 0
    logged = _logged_size(by_fact) or even or None
    seen = log_groups(by_fact, logged)
    words = {**_words_of_files(scans, {step.rank for step in seen.steps}), **words}
    timeouts = seen.timeouts
    made = [call for scan in scans for call in scan.calls.values()]
    named = [event.fields.get("host") or event.prefix.host for event in events]
    named += [call.process.rsplit(":", 1)[0] for call in made]
    last = {scan.file: tuple(scan.last) for scan in scans if scan.last}
    gave_up = [one.rank for one in timeouts if one.rank is not None]
    size = logged or (max(*gave_up, *words, *seen.ranks) + 1 if gave_up else None)
    set_up = (
        event.text for name in ("init_start", "init_complete") for event in by_fact.get(name, ())
    )
    traced = traced_calls(made, set_up) if made else None
    return Facts(
        events,
        by_fact,
        timeouts,
        tuple(dict.fromkeys(filter(None, named))),
        size,
        last,
        _recorded(flights, waiting, timeouts),
        traced,
        job,
        {rank: line for scan in scans for rank, line in scan.words.steps.items()},
        words,
        waits_of_log(seen, words, bool(even), waiting | seen.waiting),
        ras,
        stacks,
        {scan.file: scan.end for scan in scans if scan.end and not scan.is_prose},
    )


def _recorded(
    flights: Sequence[Flight], waiting: Iterable[int], timeouts: Sequence[Timeout]
) -> Recording | None:
    """What the dumps show; nothing of a job that ended all that was open in an earlier dump of a
    rank. It may have hung since, which the line of a watchdog shows."""
    found, last = recording_of(flights, waiting), ranked(flights)
    if (
        found
        and not timeouts
        and any(_went_on(one, last[one.rank]) for one in flights if one.rank in last)
    ):
        return replace(found, answer=WaitedFor(), went_on=True)
    return found


def _went_on(earlier: Flight, last: Flight) -> bool:
    return any(
        last.status.get(group, (-1, -1))[1] >= enqueued > completed
        for group, (enqueued, completed) in earlier.status.items()
    )


def _words_of_files(scans: Iterable[Scan], waiting: Collection[int]) -> dict[int, RankLine]:
    """rank -> the last line of a file that is named for it and in which no line names a rank, for
    few beside those that wait: of many the other stream has more. Where a line names another rank
    than its file, as torchrun numbers the files of a second node from 0, no name counts."""
    own = {
        rank: RankLine(scan.file, *scan.last[-1])
        for scan in scans
        if (rank := rank_in_name(scan.file)) is not None
        and rank not in waiting
        and scan.last
        and not (scan.words.lines or scan.words.gave_up or scan.stacks or scan.ras or scan.job)
    }
    named = {(rank_in_name(one.file), one.prefix.own_rank) for scan in scans for one in scan.events}
    few = are_few(own, waiting)
    return own if few and all(None in one or one[0] == one[1] for one in named) else {}


def _with_hosts_of_files(scans: Sequence[Scan]) -> list[Scan]:
    """The scans; of a file in which no line names its host, each gets that of the headings and
    prompts above it, else that of the file's name."""
    known = {one.prefix.host for scan in scans for one in scan.events if one.prefix.host}
    found = []
    for scan in scans:
        events = scan.events
        if scan.end and not any(one.prefix.host for one in events):
            text = scan.end.whole()
            own = host_of_file(scan.file, known, text)
            above = hosts_of_lines(text.decode("utf-8", "replace").split("\n"), scan.file)
            hosts = {scan.end.number(at): host for at, (host, _) in enumerate(above)}
            events = [
                replace(one, prefix=replace(one.prefix, host=hosts.get(one.line) or own))
                for one in events
            ]
        found.append(replace(scan, events=events))
    return found


def _without_what_the_log_knows(scans: Sequence[Scan]) -> list[Scan]:
    """The scans; those of job files without settings that the log itself, or an earlier file,
    shows."""
    known: set[str | None] = set()
    kept = []
    for scan in sorted(scans, key=lambda one: one.job is not None):
        events = [
            event
            for event in scan.events
            if not scan.job or event.fact != "setting" or event.fields["name"] not in known
        ]
        known |= {event.fields["name"] for event in events if event.fact == "setting"}
        kept.append(replace(scan, events=events))
    return kept


def _first_error(faults: Iterable[Event]) -> Event | None:
    """The earliest error by time stamps, or without stamps the first in the order of the files, as
    of the earliest ones of several clocks; a symptom only if there is no error. A line without a
    stamp before the earliest stamped error in the same file is earlier than it."""
    # what a program prints as information, such as that ranks still wait, by glog's I0510 or the
    # level INFO of Python's logging, is no symptom
    shown = [
        one
        for one in faults
        if not one.source and (one.kind == "error" or not _INFORMS.search(one.text))
    ]
    shown = _without_reports_above_the_root(shown)
    chosen = [event for event in shown if event.kind == "error"] or shown
    if not chosen:
        return None
    of_clocks: dict[object, Event] = {}
    for event in chosen:
        if time := event.prefix.time:
            first = of_clocks.setdefault(time.clock, event)
            if (time.since(first.prefix.time) or 0) < 0:
                of_clocks[time.clock] = event
    if not of_clocks:
        return most_telling(chosen[0], chosen)
    earliest = min(of_clocks.values(), key=chosen.index)
    before = [event for event in chosen if earliest.follows(event) and event.prefix.time is None]
    return most_telling(before[0] if before else earliest, chosen)


def most_telling(event: Event, events: Iterable[Event]) -> Event:
    """The event, or another of the same line that says more than that an exception was raised."""
    others = (one for one in events if one.place == event.place and one.id != ANY_EXCEPTION)
    return next(others, event) if event.id == ANY_EXCEPTION else event


def _without_reports_above_the_root(shown: Sequence[Event]) -> list[Event]:
    """Without torchrun's reports of processes that ended after the one that it names as the root
    cause below them."""
    root = {event.file: event.line for event in shown if event.fact == "root_cause"}
    return [
        event
        for event in shown
        if event.line > root.get(event.file, 0) or not _REPORT.match(event.text)
    ]


def _logged_size(by_fact: Mapping[str, Sequence[Event]]) -> int | None:
    """The number of ranks, if a line of the log has it."""
    shown = [
        event.number(size)
        for name, size in SIZES.items()
        for event in by_fact.get(name, ())
        if event.fields.get(size)
    ]
    if shown:
        return max(shown)
    shape = [event for event in by_fact.get("launch_shape", ()) if event.fields.get("per_node")]
    if shape:
        nodes = [int(event.fields["value"] or 1) for event in by_fact.get("nnodes", ())]
        return int(shape[-1].fields["per_node"] or 1) * (max(nodes) if nodes else 1)
    return None


def evidence_of(event: Event | RankLine) -> dict[str, Any]:
    """{file, line, text} of an event, and the span of the text that matched."""
    line = {"file": event.file, "line": event.line, "text": event.text}
    return {**line, "at": [*event.at]} if isinstance(event, Event) else line


def describe(facts: Facts) -> dict[str, Any]:
    """The `facts` of a diagnosis document: each fact with its line."""
    return {
        "collectives": _collectives(facts),
        "failures": list(_failures(facts)),
        "ranks": _ranks(facts),
        "first_error": _first(facts),
        "hosts": list(facts.hosts[:4096]),
        "versions": {
            name.removesuffix("_version"): _valued(facts.of(name))
            for name in names_in("versions")
            if facts.of(name)
        },
        "gpus": _valued(facts.of("gpu")),
        "topology": _counted(facts.of("topology"), lambda event: " ".join(event.text.split())),
        "transports": _counted(facts.of("transport"), _transport),
        "network": {
            "chosen": _valued(facts.of("network_used")),
            "devices": _valued(facts.of("net_devices")),
            "bootstrap": _counted(
                facts.of("bootstrap"),
                lambda event: f"{event.fields['interface']} {event.fields['address']}",
            ),
            "gpudirect_rdma": "on"
            if facts.of("gdr_enabled")
            else "off"
            if facts.of("gdr_disabled")
            else None,
        },
        "settings": _settings(facts),
        "bandwidth": _bandwidth(facts),
        "flight_recorder": facts.flights
        and to_builtins(
            {
                "ranks": ranks_row(facts.flights.ranks),
                "waited_for": waited_for_row(facts.flights.answer),
            }
        ),
        "last": [
            {
                "file": file,
                "line": lines[-1][0],
                "text": lines[-1][1],
                **_whose(rank_in_name(file), None, facts),
            }
            for file, lines in list(facts.last.items())[:MOST_LISTED]
            if lines
        ],
    }


def _collectives(facts: Facts) -> list[dict[str, Any]]:
    """Timed-out collectives, equal ones of several ranks as one."""
    groups: dict[tuple, list[Timeout]] = {}
    for one in facts.timeouts:
        groups.setdefault((one.group, one.op, one.seq, one.numel, one.timeout_ms), []).append(one)
    return [
        {
            "op": op, "seq": seq, "group": group, "numel": numel, "timeout_ms": timeout_ms,
            "ran_ms": max(one.ran_ms for one in alike),
            "ranks": sorted({one.rank for one in alike if one.rank is not None}),
            "lines": [evidence_of(one.event) for one in alike[:8]],
        }
        for (group, op, seq, numel, timeout_ms),
        alike in sorted(groups.items(), key=lambda item: (item[0][2] or 0,
        str(item[0])))[:MOST_LISTED]
    ]  # fmt: skip


def _failures(facts: Facts) -> Iterator[dict[str, Any]]:
    """The lines of failures, those of each signature once for each rank. primary: what may have
    come first: an error by itself, no wait that ran out, no report of another's end."""
    seen: set[tuple[object, ...]] = set()
    first = [facts.first_error] if facts.first_error else []
    for event in (*first, *facts.faults):
        who = (event.id, rank_of(event), event.prefix.host)
        if event.source or seen & {who, event.place} or len(seen) >= 2 * MOST_LISTED:
            continue
        seen |= {who, event.place}
        follows = event.kind == "symptom" or event.fact in names_in("follow")
        yield {
            **evidence_of(event),
            **_whose(rank_of(event), event.prefix.host, facts),
            "primary": (event is facts.first_error and event.kind == "error") or not follows,
        }


def _whose(rank: int | None, host: str | None, facts: Facts) -> dict[str, Any]:
    return {"rank": rank, "host": host or facts.host_of.get(-1 if rank is None else rank)}


def _ranks(facts: Facts) -> dict[str, Any]:
    """The ranks that reached the failed collective: their watchdog reports it, or they completed
    the set-up. The others are missing or silent."""
    arrived = facts.gave_up or {
        event.number("rank") for event in facts.of("init_start") if event.fields.get("rank")
    }
    is_shown = facts.of("missing_ranks") or facts.waits_in_groups() or not facts.is_counted
    shown = {*facts.answer.roots} if is_shown else set()
    size = (facts.world_size or 0) if facts.is_counted and arrived else 0
    missing = shown or ({*range(size)} - arrived if size <= 100_000 else set())
    heard = {*map(rank_of, facts.events), *facts.words}
    return {
        "world_size": facts.world_size, "at_least": not facts.is_counted,
        "arrived": sorted(arrived), "not_arrived": sorted(missing),
        "silent": sorted(missing - heard),
    }  # fmt: skip


def _first(facts: Facts) -> dict[str, Any] | None:
    event = facts.first_error
    if event is None:
        return None
    return {
        **evidence_of(event),
        "time": event.prefix.stamp,
        "host": event.prefix.host,
        "rank": event.prefix.rank,
        "says": event.signature.says,
    }


def _valued(events: Sequence[Event]) -> list[dict[str, Any]]:
    return _counted(
        [event for event in events if event.fields.get("value")],
        lambda event: (event.fields["value"] or "").strip(),
    )


def _counted(
    events: Sequence[Event], name: Callable[[Event], str], most: int = MOST_LISTED
) -> list[dict[str, Any]]:
    """Each name once, with the line of its first event."""
    seen: dict[str, Event] = {}
    for event in events:
        seen.setdefault(name(event), event)
    return [
        {"value": value, "file": event.file, "line": event.line}
        for value, event in list(seen.items())[:most]
    ]


def _transport(event: Event) -> str:
    value = (event.fields.get("value") or event.fields.get("old") or "?").strip()
    parts = [part for part in value.split("/") if not part.split("(")[0].isdigit()]
    return "/".join(parts)


def _settings(facts: Facts) -> list[dict[str, Any]]:
    rows = _counted(
        facts.of("setting"),
        lambda event: (
            f"{event.fields.get('name') or ''}={(event.fields.get('value') or '').strip(_QUOTES)}"
        ),
        256,
    )
    return [
        {**row, "name": name, "value": value}
        for row in rows
        for name, _, value in [row["value"].partition("=")]
    ]


def _bandwidth(facts: Facts) -> dict[str, Any] | None:
    rows = facts.of("bandwidth_row")
    if not rows:
        return None
    best = max(rows, key=lambda event: event.decimal("busbw"))
    average = next((event.decimal("value") for event in facts.of("average_bandwidth")), None)
    return {
        "best_busbw_gb_s": best.decimal("busbw"),
        "at_bytes": best.number("size"),
        "average_gb_s": average,
        **evidence_of(best),
    }
