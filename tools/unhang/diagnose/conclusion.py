"""What a log comes to, in one of five answers: a cause, a failure without one, a healthy end, no end at all, or nothing that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from unhang.diagnose.endings import started_again, unfinished_traceback
from unhang.diagnose.facts import Facts, evidence_of
from unhang.diagnose.failures import failed_of_root, rank_of, who_failed
from unhang.diagnose.reading import Input
from unhang.diagnose.scanning import Event
from unhang.diagnose.signs import hang_signs, near_end

EXIT_CODES = {"healthy": 0, "cause": 1, "nothing": 2, "failure": 3, "no_end": 4}
ASK_ALL_RANKS = (
    "py-spy dump --pid PID of every rank: the call that each one waits in",
    "the flight recorder's dumps of every rank (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1)",
    "the job's log of every rank with NCCL_DEBUG=INFO",
    "dmesg -T of every node: NVRM, Xid, SXid, AER, mlx5, DMAR, AMD-Vi, Killed process",
)
_OF_A_JOB = ("progress", "healthy", "symptom")
_OF_A_JOB_FACTS = ("framework", "launch_shape", "world_size", "bootstrap", "transport", "init_start", "network_used", "nccl_version")

_OF_A_MACHINE_FACTS = (
    "bandwidth_row", "cuda_driver_version", "driver_version", "fabric_manager_not_needed", "gid_row", "gpu", "gpu_listed", "gpu_load", "gpu_row",
    "ib_adapter", "ib_port_up", "interface", "kernel_version", "link_mtu", "link_up", "link_width", "memlock_unlimited", "no_xid", "nvlink_gpu", "nvlink_up",
    "peer_access", "peermem_loaded", "route", "shm", "slurm_node", "slurm_state", "test_device", "topology",
)  # fmt: skip
"""What tools that look at a machine print. A setting, a remark of the reporter or an advice is none, and says nothing of how the job ended."""


class Conclusion(NamedTuple):
    """word: a key of EXIT_CODES. why: one sentence. event: the line that shows it, if one does. ask: what to collect, where the log does not tell."""

    word: str
    why: str
    event: Event | None = None
    ask: tuple[str, ...] = ()


def conclude(facts: Facts, inputs: Sequence[Input], *, found: bool, trouble: bool) -> Conclusion:
    """The answer of a diagnosis. Values in, value out."""
    if found:
        return Conclusion("cause", "a cause is named below")
    if trouble:
        return _without_cause(facts)
    if not facts.events:
        return Conclusion("nothing", _nothing(inputs))
    ends = [event for event in (*facts.of("healthy_end"), *facts.of("average_bandwidth")) if not event.quoted]
    if ends and (start := started_again(facts, ends[-1])):
        return Conclusion("no_end", "a job came to its end, and after it another one started, whose end does not stand in the log", start, ASK_ALL_RANKS)
    if ends:
        return Conclusion("healthy", "the job came to its end, and nothing went wrong before", ends[-1])
    if told := end_in_own_words(facts):
        return Conclusion("healthy", "nothing went wrong, and the program's own last words tell of its end", told)
    if _is_of_a_job(facts):
        return Conclusion(
            "no_end", "the log ends without a word: no failure and no end of the job stands in it, as when a job hangs in silence", ask=ASK_ALL_RANKS
        )
    if any(facts.of(name) for name in _OF_A_MACHINE_FACTS):
        return Conclusion("healthy", "no fault stands in what the machine's tools print here")
    return Conclusion("no_end", "neither a failure nor an end of the job stands in what can be read of this log", ask=ASK_ALL_RANKS)


def end_in_own_words(facts: Facts) -> Event | None:
    """The last line in which a program tells of its own end, where it stands at the end of the log; of ranks that speak, each has to tell of it."""
    told = [event for event in facts.of("end_told") if not event.quoted and near_end(facts, event)]
    ended = {_rank(event) for event in facts.of("end_told")} - {None}
    heard = {rank_of(event) for event in facts.events} - {None} if ended else set()
    return told[-1] if told and heard <= ended else None


def _rank(event: Event) -> int | None:
    named = event.fields.get("rank")
    return int(named) if named else rank_of(event)


def _without_cause(facts: Facts) -> Conclusion:
    first = facts.first_error
    if first is not None and first.signature.kind == "error":
        why = (
            "something failed, and it is no fault of the cluster that is known here"
            if first.signature.fact == "crash"
            else "something failed, and no cause shows"
        )
        return Conclusion("failure", f"{why}: {first.signature.says}", first, ASK_ALL_RANKS[2:] if first.signature.fact != "crash" else ())
    if event := unfinished_traceback(facts):
        return Conclusion("failure", "a process raised an exception whose name and message do not stand in the log", event, ASK_ALL_RANKS[2:])
    reports = [event for name in ("root_cause", "failed_exit", "killed", "aborted", "shell_complaint") for event in facts.of(name) if not event.quoted]
    if reports:
        failed = failed_of_root(facts)
        exits = [failed.exit] if failed else facts.of("failed_exit")
        exit_code = next((f" with exit code {event.fields['code']}" for event in exits if event.fields.get("code")), "")
        why = f"{who_failed(facts, reports[0])} ended{exit_code}, and its own words are not in the log"
        return Conclusion("failure", why, reports[0], ("the traceback of that rank: its own log (torchrun --log-dir, --redirects 3)", *ASK_ALL_RANKS[2:]))
    signs = [event for event in (*hang_signs(facts), *facts.events) if event.signature.kind == "symptom" and not event.quoted]
    return Conclusion("no_end", "the job stopped or hangs, and no line tells why", signs[0] if signs else None, ASK_ALL_RANKS)


def _nothing(inputs: Sequence[Input]) -> str:
    if all(one.kind == "empty" for one in inputs):
        return "expected a log, found an empty file"
    return "no line is one that a program known here prints; is this the log of the job?"


def _is_of_a_job(facts: Facts) -> bool:
    return any(event.signature.kind in _OF_A_JOB for event in facts.events) or any(facts.of(name) for name in _OF_A_JOB_FACTS)


def describe_conclusion(conclusion: Conclusion) -> dict[str, Any]:
    """The `outcome` of a diagnosis document."""
    return {"word": conclusion.word, "why": conclusion.why, "line": evidence_of(conclusion.event) if conclusion.event else None}
