"""What the playbook's action plugins do for the machine: read the plan and the journal, ask, and write down. Knows nothing of Ansible, and decides nothing."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unhang.errors import UserError
from unhang.judge.documents import InvalidNode, to_fragment
from unhang.plan.applicable import NodeNow, OwnWork, reasons_against
from unhang.plan.disruption import kind_of_plain
from unhang.plan.plan_document import HostPlan, Plan, read_plan
from unhang.rollout import brake, journal, machine
from unhang.rollout.floor import Floor, Service, floor_evidence, floor_left
from unhang.rollout.node_state import NodeState
from unhang.rollout.standing import Standing
from unhang.rollout.step_durations import keep_durations
from unhang.rollout.steps import BEGUN, BRAKE, DEFERRED, DONE, FAILED, FLOOR, HELD, MEANINGS, RELEASED, ROLLOUT, SILENT, Entry, Order, StepResult, Target
from unhang.rollout.targets import limits_of, target_of, waves_of
from unhang.run_folder import file_stem, read_node, read_run
from unhang.schemas.configuration import hash_of_sections
from unhang.text import visible


def utc_now() -> str:
    """RFC 3339, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _later(seconds: int) -> str:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Followed:
    """A plan and what its journal comes to, read once and followed from there: for a process that lives through many steps, and those that it forks."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.journal, self._standing = journal.JournalReader(folder), Standing(waves_of(plan))

    def standing(self) -> Standing:
        """By the journal as it is now. Raises UserError, OSError."""
        return self._standing.take(self.journal.news())


@dataclass(frozen=True)
class Conductor:
    """One controller of one rollout. folder: of the plan's run, where the journal lies; read: the run folder into which the nodes were read just now."""

    folder: Path
    plan: Plan
    epoch: int
    read: Path | None = None
    followed: Followed = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.followed is None:
            object.__setattr__(self, "followed", Followed(self.folder, self.plan))

    def begin_wave(self, hosts: Sequence[str], groups: Mapping[str, Sequence[str]], max_failed: int | str) -> dict[str, Any]:
        """{wave, begin, postponed, stopped} of the wave that these hosts are, written down. Raises UserError, OSError."""
        wave = self._wave_of(hosts)
        admitted = brake.admit(self.standing(), wave, limits_of(self.plan, groups, max_failed))
        evidence = {"wave": self.plan.waves[wave].name, "why": admitted.stopped or ""}
        self._put(Entry(utc_now(), "", BRAKE, FAILED if admitted.stopped else DONE, self.epoch, evidence))
        for host, why in admitted.postponed.items():
            if host not in admitted.begin:
                self._put(Entry(utc_now(), host, "lock", DEFERRED, 0, {"why": why}))
        return {"wave": evidence["wave"], "begin": list(admitted.begin), "postponed": dict(admitted.postponed), "stopped": admitted.stopped}

    def fleet(self, known: Sequence[str]) -> list[str]:
        """The hosts of the audit of which the plan's floor is a share. known: those of the inventory, all of which count where the run folder has no list."""
        run = self.folder / "run.json"
        audited = set(read_run(self.folder).document.get("hosts") or ()) if run.is_file() else set()
        return [host for host in known if not audited or host in audited]

    def keep_floor(self, service: Service | None, why: str = "") -> str:
        """Writes down what the floor leaves to the rollout now, and returns it as a line. Raises UserError, OSError.

        service: the fleet as its scheduler lists it; None where it cannot be asked, why says so.
        """
        if service is None:
            return self._put_floor({"why": f"nodes that others took out of service count as in service for the floor: {why}"})
        return self._put_floor(floor_evidence(floor_left(service, self.standing().out, self.plan.limits.floor)))

    def keep_no_room(self, why: str) -> str:
        """As keep_floor, where the scheduler did not answer: nothing more is taken out of service until it does. Raises UserError, OSError."""
        why = f"expected to hear from the scheduler which nodes are in service, found: {visible(why, 500)}"
        return self._put_floor(floor_evidence(Floor(len(self.standing().out), why)))

    def _put_floor(self, evidence: Mapping[str, Any]) -> str:
        self._put(Entry(utc_now(), "", FLOOR, DONE, self.epoch, evidence))
        return str(evidence["why"])

    def ask(self, host: str, step: str, groups: Mapping[str, Sequence[str]], max_failed: int | str, limit_s: int = 0) -> Order | None:
        """The order, when this step is what the host needs now; its begin is written down then. Raises UserError, OSError.

        limit_s: seconds that the step may take, where that is known, for who waits.
        """
        standing = self.standing()
        node = standing.node(host)
        target = self.target(host) if node.changed else self._target_now(host, node)
        if why := machine.refusal(node, target):
            if step == "lock":
                self._put(Entry(utc_now(), host, step, FAILED, 0, {"why": why}))
            return None
        # What is changed is brought to an end whatever the brake says.
        stopped = None if node.changed else brake.why_not(standing, host, self._wave_of([host]), limits_of(self.plan, groups, max_failed))
        order = machine.next_order(node, target, self.epoch, stopped)
        if order is None or order.step != step:
            return None
        if why := machine.may_act(order):
            self._put(Entry(utc_now(), host, step, FAILED, order.token, {"why": why}))
            return None
        until = {"until": _later(limit_s)} if limit_s else {}
        self._put(Entry(utc_now(), host, step, BEGUN, order.token, {"boot_id": order.boot_id, "why": order.why, **until}))
        return order

    def record(self, order: Order, result: StepResult) -> tuple[str, dict[str, Any]]:
        """(status, evidence) as they were written down. Raises UserError, OSError."""
        if order.step in ("reboot", "audit") and result.status == "ok":
            result = StepResult("ok", {**result.evidence, "running": self._running(order.host)})
        status, evidence = machine.judge(order, result, self.target(order.host))
        self._put(Entry(utc_now(), order.host, order.step, status, order.token, _short(evidence)))
        return status, evidence

    def silent(self, host: str, why: str) -> None:
        """The node did not answer in the step that it was in. Raises UserError, OSError."""
        node = self.standing().node(host)
        if node.begun and node.epoch == self.epoch:
            self._put(Entry(utc_now(), host, node.begun, SILENT, node.token, {"why": why}))

    def end(self) -> None:
        """The playbook has come to its end; how long the steps took is kept for plans to come. Raises UserError, OSError."""
        at = utc_now()
        self._put(Entry(at, "", ROLLOUT, DONE, self.epoch))
        keep_durations(self.folder, self.plan, journal.read_journal(self.folder).entries, at)

    def ending(self, host: str) -> tuple[bool, str]:
        """(proved, how the host stands in a line)."""
        node = self.standing().node(host)
        meaning = MEANINGS[node.state]
        why = node.why or self._target_now(host, node).refused or ""
        return node.state in (RELEASED, HELD), f"{host} {node.state}: {meaning}{f' ({why})' if why else ''}"

    def target(self, host: str) -> Target:
        """The host as the plan has it. Raises UserError."""
        return target_of(self._entry(host))

    def standing(self) -> Standing:
        """Where the nodes stand by the journal so far. Raises UserError, OSError."""
        return self.followed.standing()

    def _target_now(self, host: str, node: NodeState) -> Target:
        """With why the plan is not good for it any more, where the node was read just now."""
        entry = self._entry(host)
        if self.read is None:
            return target_of(entry)
        now, at = self._now(host), datetime.datetime.now(datetime.UTC)
        is_same = now.sections is not None and hash_of_sections(now.sections) == entry.config_hash
        then = None if is_same else _sections(self.folder, host)
        return target_of(entry, reasons_against(self.plan, entry, now, at, then, own_work(node)))

    def _entry(self, host: str) -> HostPlan:
        entry = self.plan.for_host(host)
        if entry is None:
            raise UserError(f"expected a host of the plan, found {host!r}; next: unhang plan RUN")
        return entry

    def _put(self, entry: Entry) -> None:
        journal.append(self.folder, self.epoch, entry)

    def _wave_of(self, hosts: Sequence[str]) -> int:
        found = {self.plan.wave_of.get(host, -1) for host in hosts} - {-1}
        if len(found) != 1:
            raise UserError(f"expected the hosts of one wave of the plan, found {', '.join(hosts)}; run it without --limit, or leave hosts out of the plan")
        return found.pop()

    def most_kinds(self, host: str) -> int:
        """The most kinds of nodes that the host's wave can have: there is one canary for each."""
        canaries = sum(len(wave.hosts) for wave in self.plan.waves if wave.is_canary)
        return max(1, min(canaries, len(self.plan.waves[self._wave_of([host])].hosts)))

    def kind(self, host: str) -> str:
        """The node's hardware and image as it was read last, as in the plan's choice of canaries; a node that was not read is of its own kind."""
        sections = _sections(self.read, host)
        return kind_of_plain(sections) if sections else host

    def is_as_before(self, host: str) -> bool:
        """Whether the node was audited after its rollback and is what it was before it was changed, by this controller or an earlier one."""
        return bool(self.standing().node(host).as_before)

    def _now(self, host: str) -> NodeNow:
        sections = _sections(self.read, host)
        return NodeNow(((sections or {}).get("node") or {}).get("boot_id"), sections)

    def _running(self, host: str) -> dict[str, str]:
        sections = _sections(self.read, host) or {}
        loaded = (sections.get("driver") or {}).get("loaded") or {}
        return {"kernel": str((sections.get("kernel") or {}).get("release")), "driver": str(loaded.get("version"))}


