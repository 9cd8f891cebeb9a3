"""The verdict of a burn-in on each GPU: pass, fail or not proved, from the events of its payload. Values in, values out.

A wrong bit fails the GPU on which it was found, for each result is known beforehand. A reason why nothing could be proved (a job uses the GPUs, a library
without exact results, an early end) fails no GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from unhang.core.text import counted
from unhang.core.verdict.counter_rates import Rates, outstanding
from unhang.core.verdict.streams import number
from unhang.smoke.bandwidth import stragglers
from unhang.smoke.burn_in.dcgm_diag import dcgm_failures, dcgm_gaps, dcgm_notes, read_dcgm
from unhang.smoke.burn_in.events import UNFIT

SCHEMA = "unhang/burn-in/1"
PASS, FAIL, NOT_PROVED = "pass", "fail", "not proved"
EXIT_CODES = {PASS: 0, FAIL: 1, NOT_PROVED: 2}
MEMORY, COLLECTIVE = "memory", "collective"
LEAST_SPREAD = 0.03  # share of the median: healthy GPUs of one model at their power cap differ by a few percent
STAYS = ("persistence_mode", "compute_mode", "power_limit_mw", "ecc")
LEFT_BYTES = 2**29  # more than the driver's own share of memory varies
HELD_SHARE = 0.05  # share of the readings: less is only a moment
Event = Mapping[str, Any]
NO_PLAN: Mapping[str, Any] = MappingProxyType({})


def judge_burn_in(events: Sequence[Event], host: str, rates: Rates, plan: Mapping[str, Any] = NO_PLAN) -> dict[str, Any]:
    """The document (unhang/burn-in/1). events: as parse_burn_in gives them, so of the right shape. rates: normal rises of counters in a minute.

    plan: the payload's plan, {device, duration_s, ...}; a burn-in of anything else proves nothing.
    """
    begin, end = _last(events, "burn_begin"), _last(events, "burn_end")
    workers = {int(row["gpu"]): row for row in end.get("workers") or ()}
    devices = {int(event["gpu"]): event for event in events if event["e"] == "device"}
    asked = _last(events, "dcgm")
    dcgm = read_dcgm(asked) if asked else None
    slow = slow_gpus(workers, end.get("readings") or ())
    failures = [*wrong_results(events), *inexact_types(events)[0], *faults(events), *slow, *risen_counters(end, host, rates, workers), *remapped(end, workers)]
    failures += [failure(worker_of(gpu, end, workers), "DCGM", why) for gpu, why in dcgm_failures(dcgm)]
    gaps = [*refusals(events, end), *unfit(events), *inexact_types(events)[1], *absences(events)]
    gaps += [*early_end(events, begin, end), *other_work(begin, end, plan), *unsettled(end), *dcgm_gaps(dcgm)]
    verdict = FAIL if failures else NOT_PROVED if gaps else PASS
    return {
        "schema": SCHEMA, "host": host, "verdict": verdict, "device": begin.get("device"), "asked_s": begin.get("duration_s"), "seconds": end.get("seconds"),
        "ended_by": end.get("reason"), "failures": failures, "gaps": gaps, "notes": [*notes(events, end), *dcgm_notes(dcgm)], "dcgm": dcgm,
        "gpus": [gpu_row(gpu, devices.get(gpu) or {}, workers.get(gpu) or {}, end, events, failures) for gpu in sorted({*devices, *workers})],
        "wrong": [{name: event.get(name) for name in ("gpu", "round", "what", "elements", "places", "why")} for event in events if event["e"] == "wrong"],
        "readings": list(end.get("readings") or ()), "counters": list(end.get("counters") or ()),
        "settings": {when: list((end.get(when) or {}).get("settings") or ()) for when in ("before", "after")},
    }  # fmt: skip


def failure(gpu: int | None, kind: str, why: str) -> dict[str, Any]:
    """A reason for a fail. gpu: the faulty one, None if unknown."""
    return {"gpu": gpu, "kind": kind, "why": why}


def wrong_results(events: Iterable[Event]) -> list[dict[str, Any]]:
    """A failure for each GPU and type, with the address of the first wrong element."""
    found: dict[tuple[int, str], list[Event]] = {}
    for event in events:
        if event["e"] == "wrong":
            found.setdefault((int(event["gpu"]), str(event["what"])), []).append(event)
    return [failure(gpu, "wrong result", _wrong_line(what, rows)) for (gpu, what), rows in sorted(found.items())]


def _wrong_line(what: str, rows: Sequence[Event]) -> str:
    place = next((row["places"][0] for row in rows if row.get("places")), None)
    subject = {MEMORY: "memory", COLLECTIVE: "a sum over the GPUs"}.get(what, f"a product in {what}")
    count = counted(sum(int(row["elements"]) for row in rows), "wrong element")
    if place is None:
        return f"{subject} was wrong and right when read again: {rows[0].get('why')}"
    bits = ", ".join(map(str, place["bits"]))
    where = f"at address {place['address']} ({place['where']})"
    return f"{subject} had {count} in {counted(len(rows), 'result')}: {where} expected {place['expected']}, found {place['found']}, bits {bits}"


def inexact_types(events: Iterable[Event]) -> tuple[list[dict[str, Any]], list[str]]:
    """(failures, gaps) of types whose very first results were not what they have to be.

    Where another GPU of the node has it right, or this one has it differently each time, the GPU is wrong. The same wrong bits on all of them, or on the only
    one there is, may as well be a library that does not sum exactly.
    """
    failures, gaps = [], []
    kinds: dict[str, list[Event]] = {}
    for event in events:
        if event["e"] == "type" and event["status"] != "absent":
            kinds.setdefault(str(event["type"]), []).append(event)
    for name, rows in kinds.items():
        wrong = [row for row in rows if row["status"] == "inexact"]
        right = len(rows) - len(wrong)
        for row in wrong:
            if right or not row.get("repeats"):
                why = f"{right} other GPUs have it right" if right else "the same product came out differently each time"
                failures.append(failure(int(row["gpu"]), "wrong result", f"the first product in {name} had {row['wrong']} wrong elements: {why}"))
        if wrong and not right and all(row.get("repeats") for row in wrong):
            alike = len({row["digest"] for row in wrong}) == 1
            differing = "the same on all GPUs, as a library that rounds would have it" if alike else "and differently on different GPUs: one of them is wrong"
            gaps.append(f"{name}: results are not exact, {differing}; the type was left out")
    return failures, gaps


def absences(events: Sequence[Event]) -> list[str]:
    """Types that some GPUs have and others, of the same node, have not."""
    gaps = []
    for name in dict.fromkeys(str(event["type"]) for event in events if event["e"] == "type"):
        rows = [event for event in events if event["e"] == "type" and event["type"] == name]
        lacking = [event for event in rows if event["status"] == "absent"]
        if lacking and len(lacking) < len(rows):
            gaps.append(f"{name}: not tried on GPU {', '.join(str(row['gpu']) for row in lacking)} and on the others it was: {lacking[0].get('why')}")
    if not any(event["e"] == "type" and event["status"] == "ready" for event in events) and any(event["e"] == "ready" for event in events):
        gaps.append("no type of number could be tried")
    return gaps


def faults(events: Sequence[Event]) -> list[dict[str, Any]]:
    """GPUs on which a program failed by the driver's own word, that hang while others wait for them, or whose process survives SIGKILL."""
    found = [failure(int(event["gpu"]), "fault", str(event["message"])) for event in events if event["e"] == "failed" and event.get("fault")]
    silent = [event for event in events if event["e"] == "silent"]
    waiting = {int(event["gpu"]) for event in silent if event["phase"] == COLLECTIVE}
    for event in silent:
        if int(event["gpu"]) not in waiting:
            found.append(
                failure(int(event["gpu"]), "hang", f"no answer for {event['seconds']:.0f} s in {event['phase']}, its process is in state {event['state']}")
            )
    for event in events:
        if event["e"] == "worker_unkillable":
            found.append(failure(int(event["gpu"]), "hang", f"process {event['pid']} survives SIGKILL, it waits in {event.get('wchan') or 'the kernel'}"))
    return found


