"""The usual causes of the phase in which a job hangs, fails or is slow. They select the commands to run next; they are never shown as causes."""

from __future__ import annotations

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.failures import peer_without_log
from unhang.jobs.diagnose.rules.signs import hang_signs

USUAL = {
    "a job of several nodes hangs or fails before its ranks have met": ("wrong_interface", "firewall_ports", "ib_misconfig", "dns_hostname"),
    "a job of several nodes hangs once its ranks have met": ("ib_misconfig", "rank_desync_app", "nccl_bug"),
    "a job of one node hangs in its first collectives": ("acs_iommu", "driver_p2p_bug", "nccl_bug"),
    "a job hangs after it had made steps": ("rank_desync_app", "nccl_bug", "slow_rank_or_io"),
    "a job of several nodes is slow": ("ib_misconfig", "gdr_peermem_missing", "slow_rank_or_io"),
    "a job of one node is slow": ("slow_rank_or_io", "acs_iommu"),
    "a CUDA call inside NCCL failed, and NCCL's own lines are missing": ("nccl_bug", "cuda_driver_too_old", "oom"),
    "a system call inside NCCL failed, and NCCL's own lines are missing": ("shm_too_small", "wrong_interface", "ib_misconfig"),
}  # fmt: skip
USUAL_OF_ANY = ("slow_rank_or_io", "rank_desync_app", "ib_misconfig", "nccl_version_conflict", "oom")


def usual_of(facts: Facts) -> tuple[str, ...]:
    """The usual causes of the phase in which the job hangs, fails or is slow; if the phase is unknown, those of any job."""
    found = _phase(facts)
    return USUAL[found[0]] if found else USUAL_OF_ANY


def _phase(facts: Facts) -> tuple[str, Event] | None:
    if peer_without_log(facts) is not None:
        return None  # the other side ended the connection: what happened there is in its own log
    return _phase_of_a_fault(facts) or _phase_of_silence(facts)


def _phase_of_silence(facts: Facts) -> tuple[str, Event] | None:
    """The phase of a job of several GPUs whose log ends before its first step, or that fails without a cause before its nodes have met."""
    if any(facts.of(name) for name in ("training_step", "healthy_end", "average_bandwidth", "bar")):
        return None
    started = [event for name in ("bootstrap", "init_start", "member", "network_used") for event in facts.of(name)]
    if _has_several_nodes(facts) and not facts.of("init_complete"):
        failed = [event for event in facts.events if event.signature.kind in ("error", "symptom") and not event.quoted]
        if event := next(iter([*started, *failed]), None):
            return "a job of several nodes hangs or fails before its ranks have met", event
    if started and not _has_several_nodes(facts) and not any(event.signature.kind == "error" for event in facts.events):
        return "a job of one node hangs in its first collectives", started[-1]
    return None


def _phase_of_a_fault(facts: Facts) -> tuple[str, Event] | None:
    several = _has_several_nodes(facts)
    if failed := [event for event in facts.events if event.signature.id == "nccl-unhandled-error" and not event.quoted and not _blames_another(event)]:
        if several and not facts.of("init_complete"):
            return "a job of several nodes hangs or fails before its ranks have met", failed[0]
        word = "CUDA" if "cuda" in failed[0].text.lower().partition("unhandled")[2][:12] else "system"
        return f"a {word} call inside NCCL failed, and NCCL's own lines are missing", failed[0]
    if signs := [*hang_signs(facts), *_busy(facts)]:
        if facts.of("training_step") or facts.of("monitored"):
            return "a job hangs after it had made steps", signs[0]
        if several:
            met = (
                "a job of several nodes hangs once its ranks have met"
                if facts.of("init_complete")
                else "a job of several nodes hangs or fails before its ranks have met"
            )
            return met, signs[0]
        return "a job of one node hangs in its first collectives", signs[0]
    if slow := facts.of("slow_told"):
        return ("a job of several nodes is slow" if several else "a job of one node is slow"), slow[0]
    return None


def _blames_another(event: Event) -> bool:
    """Whether the error is NCCL's for a connection that ended: no call of this process failed."""
    return "remote process exited" in event.text


def _has_several_nodes(facts: Facts) -> bool:
    return len(facts.hosts) > 1 or bool(facts.of("several_nodes")) or any(int(event.fields["value"] or 1) > 1 for event in facts.of("nnodes"))


def _busy(facts: Facts) -> list[Event]:
    """GPUs at full load at the end of a log without steps."""
    loads = [event for event in facts.of("utilisation") if int(event.fields["load"] or 0) >= 95]
    return loads if len(loads) > 1 else []
