"""Names the suspects, from the histories of all ranks. Values in, values out.

Certain evidence comes first: a node that did not answer, a failed phase and its reason, a process
that died or was stopped. Without certain evidence: the rank that never entered the collective in
which all others wait; then errors that ranks reported, which are mostly consequences of another
rank's end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.core.verdict.rendering import ranks_wait
from unhang.core.verdict.suspect import Suspect
from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, WaitedFor, waited_for
from unhang.smoke.streams import Story, Stream
from unhang_node.base.parse.values import as_list, as_map, as_maps, number_of

NEXT_LOOK_AT_NODE = (
    "unhang audit -i INVENTORY --host {host}; look at the kernel log and the driver there"
)
OPERATIONS = ("broadcast", "all_reduce", "all_gather", "reduce_scatter")
CONSEQUENCE_CODES = (1, 3)  # a phase failed; the rank ended itself after a stall
BEFORE_THE_OTHERS = ("environment", "binding")  # phases in which a rank is alone
# the signal with which torch's watchdog ends a rank whose peer is gone; the signal that requests a
# rank's stacks
ECHOES = ("SIGABRT", "SIGUSR1")
_TIMEOUT = re.compile(r"(?i)timed? ?-?out|deadline")


def find_suspects(streams: Sequence[Stream], reported: Mapping[int, Story]) -> list[Suspect]:
    """Suspects, the most certain first; [] when all ranks ended well."""
    certain = [*_hosts(streams, reported), *_stopped(reported), *_died(reported, echo=False)]
    if not any(suspect.rank is not None or suspect.phase != "launch" for suspect in certain):
        certain += _died(reported, echo=True)
    refused = _refused(reported, {suspect.host for suspect in certain})
    if certain or refused:
        return _once([*certain, *refused])
    return _once(
        _behind(reported) or _stuck_witnesses(reported) or _errors(reported) or _all_in(reported)
    )


def _once(suspects: Sequence[Suspect]) -> list[Suspect]:
    kept: dict[tuple, Suspect] = {}
    for suspect in suspects:
        kept.setdefault((suspect.host, suspect.rank), suspect)
    return list(kept.values())


def _hosts(streams: Sequence[Stream], reported: Mapping[int, Story]) -> Iterator[Suspect]:
    for stream in streams:
        failed = next(
            (event.get("message") for event in stream.events if event["e"] == "node_failed"), None
        )
        if stream.problem and not stream.ended:
            phase = (
                reported[stream.ranks[0]].last_phase if stream.events and stream.ranks else "launch"
            )
            yield _of_host(
                stream.host,
                phase,
                stream.problem,
                f"ssh {stream.host}; unhang audit -i INVENTORY --host {stream.host}",
                blind=True,
            )
        elif failed:
            why = f"could not start its ranks: {failed}"
            yield _of_host(
                stream.host,
                "launch",
                why,
                "name a Python that is there with --python",
                blind=True,
            )
        elif not stream.ended:
            why = "its results were cut off: the node never reported its end"
            yield _of_host(
                stream.host,
                reported[stream.ranks[0]].last_phase,
                why,
                NEXT_LOOK_AT_NODE.format(host=stream.host),
            )


def _of_host(host: str | None, phase: str, why: str, then: str, *, blind: bool = False) -> Suspect:
    return Suspect(host, None, None, phase, why, then, blind)


def _suspect(
    story: Story, why: str, then: str, phase: str | None = None, *, slow: bool = False
) -> Suspect:
    phase = phase or story.last_phase
    return Suspect(
        story.host,
        story.rank,
        story.gpu,
        phase,
        why,
        then,
        story.result(phase).get("blind") is True,
        slow,
    )


def _stopped(reported: Mapping[int, Story]) -> Iterator[Suspect]:
    for story in reported.values():
        stall = story.stall or {}
        if story.unkillable:
            place = (
                f"state {story.unkillable.get('state')}, in"
                f" {story.unkillable.get('wchan') or 'the kernel'}"
            )
            why = (
                f"its process {int(number_of(story.unkillable.get('pid')))} survives SIGKILL"
                f" ({place}): the node is unfit"
            )
            yield _suspect(
                story,
                why,
                f"drain {story.host} and reboot it; look for Xids and hung tasks in its kernel log",
            )
        elif stall.get("reason") == "stopped":
            why = (
                f"its process is stopped (state {stall.get('state')}) before collective"
                f" {_next(story)} was over, all others wait for it"
            )
            yield _suspect(
                story,
                why,
                "find who sent SIGSTOP: a debugger, a job manager's suspend, a frozen container",
            )
        elif stall.get("reason") == "deadline" and story.last_phase in BEFORE_THE_OTHERS:
            waited = f"{number_of(stall.get('waited_s')):.0f} s"
            why = (
                f"did not get past {stall.get('step') or story.last_phase} within"
                f" {waited}, where it waits for nobody else"
            )
            yield _suspect(
                story,
                why,
                "see its stack in the evidence; then files and file systems of its Python, and"
                " the driver, on that node",
                slow=True,
            )
        elif _in_kernel(story) and stall.get("reason") != "witness":
            yield _hangs(story)


def _in_kernel(story: Story) -> bool:
    return (story.stall or {}).get("state") == "D"


def _hangs(story: Story) -> Suspect:
    where = (story.stall or {}).get("wchan") or "the kernel"
    return _suspect(
        story,
        f"its process hangs in the kernel (state D, in {where})",
        NEXT_LOOK_AT_NODE.format(host=story.host),
        slow=(story.stall or {}).get("reason") == "witness",
    )


def _stuck_witnesses(reported: Mapping[int, Story]) -> list[Suspect]:
    """In state D when another's trouble had them looked at: on a busy machine a page that is being
    read, so no more than a hint."""
    return [_hangs(story) for story in reported.values() if _in_kernel(story)]


def _next(story: Story) -> int:
    return int(number_of((story.stall or story.exit or {}).get("seq")))


def _died(reported: Mapping[int, Story], echo: bool) -> Iterator[Suspect]:
    """Ranks that ended. echo: those alone that end so when another is stopped, hangs or died:
    torch's watchdog aborts, gloo's peers raise."""
    for story in reported.values():
        code, name = (story.exit.get("code"), story.exit.get("signal")) if story.exit else (0, None)
        if story.exit is None or (name in ECHOES or (code == 1 and not name)) != echo:
            continue
        if name:
            why = f"its process was ended by {name} after {_next(story)} collectives"
            yield _suspect(story, why, _after_signal(str(name), story.host))
        elif code not in CONSEQUENCE_CODES:
            yield _suspect(
                story,
                f"its process ended by itself with code {code}{_last_words(story)}",
                "run the phase again on this node alone",
            )
        elif code == 1 and not any(
            end.get("status") in ("fail", "error") for end in story.phases.values()
        ):
            then = f"try it there: {story.facts.get('executable') or 'python3'} -c 'import torch'"
            yield _suspect(
                story, f"its process ended with code 1 without a word{_last_words(story)}", then
            )


def _after_signal(name: str, host: str) -> str:
    if name == "SIGKILL":
        return f"look for the OOM killer or a job manager's limit in the kernel log of {host}"
    return (
        f"look at the stack in the evidence, and for segfaults and Xids in the kernel log of {host}"
    )


def _last_words(story: Story) -> str:
    output = as_list((story.exit or {}).get("output"))
    lines = [str(line).strip() for line in output if str(line).strip()]
    return f"; its last words: {lines[-1][:300]}" if lines else ""


def _refused(reported: Mapping[int, Story], blamed: set[str | None]) -> list[Suspect]:
    """Phases that answered no, in their order; the first phase with an answer decides, for what
    follows is its consequence."""
    failed = [
        (phase, story, end)
        for story in reported.values()
        for phase, end in story.phases.items()
        if end.get("status") == "fail"
    ]
    if not failed:
        return []
    order = {
        name: place
        for place, name in enumerate(
            dict.fromkeys(name for story in reported.values() for name in story.begun)
        )
    }
    first = min(order.get(phase, 0) for phase, _, _ in failed)
    rows = [(phase, story, end) for phase, story, end in failed if order.get(phase, 0) == first]
    phase = rows[0][0]
    if phase == "consistency":
        return _inconsistent(rows[0][2], reported)
    if phase == "rendezvous":
        return _not_met(rows, reported, blamed)
    if phase in OPERATIONS:
        return _wrong_results(phase, [row for row in failed if row[0] in OPERATIONS], reported)
    return [
        _suspect(story, str(end.get("message")), _after(phase, end), phase)
        for _, story, end in rows
    ]


def _after(phase: str, end: Mapping[str, Any]) -> str:
    variable = as_map(end.get("result")).get("variable")
    if variable and phase == "environment":
        return f"correct {variable} or take it out; unhang audit shows which file sets it"
    return _NEXT.get(phase, f"run it again: unhang smoke --phases {phase}")


_NEXT = {
    "environment": "name the Python that users train with: --python PATH",
    "binding": (
        "let each rank take the GPU of its LOCAL_RANK, and CUDA_VISIBLE_DEVICES name all GPUs of"
        " the node"
    ),
}


def _result(end: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return as_maps(as_map(end.get("result")).get(name))


def _inconsistent(end: Mapping[str, Any], reported: Mapping[int, Story]) -> list[Suspect]:
    found = []
    for fault in _result(end, "binding"):
        shared = ", ".join(map(str, _ranks(fault.get("ranks"), reported)))
        for rank in _ranks(fault.get("blamed"), reported):
            why = (
                f"ranks {shared} share one device ({fault.get('device')}); cause:"
                f" {fault.get('variable')}"
            )
            found.append(_suspect(reported[rank], why, _NEXT["binding"], "binding"))
    for row in _result(end, "differences"):
        values = row.get("values")
        if isinstance(values, dict) and values:
            found += _minority(
                str(row.get("name")),
                {str(value): _ranks(ranks, reported) for value, ranks in values.items()},
                reported,
            )
    return found


def _ranks(value: Any, reported: Mapping[int, Story]) -> list[int]:
    return [rank for rank in as_list(value) if isinstance(rank, int) and rank in reported]


def _minority(
    name: str, values: Mapping[str, list[int]], reported: Mapping[int, Story]
) -> list[Suspect]:
    """The ranks that differ from most; all sides when there is no majority."""
    largest = max(map(len, values.values()))
    usual = [value for value, ranks in values.items() if len(ranks) == largest]
    output = "; ".join(
        f"{value} on ranks {', '.join(map(str, ranks[:16]))}"
        for value, ranks in sorted(values.items())
    )
    found = []
    for value, ranks in values.items():
        if len(usual) == 1 and value == usual[0]:
            continue
        side = f"most have {usual[0]}" if len(usual) == 1 else "no side has the majority"
        then = f"make {name} the same on all nodes: unhang audit shows where it is set"
        found += [
            _suspect(reported[rank], f"{name} is {value} here, {side} ({output})", then)
            for rank in ranks
        ]
    return found


def _not_met(
    rows: Sequence[tuple[str, Story, Mapping[str, Any]]],
    reported: Mapping[int, Story],
    blamed: set[str | None],
) -> list[Suspect]:
    in_use = [(story, end) for _, story, end in rows if "in use" in str(end.get("message"))]
    if in_use:
        return [
            _suspect(
                story,
                str(end.get("message")),
                "choose another port with --port, or end what holds it: ss -ltnp",
            )
            for story, end in in_use
        ]
    results = [end.get("result") for _, _, end in rows]
    missing = sorted(
        {
            rank
            for result in results
            if isinstance(result, dict)
            for rank in _ranks(result.get("missing"), reported)
        }
    )
    absent = [reported[rank] for rank in missing if reported[rank].host not in blamed]
    if missing:
        return [
            _suspect(
                story,
                "never came to the rendezvous",
                NEXT_LOOK_AT_NODE.format(host=story.host),
                "rendezvous",
                slow=True,
            )
            for story in absent
            if not story.ended
        ]
    then = (
        "unhang smoke chooses an address that all can reach; see `rendezvous` in the result, and"
        " firewalls"
    )
    return [_suspect(story, str(end.get("message")), then) for _, story, end in rows]


def _wrong_results(
    phase: str, rows: Sequence[tuple[str, Story, Mapping[str, Any]]], reported: Mapping[int, Story]
) -> list[Suspect]:
    """The rank whose data was wrong at most others, or else those that alone received wrong data,
    or none."""
    seen = {
        (source, story.rank)
        for _, story, end in rows
        for source in _senders(end)
        if source in reported
    }
    witnesses = Counter(source for source, _ in seen)
    victims = Counter(receiver for _, receiver in seen)
    where = ", ".join(dict.fromkeys(name for name, _, _ in rows))
    hit = Counter({story.rank for _, story, _ in rows})
    if not seen and len(hit) == len(reported):
        why = f"all ranks have wrong sums, and all data arrives right ({where})"
        return [_of_host(None, phase, why, "unhang smoke --isolate finds the node")]
    times, why = hit, "has wrong sums where others have the right ones ({2})"
    if seen and max(witnesses.values()) >= max(victims.values()):
        times, why = (
            witnesses,
            "its data arrived wrong at {} of {} ranks, against exactly known results ({})",
        )
    elif seen:
        times, why = victims, "receives wrong data from {} of {} ranks ({})"
    return [
        _suspect(
            reported[rank],
            why.format(times[rank], len(reported), where),
            _corrupt(reported[rank]),
            phase,
        )
        for rank in sorted(times)
        if times[rank] == max(times.values())
    ]


def _corrupt(story: Story) -> str:
    return (
        f"take {story.host} out of service; look for ECC errors, Xids, PCIe errors (AER) and the"
        f" IOMMU: unhang audit -i INVENTORY --host {story.host}"
    )


def _senders(end: Mapping[str, Any]) -> list[int]:
    named = as_map(as_map(end.get("result")).get("wrong_from"))
    return [int(source) for source in named if re.fullmatch(r"\d{1,6}", str(source))]


def _waited_for(reported: Mapping[int, Story]) -> WaitedFor:
    """The stalls of all ranks as one group: those ahead wait for those that are not there."""
    ahead = max((_next(story) for story in reported.values() if story.stall), default=0)
    steps = [
        Step(
            story.rank, "", "", _next(story),
            LAUNCHED if _next(story) == ahead else COMPLETED,
        )
        for story in reported.values() if story.stall
    ]  # fmt: skip
    return waited_for([Group("", tuple(step.rank for step in steps))], steps, complete=True)


def _behind(reported: Mapping[int, Story]) -> list[Suspect]:
    """Ranks that had not entered the collective that others wait in."""
    waited = _waited_for(reported)
    return [
        _suspect(
            reported[rank],
            f"never entered collective {wait.seq} ({as_map(reported[rank].stall).get('step')}), in"
            f" which {ranks_wait(len(wait.waiting))}; its last is {_next(reported[rank])}",
            "see its stack in the evidence; then: unhang smoke --isolate, or look at"
            f" {reported[rank].host} alone",
            slow=True,
        )
        for wait in waited.waits
        for rank in wait.behind
    ]


def _errors(reported: Mapping[int, Story]) -> list[Suspect]:
    rows = [
        (story, phase, end)
        for story in reported.values()
        for phase, end in story.phases.items()
        if end.get("status") == "error"
    ]
    then = (
        "look at the message and at the node; unhang smoke --isolate shows whether it follows the"
        " node"
    )
    return [
        _suspect(
            story,
            str(end.get("message")),
            then,
            phase,
            slow=_TIMEOUT.search(str(end.get("message"))) is not None,
        )
        for story, phase, end in rows
    ]


def _all_in(reported: Mapping[int, Story]) -> list[Suspect]:
    """All ranks entered and none left: a fault of the path between them."""
    for wait in _waited_for(reported).full:
        stall = as_map(reported[wait.waiting[0]].stall)
        why = (
            f"all {len(wait.waiting)} ranks entered collective {wait.seq} ({stall.get('step')}) and"
            " none left it: what lies between them does not carry it"
        )
        then = (
            "unhang smoke --isolate finds the pair; the experiments below show which way is broken"
        )
        return [Suspect(None, None, None, str(stall.get("phase")), why, then, may_be_slow=True)]
    return []