def refusals(events: Sequence[Event], end: Event) -> list[str]:
    """Why there was no burn-in, or no end of it."""
    reasons = [str(reason) for event in events if event["e"] == "refused" for reason in event["reasons"]]
    if not reasons and not end:
        reasons = ["the burn-in's agent ended without a result"]
    return reasons


def unfit(events: Sequence[Event]) -> list[str]:
    """Events that do not fit the schema: the fault may be among them."""
    return list(dict.fromkeys(str(event["why"]) for event in events if event["e"] == UNFIT))


def early_end(events: Sequence[Event], begin: Event, end: Event) -> list[str]:
    """Reasons why workers ended early that are no fault of a GPU."""
    gaps = [f"ended by {end['reason']} before its {number(begin.get('duration_s')):.0f} s were over"] if end.get("reason") else []
    gaps += [f"GPU {event['gpu']}: {event['message']}" for event in events if event["e"] == "failed" and not event.get("fault")]
    for event in events:
        if event["e"] == "worker_exit" and not event.get("message"):
            output = f": {event['output'][-1]}" if event.get("output") else ""
            gaps.append(f"GPU {event['gpu']}: its process ended with {event.get('signal') or event['code']}{output}")
    silent = [event for event in events if event["e"] == "silent"]
    if silent and all(event["phase"] == COLLECTIVE for event in silent):
        gaps.append("all GPUs wait in a sum over all of them, and nobody can tell for whom: unhang smoke --local looks closer")
    return gaps


