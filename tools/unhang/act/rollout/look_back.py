"""Asks nodes again that the rollout has released: the answers are those of the audit with which
every run of the playbook begins, and of the scheduler."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unhang.act.rollout.baseline import key_of
from unhang.act.rollout.conductor import Conductor, folder_before, sections_of
from unhang.act.rollout.floor import Service
from unhang.act.rollout.hardware import losses, read_hardware
from unhang.act.rollout.job_failures import EndedJob, faults_by_jobs
from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.proof import SERIOUS
from unhang.act.rollout.soak import Soak, Soaking, fallen, soak_that_is_over
from unhang.act.rollout.steps import DONE, FAILED, SOAK, Entry
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.record import FINDINGS, Finding, read_findings_record
from unhang.core.run.run_folder import read_run, utc_now
from unhang.core.text import counted, visible

LONGEST_LIST = 200


@dataclass(frozen=True)
class Heard:
    """What was heard beside the nodes' own answers. service: of the scheduler, None if it lists no
    nodes. jobs: that have ended lately, with `names` {host: name in the scheduler}; no_jobs: why
    they are not known."""

    service: Service | None = None
    jobs: Sequence[EndedJob] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    no_jobs: str = ""


def due(conductor: Conductor, soak: Soak) -> Soaking | None:
    """The released nodes to ask now: those whose soak was over when this run's audit began, and in
    any case those with a fault after their release."""
    standing = conductor.standing()
    over = soak_that_is_over(standing, conductor.plan, soak, _audited_at(conductor)) or Soaking(
        "", ()
    )
    hosts = (
        *over.hosts,
        *(host for host in fallen(standing, standing.waves) if host not in over.hosts),
    )
    return Soaking(over.until, hosts) if hosts and not conductor.ends_because else None


def seconds_since_release(conductor: Conductor, hosts: Sequence[str]) -> int:
    """Seconds since the first of these nodes was released."""
    standing, now = conductor.standing(), datetime.datetime.now(datetime.UTC)
    return max(
        (
            round(
                (
                    now - datetime.datetime.fromisoformat(standing.node(host).released_at)
                ).total_seconds()
            )
            for host in hosts
        ),
        default=0,
    )


def look_back(conductor: Conductor, asked: Soaking, heard: Heard) -> str:
    """Writes to the journal what is found on each of these nodes, and returns that as a line.
    Raises UserError, OSError."""
    new = _new_findings(conductor)
    by_jobs = faults_by_jobs(
        heard.jobs, {host: heard.names.get(host, host) for host in asked.hosts}
    )
    faults: dict[str, list[str]] = {}
    for host in asked.hosts:
        found = [*_of_node(conductor, host), *_of_scheduler(heard, host), *new.get(host, ())]
        found += [by_jobs[host]] if host in by_jobs else []
        evidence = {
            "until": asked.until,
            **({"why": visible("; ".join(found), 1500)} if found else {}),
        }
        conductor.put(Entry(utc_now(), host, SOAK, FAILED if found else DONE, 0, evidence))
        faults |= {host: found} if found else {}
    told = _told(asked.hosts, faults, heard)
    conductor.put(
        Entry(utc_now(), "", SOAK, DONE, conductor.epoch, {"until": asked.until, "why": told})
    )
    return told


def _told(hosts: Sequence[str], faults: Mapping[str, Sequence[str]], heard: Heard) -> str:
    well = [host for host in hosts if host not in faults]
    parts = (
        [
            f"{shortened(fold_hosts(well), LONGEST_LIST)} {'is' if len(well) == 1 else 'are'} as"
            " proved"
        ]
        if well
        else []
    )
    parts += (
        [
            f"{counted(len(faults), 'node')} failed after {'its' if len(faults) == 1 else 'their'}"
            " release"
        ]
        if faults
        else []
    )
    them = "it" if len(hosts) == 1 else "them"
    return "; ".join(
        [
            *parts,
            *([f"jobs on {them} could not be watched: {heard.no_jobs}"] if heard.no_jobs else []),
        ]
    )


def _of_node(conductor: Conductor, host: str) -> list[str]:
    sections, node = sections_of(conductor.read, host), conductor.standing().node(host)
    if sections is None:
        return ["expected an answer after its release, found none"]
    boot = (sections.get("node") or {}).get("boot_id")
    booted = (
        []
        if boot == node.boot_id
        else [
            f"expected the boot {node.boot_id} in which it was proved, found {boot}: it has booted"
            " since its release"
        ]
    )
    then, entry = sections_of(_folder_of_then(conductor), host) or {}, conductor.plan.for_host(host)
    policy = {} if entry is None or conductor.plan.undoes else entry.policy
    return booted + [
        f"lost: {line}" for line in losses(read_hardware(then), read_hardware(sections), policy)
    ]


def _of_scheduler(heard: Heard, host: str) -> list[str]:
    why = heard.service.out.get(host) if heard.service is not None else None
    return (
        [f"expected it to take jobs, found it out of service: {visible(why, 300)}"]
        if why is not None
        else []
    )


def _new_findings(conductor: Conductor) -> dict[str, list[str]]:
    """{host: lines} of serious findings that neither the audit before the rollout nor the one that
    proved the node has."""
    before = {(one.host, key_of(one)) for one in _serious(_folder_of_then(conductor))}
    left = {
        (one.host, rule)
        for one in _audits(conductor.folder)
        for rule in one.evidence.get("left") or ()
    }
    found: dict[str, list[str]] = {}
    for one in _serious(conductor.read):
        if (
            one.host is not None
            and (one.host, key_of(one)) not in before
            and (one.host, one.rule) not in left
        ):
            found.setdefault(one.host, []).append(
                f"new: {one.rule} ({one.severity}), expected {one.expected}, found {one.found}"
            )
    return found


def _serious(run: Path | None) -> list[Finding]:
    if run is None or not (run / FINDINGS).is_file():
        return []
    return [
        one
        for one in read_findings_record(run).findings
        if one.scope == "node" and one.severity in SERIOUS and one.verdict == "fail"
    ]


def _audits(folder: Path) -> list[Entry]:
    return [
        one for one in read_journal(folder).entries if (one.step, one.status) == ("audit", DONE)
    ]


def _folder_of_then(conductor: Conductor) -> Path:
    """The run folder with the nodes as they were before the rollout, or before the one that is
    undone."""
    return folder_before(conductor.folder) if conductor.plan.undoes else conductor.folder


def _audited_at(conductor: Conductor) -> str:
    """When this run's audit began, so that no answer is older than the end of the soak."""
    run = conductor.read
    return (
        str(read_run(run).document["started"])
        if run is not None and (run / "run.json").is_file()
        else utc_now()
    )
