"""Drains a node of Slurm, waits for its jobs, and resumes it, with scontrol and squeue. Every wait
has a deadline. No job is ever touched."""

from __future__ import annotations

import os
import re
import time
from functools import partial

from ...base.named_tuple import NamedTuple
from ...base.parse.slurm import (
    parse_config,
    parse_jobs,
    parse_nodes,
    parse_nodes_json,
    parse_reservations,
    parse_utc,
)
from ...base.process import FOLDERS, run_process
from ...facts.parse.slurm_conf import expand
from .reasons import DrainRefused, message_of, reason_for, sealed
from .slurm_decisions import (
    NOT_KNOWN,
    OUT,
    OWN_TEXTS,
    Asked,
    Standing,
    decide_drain,
    decide_release,
    decide_wait,
    decide_window,
    describe,
    drain_answer,
    is_called,
    is_out,
    is_own_reservation,
    name_of_machine,
    powers_down,
    takes_jobs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar

    from ...base.parse.slurm import Job, SlurmNode
    from .reasons import DrainAnswer

    Answered = TypeVar("Answered")

JOB_FIELDS = "%i|%T|%u|%e"  # of parse_jobs
MOST_NODES = 100_000  # of one job
LARGEST_LIST_BYTES = 256 * 1024 * 1024  # the JSON of 10,000 nodes has 30 MiB and more
# scontrol itself retries for 9 s and more if slurmctld does not answer (MessageTimeout)
CALL_DEADLINE_S = 120.0
# The folders of Slurm's commands and configuration at a site. Variables of a person's environment
# that choose formats or clusters are not passed.
PASSED_ON = ("SLURM_CONF", "SLURM_CONF_SERVER")
# One name only: scontrol would apply a list, a range or ALL to several nodes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (?:refused|timed"
    r" out|reset)|standby mode|Zero Bytes were transmitted|"
    r"Transport endpoint is not connected|Resource temporarily unavailable|Communication connection"
    r" failure",
    re.I,
)
_NO_RESERVATION = re.compile(r"Requested reservation is invalid$")
_UNCONFIGURED = re.compile(r"configuration (?:source|file)")
_NO_JSON = re.compile(r"serializer|application/json|JSON plugin", re.I)


class SlurmAway(Exception):
    """slurmctld did not answer; the text is the end of the command's output."""


class Waits(NamedTuple):
    """Seconds to wait: for jobs to end, for a slurmctld that does not answer (each time), and
    between two polls."""

    jobs_s: float
    scheduler_s: float
    poll_s: float


class SlurmTarget(NamedTuple):
    """A node of Slurm, and the request for it. hold_s: how long a node with jobs is reserved from
    their end, instead of being drained; 0: it is drained at once."""

    node: str
    asked: Asked
    why: str
    waits: Waits
    beside_jobs: bool = False
    preview: bool = False
    hold_s: int = 0


def check_name(name: str) -> str:
    """Returns the name of one node. Raises ValueError for a text that scontrol could read as
    anything else."""
    if not _NAME.fullmatch(name) or name.upper() == "ALL":
        raise ValueError(
            f"{name[:100]!r} is not the name of one node of Slurm; drain_node names it where the"
            " inventory has another name"
        )
    return name


def drain(target: SlurmTarget) -> Tuple[DrainAnswer, bool, str]:
    """(state of the node, whether anything was or would be changed, note for the operator). Raises
    DrainRefused, SlurmAway, OSError, ValueError."""
    reason = sealed(reason_for(target.asked.run, target.why))
    standing = _standing(target)
    _refuse_another_machine(target, standing)
    user = _patiently(target.waits, _slurm_user) if standing.node.reason in OWN_TEXTS else ""
    decision = decide_drain(standing, target.asked._replace(reason=reason, slurm_user=user))
    if decision.refused:
        raise DrainRefused(decision.refused, drain_answer(standing, target.asked))
    why_drained = ""
    if decision.act and _is_handed_over(target, standing):
        try:
            return _patiently(target.waits, lambda: _reserve(target, standing))
        except ValueError as problem:
            why_drained = f"drained, because Slurm allows no reservation: {message_of(problem)}"
    if not decision.act or target.preview:
        return (
            drain_answer(standing, target.asked),
            decision.act,
            decision.note or (f"would be drained as {reason!r}" if decision.act else ""),
        )
    if why := _patiently(target.waits, lambda: _why_powered_down(standing.node)):
        raise DrainRefused(why, drain_answer(standing, target.asked))
    _patiently(
        target.waits,
        lambda: _call(
            ["scontrol", "update", f"nodename={target.node}", "state=drain", f"reason={reason}"]
        ),
    )
    after = _standing(target)
    answer = drain_answer(after, target.asked)
    if not answer.owned:
        raise DrainRefused(
            f"{target.node} is not drained as {reason!r}: its state is"
            f" {'+'.join(sorted(after.node.states))} ({after.node.reason})",
            answer,
        )
    _unreserve(target, after)
    return answer, True, why_drained