def other_work(begin: Event, end: Event, plan: Mapping[str, Any]) -> list[str]:
    """Differences between the request and the work: GPUs that did nothing, another device, a shorter time."""
    if not end:
        return []
    workers = end["workers"]
    gaps = [] if workers else ["no GPU was at work"]
    idle = [str(row["gpu"]) for row in workers if not any(done["count"] for done in row["done"].values())]
    gaps += [f"GPU {', '.join(idle)}: no result of it was checked"] if idle else []
    for name in ("device", "duration_s"):
        if plan.get(name) is not None and begin.get(name) != plan[name]:
            gaps.append(f"expected a burn-in with {name} {plan[name]}, found one with {begin.get(name)}")
    if not end.get("reason") and end["seconds"] < number(begin.get("duration_s")):
        gaps.append(f"it ended after {end['seconds']:.0f} s, before its {number(begin.get('duration_s')):.0f} s were over")
    return gaps


def unsettled(end: Event) -> list[str]:
    """Settings of the GPUs that were not restored."""
    before, after = (end.get(when) or {} for when in ("before", "after"))
    if before.get("settings") and (after.get("problem") or len(after.get("settings") or ()) != len(before["settings"])):
        return [f"afterwards NVML knew of {len(after.get('settings') or ())} GPUs, {len(before['settings'])} before: {after.get('problem') or 'a GPU is gone'}"]
    gaps = []
    for number_, (one, other) in enumerate(zip(before.get("settings") or (), after.get("settings") or (), strict=False)):
        gaps += [f"GPU {number_}: {name} was {one[name]} and is {other[name]}" for name in STAYS if one[name] != other[name]]
        if other["processes"]:
            gaps.append(f"GPU {number_}: processes {', '.join(map(str, other['processes']))} are on it afterwards")
        elif (other["used_bytes"] or 0) > (one["used_bytes"] or 0) + LEFT_BYTES:
            gaps.append(f"GPU {number_}: {other['used_bytes'] >> 20} MiB are in use afterwards, {(one['used_bytes'] or 0) >> 20} MiB were before")
    return gaps


def slow_gpus(workers: Mapping[int, Event], readings: Sequence[Event]) -> list[dict[str, Any]]:
    """GPUs whose time for a product stands out among their peers by median and MAD, with the clocks that explain it. Empty for fewer than four."""
    found = []
    for name in dict.fromkeys(name for row in workers.values() for name in row.get("done") or () if name != COLLECTIVE):
        times = {gpu: 1e12 / rate for gpu, row in workers.items() if (rate := rate_of((row.get("done") or {}).get(name))) > 0}
        for gpu, took, median in stragglers(times, LEAST_SPREAD):
            clocks = clocks_of(name, str(workers[gpu].get("uuid")), readings)
            found.append(failure(gpu, "slow", f"{took / median - 1:.0%} slower than the median of {len(times)} GPUs in {name}{clocks}"))
    return found


def clocks_of(phase: str, uuid: str, readings: Sequence[Event]) -> str:
    """What a GPU's clock, power and temperature were beside its peers', and what held its clock back."""
    rows = [row for row in readings if row["phase"] == phase]
    own = next((row for row in rows if row["uuid"] == uuid), None)
    if own is None:
        return "; its clocks were not read"
    texts = []
    for name, unit in (("sm_mhz", "MHz"), ("memory_mhz", "MHz memory"), ("power_w", "W"), ("temperature_c", "°C")):
        others = [row[name]["mean"] for row in rows if row["uuid"] != uuid and row.get(name)]
        if own.get(name) and others:
            texts.append(f"{own[name]['mean']:.0f} {unit} ({statistics.median(others):.0f})")
    return f": {', '.join(texts)} (median of its peers); clocks held back by {held_back(own) or 'nothing'}"


def held_back(row: Event) -> str:
    """Reasons why the clock was held back in more than a moment, with their share of the time."""
    shares = {reason: count / max(1, row["samples"]) for reason, count in (row.get("reasons") or {}).items() if reason != "idle"}
    return ", ".join(f"{reason} {share:.0%}" for reason, share in sorted(shares.items(), key=lambda one: -one[1]) if share > HELD_SHARE)