def own_work(node: NodeState) -> OwnWork:
    """What this rollout did on the node, so that its own boots and changes are not held against the plan."""
    return OwnWork((node.boot_id,) if node.changed and node.boot_id else (), node.changed)


def open_plan(path: Path, known_hosts: Sequence[str]) -> tuple[Path, Plan]:
    """(run folder, plan). path: plan.json or its folder. Raises UserError."""
    plan = read_plan(path, known_hosts)
    return (path if path.is_dir() else path.parent).absolute(), plan


def begin(
    path: Path,
    known_hosts: Sequence[str],
    evidence: Mapping[str, Any],
    is_over: Any,
    takes_over: str,
    groups: Mapping[str, Sequence[str]] | None = None,
    max_failed: int | str = 0,
) -> dict[str, Any]:
    """{folder, epoch, run, floor} of a new controller. Raises UserError, OSError.

    is_over: whether the process of an earlier one has ended for sure; takes_over: id of the plan's run, when a person says so; groups, max_failed: as for
    begin_wave, looked at before anything is written. None where they are not known.
    """
    folder, plan = open_plan(path, known_hosts)
    if groups is not None:
        limits_of(plan, groups, max_failed)
    standing = Followed(folder, plan).standing()
    newest = standing.begun
    if newest is not None and not standing.ended and not is_over(newest.evidence) and takes_over != plan.run.id:
        by, at = newest.evidence.get("by") or "somebody", newest.at
        raise UserError(
            f"expected no other controller at work on the rollout in {folder}, found {by}, who began {at}; when that one is over for sure: "
            f"-e unhang_take_over={plan.run.id}"
        )
    return {"folder": str(folder), "run": plan.run.id, "floor": plan.limits.floor, "epoch": journal.begin(folder, utc_now(), evidence)}


def _sections(run: Path | None, host: str) -> dict[str, Any] | None:
    path = None if run is None else run / "nodes" / f"{file_stem(host)}.json"
    if path is None or not path.is_file():
        return None
    document = read_node(path)
    try:
        sections = document["facts"]["sections"] if document.get("status") == "ok" else None
        return None if sections is None or to_fragment(sections) is None else dict(sections)
    except (InvalidNode, KeyError, TypeError):  # an answer that no judge would take is no answer
        return None


def _short(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """What fits into a line of the journal: long texts are cut, what cannot be written is left out."""
    cut = {key: value[:2000] if isinstance(value, str) else value for key, value in evidence.items()}
    return {key: value for key, value in cut.items() if len(json.dumps(value, default=str)) <= 8000}