def _is_handed_over(target: SlurmTarget, standing: Standing) -> bool:
    """Whether the node serves a job, after which Slurm keeps it free."""
    if not target.hold_s or target.beside_jobs or target.preview:
        return False
    return not is_out(standing.node) and bool(drain_answer(standing, target.asked).jobs)


def _reserve(target: SlurmTarget, standing: Standing) -> Tuple[DrainAnswer, bool, str]:
    """As drain: a reservation keeps the node free from the end of its jobs, and ends by itself.
    Raises DrainRefused, SlurmAway, and ValueError if Slurm allows none."""
    now, answer = parse_utc(_clock()), drain_answer(standing, target.asked)
    window = decide_window(standing, target.asked, target.hold_s, now)
    if window.refused:
        raise DrainRefused(window.refused, answer)
    begins, ends = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) for at in (window.begins, window.ends)
    )
    start = [f"starttime={begins if window.begins > now else 'now'}"]
    if window.own:
        verb, more = "update", [] if window.own.is_active else start
    else:
        verb, more = "create", [*start, f"nodes={target.node}", "users=root"]
        more.append("flags=maint,ignore_jobs")
    _call(["scontrol", verb, f"reservation={window.name}", f"endtime={ends}", *more])
    reason = f"reservation {window.name} from {begins}Z to {ends}Z"
    return answer._replace(reason=reason), True, f"{target.node} has jobs: {reason}"


def _unreserve(target: SlurmTarget, standing: Standing) -> bool:
    """Deletes the run's own reservation of the node; gives whether there was one."""
    own = [
        row for row in standing.reservations if is_own_reservation(row, target.node, target.asked)
    ]
    for row in own:
        _patiently(target.waits, partial(_delete, row.name))
    return bool(own)


def _delete(reservation: str) -> None:
    try:
        _call(["scontrol", "delete", f"reservation={reservation}"])
    except ValueError as problem:
        if not _NO_RESERVATION.search(str(problem)):  # it may have ended since it was read
            raise


def _refuse_another_machine(target: SlurmTarget, standing: Standing) -> None:
    """Raises DrainRefused if Slurm has the machine under another name than the one to drain, or
    the slurmctld that answers is of another cluster, which may have a node of the same name."""
    host = target.asked.host
    if not host:
        return
    cluster = _patiently(target.waits, _cluster) if host.cluster else ""
    if cluster not in ("", host.cluster):
        raise DrainRefused(
            f"slurmctld answers for the cluster {cluster}, not for {host.cluster}, which slurm.conf"
            f" on {host.name} names; next: drain_slurm_host names a host of the machine's cluster,"
            " SLURM_CONF its configuration",
            drain_answer(standing, target.asked),
        )
    if is_called(standing.node, host):
        return
    known = name_of_machine(_patiently(target.waits, read_nodes), host)
    if known:
        raise DrainRefused(
            f"{target.node} is not the machine {host.name}, which Slurm has as {known}: drain_node"
            " names another machine",
            drain_answer(standing, target.asked),
        )


def wait(target: SlurmTarget) -> Tuple[DrainAnswer, bool, str]:
    """As drain; returns when no job is left. Raises DrainRefused when the drain ends meanwhile, or
    jobs still run when the time is over."""
    until = time.monotonic() + target.waits.jobs_s
    while True:
        standing = _standing(target)
        answer = drain_answer(standing, target.asked)
        if target.preview:
            return (
                answer,
                False,
                f"would wait {target.waits.jobs_s:g} s at most" if answer.jobs else "",
            )
        decision = decide_wait(standing, target.asked)
        if decision.refused:
            raise DrainRefused(decision.refused, answer)
        if not decision.act or target.beside_jobs:
            return answer, False, ""
        if time.monotonic() >= until:
            jobs = "; ".join(
                f"{row['id'] or 'unknown'} of {row['user'] or 'unknown'} ({row['state']})"
                for row in answer.jobs or ()
            )
            raise DrainRefused(
                f"jobs are on {target.node} after {target.waits.jobs_s:g} s: {jobs}; no job was"
                " touched",
                answer,
            )
        time.sleep(max(0.0, min(target.waits.poll_s, until - time.monotonic())))


