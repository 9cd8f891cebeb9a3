"""Asks nodes again that the rollout has released, each only for what is its own: its answer and
boot, its findings and hardware beside those of its proof, and what the scheduler says of it; and
the scheduler whether nodes that were left drained take jobs. The nodes' answers are those of the
audit with which every run of the playbook begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unhang.act.rollout.baseline import Baseline
from unhang.act.rollout.conductor import Conductor, sections_of
from unhang.act.rollout.floor import Service
from unhang.act.rollout.hardware import losses, read_hardware
from unhang.act.rollout.kept import proof_of
from unhang.act.rollout.node_state import IN_SERVICE
from unhang.act.rollout.proof import Asked, prove
from unhang.act.rollout.soak import Soaking, fallen, soak_that_is_over
from unhang.act.rollout.steps import DONE, FAILED, KEPT, LOST, SOAK, Entry
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.record import FINDINGS, Finding, read_findings_record
from unhang.core.run.run_folder import read_run, utc_now
from unhang.core.text import counted, visible

LONGEST_LIST = 200


def due(conductor: Conductor, soak_s: int) -> Soaking | None:
    """The released nodes to ask now: those whose soak was over when this run's audit began, and in
    any case those with a fault after their release."""
    standing = conductor.standing()
    over = soak_that_is_over(standing, conductor.plan, soak_s, _audited_at(conductor)) or Soaking(
        "", ()
    )
    hosts = (
        *over.hosts,
        *(host for host in fallen(standing, standing.waves) if host not in over.hosts),
    )
    return Soaking(over.until, hosts) if hosts and not conductor.ends_because else None


def left_drained(conductor: Conductor) -> list[str]:
    """Kept and lost nodes, in the plan's order: nobody works on them, and a slurmctld that is
    restored from an older state may have lost their drain."""
    standing = conductor.standing()
    return [
        host
        for wave in conductor.plan.waves
        for host in wave.hosts
        if (node := standing.node(host)).state in (KEPT, LOST) and node.drained
    ]


def note_service(conductor: Conductor, service: Service) -> str:
    """Writes to the journal which of the nodes that were left drained take jobs, where that differs
    from what was seen last; returns it as a line. It is no failure, and nothing acts on it. Raises
    UserError, OSError."""
    serving = [host for host in left_drained(conductor) if host in service.in_service]
    for host in left_drained(conductor):
        if (host in serving) != bool(conductor.standing().node(host).serves):
            at = utc_now()
            why = {"why": f"{IN_SERVICE} {at}"} if host in serving else {}
            conductor.put(Entry(at, host, SOAK, DONE, 0, {"serves": host in serving, **why}))
    return "; ".join(
        f"{host} {IN_SERVICE} {conductor.standing().node(host).serves}" for host in serving
    )


def look_back(conductor: Conductor, asked: Soaking, service: Service | None) -> str:
    """Writes to the journal what is found on each of these nodes, and returns that as a line.
    service: of the scheduler, None if it lists no nodes. Raises UserError, OSError."""
    findings = _findings(conductor.read)
    proofs = {host: proof_of(conductor.folder, host) for host in asked.hosts}
    faults: dict[str, list[str]] = {}
    for host, proof in proofs.items():
        found = [
            *_of_node(conductor, host, proof, findings.get(host, [])),
            *_of_scheduler(service, host),
        ]
        why = {"why": visible("; ".join(found), 1500)} if found else {}
        status = FAILED if found else DONE
        conductor.put(Entry(utc_now(), host, SOAK, status, 0, {"until": asked.until, **why}))
        faults |= {host: found} if found else {}
    line = _line(proofs, faults)
    conductor.put(
        Entry(utc_now(), "", SOAK, DONE, conductor.epoch, {"until": asked.until, "why": line})
    )
    return line


def _line(proofs: Mapping[str, Baseline | None], faults: Mapping[str, Sequence[str]]) -> str:
    well = [host for host in proofs if host not in faults]
    proved = [host for host in well if proofs[host] is not None]
    bare = [host for host in well if proofs[host] is None]
    their = "its" if len(faults) == 1 else "their"
    parts = [
        f"{_listed(proved)} {'is' if len(proved) == 1 else 'are'} as proved" if proved else "",
        f"{_listed(bare)}: answers in the boot of its proof, of which no record is left"
        if bare
        else "",
        f"{counted(len(faults), 'node')} failed after {their} release" if faults else "",
    ]
    return "; ".join(filter(None, parts))


def _listed(hosts: Sequence[str]) -> str:
    return shortened(fold_hosts(hosts), LONGEST_LIST)


def _of_node(
    conductor: Conductor, host: str, proof: Baseline | None, findings: Sequence[Finding]
) -> list[str]:
    """Faults by the node's own answer; the findings and the hardware are compared with what the
    proof saw after the change."""
    sections, node = sections_of(conductor.read, host), conductor.standing().node(host)
    if sections is None:
        return ["it did not answer after its release"]
    found, boot = [], (sections.get("node") or {}).get("boot_id")
    if boot != node.boot_id:
        found.append(
            f"it has booted since its release: its boot is {boot}, not {node.boot_id}, in which it"
            " was proved"
        )
    if proof is None:  # a lost journal, or a rollout that began before proofs were kept
        return found
    entry = conductor.plan.for_host(host)
    lost = losses(proof.hardware, read_hardware(sections), entry.policy if entry else {})
    # as after a rollback: whatever differs from the state to compare with is a fault
    return found + list(prove(proof, findings, host, Asked(rolled_back=True), lost)["reasons"])


def _of_scheduler(service: Service | None, host: str) -> list[str]:
    why = service.out.get(host) if service is not None else None
    return (
        [f"it is out of service, and takes no jobs: {visible(why, 300)}"] if why is not None else []
    )


def _findings(run: Path | None) -> dict[str, list[Finding]]:
    """The findings of an audit by host."""
    found: dict[str, list[Finding]] = {}
    if run is not None and (run / FINDINGS).is_file():
        for one in read_findings_record(run).findings:
            found.setdefault(one.host or "", []).append(one)
    return found


def _audited_at(conductor: Conductor) -> str:
    """When this run's audit began, so that no answer is older than the end of the soak."""
    run = conductor.read
    return (
        str(read_run(run).document["started"])
        if run is not None and (run / "run.json").is_file()
        else utc_now()
    )
