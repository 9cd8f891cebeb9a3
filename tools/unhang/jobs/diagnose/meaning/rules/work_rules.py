"""Rules over the work and the launch of ranks: work that did not end, ranks that did not start,
hosts that differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath

from unhang.core.catalogue.own_tables import table
from unhang.core.text import counted
from unhang.core.verdict.activities import STARTING
from unhang.core.verdict.odd_one_out import AT_LEAST
from unhang.core.verdict.waiting import are_few
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event, names_in, rank_in_name, rank_of
from unhang.jobs.diagnose.meaning.events import ENDS
from unhang.jobs.diagnose.meaning.evidence import (
    DECISIVE,
    HINTING,
    STRONG,
    SUPPORTING,
    WEAK,
    Evidence,
    weighed,
)
from unhang.jobs.diagnose.meaning.signs import hang_signs, near_end, speed_falls
from unhang.jobs.diagnose.rank_names import each_rank, named_ranks

# lines; single-rank work at most this many lines before a timeout was still running
NEAR_LINES = 15
FEW_STEPS = 3
MOST_OF_A_STEP = 0.6
# variables, and options of programs as py-spy shows them, that are equal for all ranks of a job
_PLAIN = re.compile(r"(?<!\S)[A-Za-z]+(?=[,:;]?(?!\S))")
_DURATION = re.compile(r"\d ?(?:[mnµu]?s|sec\w*|min\w*)\b")
Listed = tuple[str, int, Event]
Sides = dict[str, dict[int | str, Event]]  # {what: {who says it: the line}}


def build_did_not_end(facts: Facts) -> Iterator[Evidence]:
    """A build of CUDA extensions began and has no end in the log.

    Decides diagnose_real_frameworks/extension-lock-left, diagnose_batches/5/369,
    diagnose_batches/13/e24.
    """
    starts = facts.of("build_start")
    if not starts or any(event.follows(starts[-1]) for event in facts.of("build_done")):
        return
    last = starts[-1]
    if hang_signs(facts):
        why, weight = (
            "a build of CUDA extensions began and did not end before the timeout",
            STRONG + 1,
        )
    elif near_end(facts, last):
        why, weight = "the log ends while a CUDA extension is being built", STRONG
        building = {one.file for one in starts if near_end(facts, one)}
        if len(facts.last) == len(building) > 1:
            why, weight = "all ranks build a CUDA extension, as a new job does", WEAK
    else:
        return
    yield Evidence("fused_kernel_build", weight, why, (last,), "build-unfinished")


def work_was_going_on(facts: Facts) -> Iterator[Evidence]:
    """A rank was busy with data, with its environment or with saving, when the others timed out.

    Decides diagnose_real_jobs/slurm-task-imports-slowly, diagnose_batches/4/050,
    diagnose_batches/10/039.
    """
    waits = facts.said("timeout", "store_timeout", "tasks_not_met")
    if not waits:
        return
    first = min(waits, key=lambda event: event.place)
    before = [one for one in facts.of("data_progress") if first.follows(one)]
    # a bar that was complete long before is not evidence
    before += [one for one in facts.of("data_open") if first.follows(one, NEAR_LINES)]
    of_line = (*facts.of("data_progress"), *facts.of("data_open"))
    data = [*before, *(one for one in of_line if one.place == first.place)]
    last = max(data, key=lambda one: one.line, default=None)
    percent = last and last.fields.get("percent")
    is_done = last and any(one.follows(last) for one in facts.of("data_done"))
    if last and not is_done and int(percent or 0) < 100:
        how = f"was at {percent} %" if percent else "was going on"
        why = f"{(last.fields['what'] or '').strip()} {how} when the others' timeout expired"
        yield from _work_outlasts_limit(why, last, first)
        if first.fact != "timeout":  # not come to the store or to JAX's coordinator, and started
            why = "the ranks that are missing were at work"
            weights = dict.fromkeys(("launch_mismatch", "firewall_ports"), -STRONG)
            yield from weighed(weights, why, (last, first), "data-work-unfinished")
        return
    alone = [one for one in facts.of("single_rank_work") if first.follows(one, NEAR_LINES)]
    # The rank that saves, most often rank 0, does not wait for itself: if it waits in the
    # collective too, it is no longer saving.
    if alone and not {0, rank_of(alone[-1])} & facts.gave_up:
        why = (
            "a rank was at long work (saving, merging, evaluating, compiling) when the others'"
            " timeout expired"
        )
        weights = {"watchdog_timeout_too_short": STRONG, "slow_rank_or_io": SUPPORTING}
        yield from weighed(weights, why, (alone[-1], first), "single-rank-work")


def steps_wait_for_their_data(facts: Facts) -> Iterator[Evidence]:
    """Steps report how long they waited for data, and it came to be most of their time.

    Decides diagnose_batches/12/c12.
    """
    rows = [one for one in facts.said("data_of_step") if one.decimal("step")]
    shares = sorted(one.decimal("data") / one.decimal("step") for one in rows)
    if len(shares) >= FEW_STEPS and (share := shares[len(shares) // 2]) >= MOST_OF_A_STEP:
        why = f"steps wait for their data {share:.0%} of the time"
        # a loader that is as slow from the first step on is the job's usual pace
        weight = STRONG if shares[0] < MOST_OF_A_STEP else WEAK
        yield Evidence("slow_rank_or_io", weight, why, (rows[0], rows[-1]), "steps-wait-for-data")


def _work_outlasts_limit(
    why: str, work: Event, wait: Event, id_: str = "data-work-unfinished"
) -> Iterator[Evidence]:
    """Work took longer than the others' limit: a slow rank, which people also call a limit that is
    too short."""
    weights = {"watchdog_timeout_too_short": STRONG + 1, "slow_rank_or_io": STRONG - 0.4}
    yield from weighed(weights, why, (work, wait), id_)


def bar_still_moved(facts: Facts) -> Iterator[Evidence]:
    """A progress bar continues after the first timeout: its rank was working while the others
    waited.

    Decides diagnose_batches/15/g41.
    """
    waits = facts.said("timeout", "store_timeout")
    for wait in waits[:1]:
        bars = [event for event in facts.of("bar") if event.file == wait.file]
        last = next((event for event in bars[::-1] if event.line < wait.line), None)
        after = [
            event
            for event in bars
            if event.line > wait.line
            and last
            and event.fields["all"] == last.fields["all"]
            and event.number("percent") >= last.number("percent")
            and event.text != last.text
        ]
        if after:
            why = (
                f"a progress bar still moved, at {after[-1].fields['percent']} %, after the others"
                " had given up"
            )
            yield from _work_outlasts_limit(why, after[-1], wait, "bar-still-moved")


def some_ranks_never_started(facts: Facts) -> Iterator[Evidence]:
    """Lightning prints each starting rank and the world size; if some never start and nothing
    follows, they were not launched.

    Decides diagnose_real_frameworks/lightning-num-nodes-two, diagnose_batches/3/059,
    diagnose_batches/7/040.
    """
    members = facts.of("member")
    if (
        not members
        or facts.of("training_step")
        or facts.timeouts
        or _steps_follow(facts, members[-1])
    ):
        return
    times = Counter(event.number("rank") for event in members)
    wanted = max(event.number("nranks") for event in members)
    if min(times.values()) > 1 and len(members) == wanted:
        ranks = ", ".join(each_rank(sorted(times)[:4]))
        why = f"{ranks} start {min(times.values())} times each: each node counts its ranks from 0"
        yield Evidence("launch_mismatch", STRONG, why, tuple(members[:2]), "ranks-start-twice")
        return
    if len(times) < wanted and (near_end(facts, members[-1]) or hang_signs(facts)):
        why = f"{len(times)} of {wanted} ranks start, the others print nothing"
        last = facts.last.get(members[-1].file, ())
        # the job may have just begun, or each rank has its own log
        begins = len(times) == 1 and last and last[-1][0] == members[-1].line
        weight = WEAK if begins and not hang_signs(facts) else STRONG
        yield Evidence("launch_mismatch", weight, why, (members[-1],), "ranks-never-started")


def ranks_never_joined(facts: Facts) -> Iterator[Evidence]:
    """The store counts as many ranks as have a line; those without one never came to it.

    Decides diagnose_odd_ones/many_ranks/rank-that-never-started.
    """
    seen = {*facts.words, *map(rank_in_name, facts.last)}
    for event in facts.said("clients_joined")[:1]:
        missing = sorted({*range(event.number("all"))} - seen)
        if 0 < len(missing) == event.number("all") - event.number("joined"):
            who = named_ranks(missing)
            why = f"{who} printed nothing, and as many did not join"
            yield Evidence(
                "launch_mismatch", STRONG, why, (event,), "ranks-never-joined", who=(who,)
            )


def _steps_follow(facts: Facts, event: Event) -> bool:
    """Whether an epoch's progress bar moves after this line: then all ranks take part, and the
    others have logs of their own."""
    return any(
        one.follows(event) and "Epoch" in one.text and one.fields["done"] not in ("0", None)
        for one in facts.of("bar")
    )


def _lists_of_hosts(facts: Facts) -> list[list[Listed]]:
    """The lists of hosts, in a file or on the command line: (host, slots, its line). Lines of a
    file that follow each other are one list."""
    lists: list[list[Listed]] = []
    for event in facts.of("hostfile_row"):
        row = (event.fields["host"] or "", event.number("slots"), event)
        last = lists[-1][-1][2] if lists else None
        if last and (last.file, last.line + 1) == event.place:
            lists[-1].append(row)
        elif not event.quoted:
            lists.append([row])
    for event in facts.of("hosts_on_command_line"):
        parts = [one.rpartition(":") for one in (event.fields["value"] or "").split(",")]
        lists.append(
            [(name, int(slots), event) for name, _, slots in parts if name and slots.isdigit()]
        )
    return lists


def list_of_hosts_is_uneven(facts: Facts) -> Iterator[Evidence]:
    """A list of hosts has a host twice, or hosts with different numbers of ranks: programs that
    expect one number of GPUs per node hang.

    Decides diagnose_outputs/launchers_and_containers/mpi-hostfile,
    diagnose_outputs/launchers_and_containers/mpi-hostfile-twice.
    """
    for listed in _lists_of_hosts(facts):
        hosts: Sides = {}
        sizes: Sides = {}
        for place, (host, slots, event) in enumerate(listed):
            hosts.setdefault(host, {})[place] = event
            sizes.setdefault(counted(slots, "rank"), {})[host] = event
        yield from _twice(hosts, "is twice in the list of hosts", "host-twice")
        weight = STRONG - 0.4 if facts.faults else HINTING
        yield from _unlike(facts, sizes, "launch_mismatch", weight, "uneven-hosts")


def ranks_share_a_core(facts: Facts) -> Iterator[Evidence]:
    """Several processes are bound to the same single CPU, or a slow job's processes are bound to
    one CPU each.

    Decides diagnose_real_jobs/slurm-cpu-bind-one-core, diagnose_batches/16/h49,
    diagnose_outputs/launchers_and_containers/ranks-on-one-core.
    """
    by_core: dict[str, list[Event]] = {}
    for event in facts.said("cpu_binding"):
        if core := _core(event):
            by_core.setdefault(core, []).append(event)
    shared = next((events for events in by_core.values() if len(events) > 1), None)
    if shared and len({event.text for event in shared}) > 1:
        yield Evidence(
            "cpu_affinity",
            STRONG,
            "several processes are bound to one and the same CPU",
            tuple(shared[:2]),
            "same-core",
        )
    elif by_core and (speed_falls(facts) or hang_signs(facts)):
        first = next(iter(by_core.values()))[0]
        yield Evidence(
            "cpu_affinity",
            SUPPORTING,
            "all threads of a process are bound to one CPU, and the job is slow or hangs",
            (first,),
            "one-core",
        )


def _core(event: Event) -> str:
    """A key for the CPU; "" for a mask of several CPUs."""
    for name in ("mpi", "list", "own", "allowed", "phys"):
        if value := event.fields[name]:
            return value
    mask = event.fields["mask"] or (event.fields["slurm"] or "")[2:]
    number = int(mask, 16) if mask else 0
    return str(number.bit_length() - 1) if number and number & (number - 1) == 0 else ""


def ranks_have_unlike_settings(facts: Facts) -> Iterator[Evidence]:
    """Ranks or nodes were started with different values of a setting that all ranks of a job share,
    of their rendezvous or of NCCL, by the table of its variables: all its ranks show theirs and
    none made a step, or both sides waited in vain, or all start. A rank on two sides is of two jobs
    or attempts in one folder, and one that met at another port is of an earlier attempt.

    Decides diagnose_odd_ones/many_ranks/two-ports-of-one-rendezvous,
    diagnose_odd_ones/many_ranks/two-ports-in-files-of-one-line,
    diagnose_odd_ones/stacks/two-addresses-in-command-lines,
    diagnose_odd_ones/many_ranks/one-rank-with-another-algorithm.
    """
    # lines of whoever finds nobody at an address, or too few
    in_vain = {one.file for one in facts.faults if one.signature.for_.keys() & names_in("in_vain")}
    all_start = {one.activity.name for one in facts.standings.values()} == {STARTING}
    works = facts.steps or any(map(facts.of, ("training_step", "bar", *ENDS)))
    known = table("nccl_variables").items()
    of_nccl = [name for name, row in known if row.get("must_agree") == "error"]
    for name in (*names_in("meeting"), *of_nccl):
        sides = _sides(facts, name)
        given = [who for side in sides.values() for who in side]
        waited = {
            value for value, side in sides.items() if in_vain & {one.file for one in side.values()}
        }
        # at one address a side may end its wait, and the others' is for more than there are
        enough = all_start or waited == {*sides} or (waited and name == "WORLD_SIZE")
        whole = len(given) >= AT_LEAST and {*given} == {*range(len(given))} and not works
        what = ("launch_mismatch", STRONG + 2, "two-rendezvous")
        if name in of_nccl:
            what = ("env_var_misconfig", STRONG, "unlike-settings")
        if enough or whole:
            yield from _unlike(facts, sides, *what)
    sides = _sides(facts, "NCCL_SOCKET_IFNAME")
    # hosts may name their interfaces differently, unless one leads to no other machine
    if any(one.split("=")[-1].startswith(names_in("bridges")) for one in sides):
        yield from _unlike(facts, sides, "wrong_interface", SUPPORTING + 1, "unlike-interfaces")


def rank_is_given_twice(facts: Facts) -> Iterator[Evidence]:
    """Two processes start as one rank of the job's only communicator, which nobody completed, so
    that another rank is missing. A second attempt and another job have a communicator of their own.

    Decides diagnose_odd_ones/many_ranks/rank-that-two-processes-have.
    """
    starts, times = facts.said("init_start"), Counter(facts.rank_of_process.values())
    comms = {one.fields.get("comm") for one in starts} - {None}
    is_short = len(times) < times.total() <= (facts.world_size or 0)
    if is_short and len(comms) == 1 and not facts.of("init_complete"):
        rank = times.most_common(1)[0][0]
        lines = tuple(one for one in starts if one.number("rank") == rank)
        hosts = tuple(f"host {one.prefix.host}" for one in lines)
        why = f"rank {rank} is given to several processes"
        yield Evidence("launch_mismatch", DECISIVE, why, lines, "rank-given-twice", who=hosts)


def one_rank_says_something_else(facts: Facts) -> Iterator[Evidence]:
    """All ranks print a line with the same value, except one with another value, and the ranks do
    not meet.

    Decides diagnose_real_jobs/mesh-shape-of-one-rank-differs, diagnose_batches/9/039.
    """
    waits = facts.said("timeout", "store_timeout") or hang_signs(facts)
    if not (waits or facts.has("waits-for-communicator-id")):
        return
    # behind a time of its own, where programs log all kinds of things, a value accuses nobody
    for sides in said_alone(
        one for one in facts.of("rank_said") if one.text.lower().startswith(("rank", "[rank"))
    ):
        found = _unlike(facts, sides, "rank_desync_app", STRONG - 0.5, "one-rank-says-otherwise")
        yield from (replace(one, who=each_rank(next(iter(sides.values())))) for one in found)
        return


def said_alone(events: Iterable[Event]) -> Iterator[Sides]:
    """What few ranks printed, then what all others printed in the same plain words, if each of both
    has one value: a number, a path, a name with a dot. Steps and numbers of processes have more; a
    duration is of no use."""
    by_words: dict[str, Sides] = {}
    for one in events:
        said, rank = one.fields["phrase"] or "", one.number("rank") or one.number("number")
        words = " ".join(_PLAIN.findall(said))
        if words and not _DURATION.search(said):
            by_words.setdefault(words, {}).setdefault(said.strip(), {}).setdefault(rank, one)
    for sides in by_words.values():
        by_size = dict(sorted(sides.items(), key=lambda one: len(one[1])))
        few, *others = by_size.values()
        if len(others) == 1 and are_few(few, *others) and few.keys().isdisjoint(*others):
            yield by_size


def _sides(facts: Facts, name: str) -> Sides:
    """{setting: {rank, or file of a rank or a node: its line}}."""
    sides: Sides = {}
    for one in facts.set_to(name):
        rank = facts.rank_of_process.get((one.prefix.host, one.prefix.pid), rank_of(one))
        value = str(one.fields["value"]).strip("\"'").lower()
        who = one.file if rank is None else rank
        # on the node of the store it may be the same address by another name
        if value not in ("localhost", "127.0.0.1"):
            sides.setdefault(f"{name}={value}", {}).setdefault(who, one)
    return sides


def _unlike(facts: Facts, sides: Sides, cause: str, weight: float, name: str) -> Iterator[Evidence]:
    """The evidence of what several say unlike each other, the fewest first; who says two things is
    of two jobs or attempts."""
    given = [who for side in sides.values() for who in side]
    if len(sides) > 1 and len(given) == len({*given}):
        by_size = sorted(sides.items(), key=lambda one: len(one[1]))
        told = tuple(f"{_named(side, facts)}: {what}" for what, side in by_size)
        first = tuple(evidence_of(next(iter(side.values()))) for _, side in by_size)
        yield Evidence(cause, weight, "; ".join(told), (), name, places=first, who=told)


def _twice(sides: Sides, how: str, name: str) -> Iterator[Evidence]:
    """The evidence of the first thing that only one may have, and several have."""
    for what, side in sides.items():
        if len(side) > 1:
            lines = tuple(side.values())[:2]
            yield Evidence("launch_mismatch", STRONG, f"{what} {how}", lines, name)
            return


def _named(side: Iterable[int | str], facts: Facts) -> str:
    """ranks 8-11 on node2, or the files."""
    ranks = [one for one in side if isinstance(one, int)]
    hosts = {facts.host_of.get(rank) for rank in ranks}
    names = named_ranks(ranks) if ranks else ", ".join(PurePath(str(one)).name for one in side)
    return names + (f" on {hosts.pop()}" if len(hosts) == 1 and None not in hosts else "")


def versions_of_hosts_differ(facts: Facts) -> Iterator[Evidence]:
    """Hosts print one version each, and the versions differ.

    Decides diagnose_outputs/launchers_and_containers/torch-of-nodes,
    diagnose_outputs/launchers_and_containers/python-of-nodes.
    """
    by_name: dict[str, Sides] = {}
    for event in facts.of("version_of_host"):
        name = event.fields["name"] or "it"
        sides = by_name.setdefault(name, {})
        what = f"{name} {event.fields['value']}"
        sides.setdefault(what, {}).setdefault(str(event.fields["host"]), event)
    for sides in by_name.values():
        yield from _unlike(facts, sides, "software_versions_differ", STRONG, "versions-of-hosts")