def release(target: SlurmTarget) -> Tuple[DrainAnswer, bool, str]:
    """As drain; resumes the node when its drain is this run's, once its slurmd answers, and deletes
    this run's reservation of it."""
    until = time.monotonic() + target.waits.scheduler_s
    standing = _standing(target)
    was_reserved = not target.preview and _unreserve(target, standing)
    while True:
        standing = _standing(target)
        decision = decide_release(standing, target.asked)
        if not decision.act or target.preview:
            note = (
                decision.note or decision.refused or ("would be released" if decision.act else "")
            )
            return drain_answer(standing, target.asked), decision.act or was_reserved, note
        if not decision.refused:
            break
        if time.monotonic() >= until:
            raise DrainRefused(decision.refused, drain_answer(standing, target.asked))
        time.sleep(max(0.0, min(target.waits.poll_s, until - time.monotonic())))
    _patiently(
        target.waits,
        lambda: _call(["scontrol", "update", f"nodename={target.node}", "state=resume"]),
    )
    after = _standing(target)
    if "DRAIN" in after.node.states:
        raise DrainRefused(
            f"{target.node} is not released: its state is {'+'.join(sorted(after.node.states))}",
            drain_answer(after, target.asked),
        )
    return drain_answer(after, target.asked), True, ""


def inspect(target: SlurmTarget) -> Tuple[DrainAnswer, bool, str]:
    """As drain; changes nothing and waits for no job."""
    return (
        drain_answer(_standing(target), target.asked),
        False,
        "",
    )


def list_states(waits: Waits, run: str, with_jobs: bool = False) -> Dict[str, Any]:
    """{in_service: [name], out: {name: who took it out of service and why}, unknown: [name]} of all
    nodes; unknown: those of `out` of which slurmctld still does not know after waits.scheduler_s.
    run: whose reservations are ours; with_jobs adds jobs: {name: [job]} of those that have one, as
    in DrainAnswer. Raises SlurmAway, OSError, ValueError."""
    until = time.monotonic() + waits.scheduler_s
    while True:
        nodes = _patiently(waits, read_nodes)
        held = _patiently(waits, partial(_held, run))
        found = {node.name: takes_jobs(node, node.name in held) for node in nodes}
        if NOT_KNOWN not in found.values() or time.monotonic() >= until:
            break
        time.sleep(max(0.0, min(waits.poll_s, until - time.monotonic())))
    out = {
        node.name: describe(node) if node.reason else "+".join(sorted(node.states))
        for node in nodes
        if found[node.name] in (OUT, NOT_KNOWN)
    }
    return {
        "in_service": sorted(name for name in found if name not in out),
        "out": out,
        "unknown": sorted(name for name in found if found[name] == NOT_KNOWN),
        **({"jobs": _jobs_by_node(waits, nodes)} if with_jobs else {}),
    }


def _held(run: str) -> "Set[str]":
    """The nodes that reservations of this run are for, each alone."""
    rows = parse_reservations(_call(["scontrol", "-o", "--all", "show", "reservations"]))
    return {row.nodes for row in rows if is_own_reservation(row, row.nodes, Asked(run=run))}


def _jobs_by_node(waits: Waits, nodes: "Sequence[SlurmNode]") -> "Dict[str, List[Dict[str, str]]]":
    """{name: [job]} of the nodes that have one: one call of squeue for all. A node that is busy in
    Slurm has one, even if squeue hides it (PrivateData)."""
    argv = ["squeue", "--all", "--noheader", f"--format={JOB_FIELDS}|%N"]
    found: Dict[str, List[Job]] = {}
    for line in _patiently(waits, lambda: _call(argv)).splitlines():
        row, _, names = line.strip().rpartition("|")
        for job in parse_jobs(row):
            for name in expand(names, MOST_NODES):
                found.setdefault(name, []).append(job)
    return {
        node.name: list(jobs)
        for node in nodes
        if (jobs := drain_answer(Standing(node, found.get(node.name, ())), Asked(run="")).jobs)
    }


STEPS = {"drained": drain, "empty": wait, "released": release, "inspected": inspect}


def _standing(target: SlurmTarget) -> Standing:
    return _patiently(target.waits, lambda: read_standing(target.node))