def rate_of(done: Event | None) -> float:
    """Operations or bytes per second over all rounds; 0 without any."""
    return number((done or {}).get("work")) / number(done["seconds"]) if done and number(done.get("seconds")) > 0 else 0.0


def risen_counters(end: Event, host: str, rates: Rates, workers: Mapping[int, Event]) -> list[dict[str, Any]]:
    """Error counters that rose well above both their normal rate and their peers. One that also rises on healthy hardware has no rate and is no evidence."""
    look = next((row for row in reversed(end.get("counters") or ()) if row["read"]), None)
    if look is None:
        return []
    evidence = {"host": host, "counters": look["moved"], "counted_s": look["counted_s"], "peers": look["peers"]}
    found = []
    for rise in outstanding([evidence], rates):
        parts = rise.name.split()
        place = int(parts[1]) if parts[0] == "GPU" and parts[1].isdigit() else None
        found.append(failure(worker_of(place, end, workers), "counter", f"{rise.text} in {look['counted_s']:.0f} s"))
    return found


def worker_of(place: int | None, end: Event, workers: Mapping[int, Event]) -> int | None:
    """The worker on the GPU at this place of all that NVML knows."""
    places = [row["uuid"] for row in (end.get("before") or {}).get("settings") or ()]
    uuid = places[place] if place is not None and place < len(places) else None
    return next((gpu for gpu, row in workers.items() if uuid is not None and row.get("uuid") == uuid), None)


def remapped(end: Event, workers: Mapping[int, Event]) -> list[dict[str, Any]]:
    """GPUs that replaced rows of their memory for an error that could not be corrected, or could not replace them."""
    after = {row["uuid"]: row.get("remapped_rows") or {} for row in (end.get("after") or {}).get("settings") or ()}
    gpus = {row.get("uuid"): gpu for gpu, row in workers.items()}
    found = []
    for row in (end.get("before") or {}).get("settings") or ():
        before, now = row.get("remapped_rows") or {}, after.get(row["uuid"]) or {}
        for name in ("uncorrectable", "pending", "failure"):
            if number(now.get(name)) > number(before.get(name)):
                found.append(failure(gpus.get(row["uuid"]), "remapped rows", f"rows remapped, {name}: {before.get(name, 0)} before, {now[name]} after"))
    return found


def notes(events: Sequence[Event], end: Event) -> list[str]:
    """Notes that fail no GPU."""
    found = []
    for name in dict.fromkeys(str(event["type"]) for event in events if event["e"] == "type"):
        rows = [event for event in events if event["e"] == "type" and event["type"] == name]
        if all(event["status"] == "absent" for event in rows):
            found.append(f"{name}: no GPU here has it: {rows[0].get('why')}")
    ready = [event for event in events if event["e"] == "ready"]
    if ready and not any(event.get("collectives") for event in ready):
        found.append("one GPU: no sums over GPUs, and nothing to compare it with")
    elif 0 < len(ready) < 4:
        found.append("fewer than four GPUs: none can be called slow")
    if end and not end.get("readings") and any(event["e"] == "burn_begin" and event.get("device") == "cuda" for event in events):
        found.append("NVML gave no readings of power, clocks and temperatures")
    for row in end.get("readings") or ():
        hard = [name for name in ("hardware slowdown", "hardware thermal slowdown", "power brake") if name in (row.get("reasons") or {})]
        found += [f"{row['uuid']} in {row['phase']}: {name} in {row['reasons'][name]} of {row['samples']} readings" for name in hard]
    return found


def gpu_row(gpu: int, device: Event, worker: Event, end: Event, events: Sequence[Event], failures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One GPU: its work, and its verdict."""
    ready = next((event for event in events if event["e"] == "ready" and event["gpu"] == gpu), {})
    uuid = worker.get("uuid") or device.get("uuid")
    done = {
        name: {"results": row["count"], "wrong": row["wrong"], "per_s": round(rate_of(row), 1), "slowest": row["slowest"], "fastest": row["fastest"]}
        for name, row in (worker.get("done") or {}).items()
    }
    return {
        "gpu": gpu, "uuid": uuid, "model": device.get("model"), "torch": device.get("torch"), "memory_bytes": ready.get("memory_bytes"),
        "power_w": (end.get("power_w") or {}).get(uuid), "done": done, "failed": any(one["gpu"] == gpu for one in failures),
    }  # fmt: skip


def _last(events: Sequence[Event], kind: str) -> Event:
    return next((event for event in reversed(events) if event["e"] == kind), {})