def read_standing(name: str) -> Standing:
    """The present state of a node, its jobs and its reservations. Raises SlurmAway, ValueError,
    OSError."""
    nodes = read_nodes(check_name(name))
    if [node.name for node in nodes] != [name]:
        raise ValueError(
            f"scontrol must answer with the one node {name}, and answered with"
            f" {', '.join(node.name for node in nodes)[:200] or 'none'}"
        )
    # of jobs it does not know either, so that a drain does not help
    if "UNKNOWN" in nodes[0].states:
        raise SlurmAway(
            f"slurmctld calls {name} UNKNOWN, for it has not heard of its slurmd since it started"
        )
    jobs = parse_jobs(
        _call(["squeue", "--all", "--noheader", f"--nodelist={name}", f"--format={JOB_FIELDS}"])
    )
    rows = parse_reservations(_call(["scontrol", "-o", "--all", "show", "reservations"]))
    reservations = [row for row in rows if name in expand(row.nodes, MOST_NODES)]
    return Standing(
        node=nodes[0], jobs=jobs, reservations=reservations, at=_clock() if jobs else ""
    )


def _clock() -> str:
    """slurmctld's time now, which may be another than this machine's: the line above its
    configuration ends with it."""
    return _call(["scontrol", "show", "config"]).partition("\n")[0].rpartition(" ")[2]


def read_nodes(*name: str) -> List[SlurmNode]:
    """The node of this name, or all. Raises SlurmAway, ValueError, OSError."""
    # since 23.02; this call does not contact slurmctld
    text = _nodes_json(*name) if "--json" in _call(["scontrol", "--help"]) else None
    if text is not None:
        return parse_nodes_json(text)
    return parse_nodes(_call(["scontrol", "-o", "show", "node", *name]))


def _nodes_json(*name: str) -> "Optional[str]":
    """Nodes as JSON; None if this Slurm was built without JSON, which scontrol notices only when it
    is asked for some. Raises as read_nodes."""
    try:
        return _call(["scontrol", "--json", "show", "node", *name])
    except ValueError as problem:
        if not _NO_JSON.search(str(problem).partition(": ended with ")[2]):
            raise
    return None


def _slurm_user() -> str:
    """The user as whom slurmctld sets its own reasons: `SlurmUser = slurm(64030)`."""
    return _config().get("SlurmUser", "").partition("(")[0].strip()


def _cluster() -> str:
    """ClusterName of the slurmctld that is asked, in lower case; "" if it does not say."""
    return _config().get("ClusterName", "").lower()


def _config() -> "Dict[str, str]":
    return parse_config(_call(["scontrol", "show", "config"]))


def _why_powered_down(node: "SlurmNode") -> str:
    """As powers_down, of slurmctld's present configuration. A list with numbers of nodes
    (gpu[1-9]:4) keeps no certain node."""
    config = _config()
    kept = config.get("SuspendExcNodes", "")
    return powers_down(config, node, () if ":" in kept else _hosts(kept))


def _hosts(nodes: str) -> "Sequence[str]":
    """Hosts of a list in Slurm's notation, expanded by scontrol."""
    return _call(["scontrol", "show", "hostnames", nodes]).split() if nodes else ()


def _patiently(waits: Waits, ask: "Callable[[], Answered]") -> "Answered":
    """The result of `ask`, repeated while slurmctld does not answer. Raises SlurmAway after
    waits.scheduler_s, and what `ask` raises."""
    until = time.monotonic() + waits.scheduler_s
    while True:
        try:
            return ask()
        except SlurmAway as away:
            if time.monotonic() >= until:
                raise SlurmAway(
                    f"slurmctld did not answer within {waits.scheduler_s:g} s: {away}; next: start"
                    " slurmctld, or name its host in drain_slurm_host"
                ) from None
        time.sleep(max(0.0, min(waits.poll_s, until - time.monotonic())))


def _call(argv: "Sequence[str]") -> str:
    """The output of one of Slurm's commands. Raises SlurmAway, FileNotFoundError, and ValueError
    with the end of its output."""
    variables = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    variables["TZ"] = "UTC"  # not all shells and machines are in one zone
    variables["PATH"] = f"{FOLDERS}:{os.environ.get('PATH', '')}".rstrip(":")
    result = run_process(argv, CALL_DEADLINE_S, variables=variables, limit_bytes=LARGEST_LIST_BYTES)
    if result.is_missing:
        raise FileNotFoundError(
            2,
            f"no {argv[0]} here: drain_slurm_host names a host that has Slurm's commands",
            argv[0],
        )
    if result.timed_out:
        raise SlurmAway(f"{argv[0]} gave no answer within {CALL_DEADLINE_S:g} s")
    if result.code:
        message = result.last_words or "it printed nothing"
        if _AWAY.search(message):
            raise SlurmAway(message)
        if _UNCONFIGURED.search(message):
            raise ValueError(
                f"no slurm.conf for {argv[0]}; next: drain_slurm_host names a host that has Slurm's"
            )
        raise ValueError(f"{' '.join(argv)[:200]}: ended with {result.code}: {message}")
    return result.stdout
