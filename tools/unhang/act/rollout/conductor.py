"""Runs the state machine for the playbook's action plugins: reads plan and journal, asks the state
machine, writes the journal. Imports no Ansible."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unhang.act.plan.applicable import reasons_against
from unhang.act.plan.disruption import kind_of_plain
from unhang.act.plan.plan_document import HostPlan, Plan, read_plan
from unhang.act.rollout import failure_limit, journal, state_machine
from unhang.act.rollout.floor import Floor, Service, floor_evidence, floor_left
from unhang.act.rollout.kept import keep_baseline
from unhang.act.rollout.node_state import NodeState, meaning_of
from unhang.act.rollout.rebuilding import Kept, entries_of
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.soak import Soaking, describe_soak, soaking_before
from unhang.act.rollout.steps import (
    BEGUN,
    DEFERRED,
    DONE,
    FAILED,
    FAILURE_LIMIT,
    FINAL,
    FLOOR,
    REBUILT,
    RELEASED,
    ROLLOUT,
    SILENT,
    SOAK,
    TO_COME,
    WAIT,
    Entry,
    Evidence,
    Order,
    StepResult,
    Target,
)
from unhang.act.rollout.targets import limits_of, target_of, waves_of
from unhang.act.rollout.undone import describe_undone, undone_of
from unhang.act.rollout.waiting import utc_text, waits_until
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.documents import InvalidNode, to_fragment
from unhang.core.run.run_folder import file_stem, read_node, read_run, utc_now
from unhang.core.schemas.configuration import hash_of_sections
from unhang.core.text import visible

OVER = " next: disable a timer that still starts it; audit again, and plan that run"


class Followed:
    """A plan and the state of its journal, read once and then updated, for a process with many
    steps and the workers that it forks."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.journal, self._standing = journal.JournalReader(folder), RolloutState(waves_of(plan))

    def standing(self) -> RolloutState:
        """The present state of the nodes, by the journal. Raises UserError, OSError."""
        return self._standing.take(self.journal.news())


@dataclass(frozen=True)
class Conductor:
    """One controller of one rollout. folder: of the plan's run, with the journal; read: the run
    folder of the current audit. ends_because: why the rollout ends here, "" if it goes on."""

    folder: Path
    followed: Followed
    epoch: int
    read: Path | None = None
    ends_because: str = ""

    def begin_wave(
        self,
        hosts: Sequence[str],
        groups: Mapping[str, Sequence[str]],
        max_failed: int | str,
        soak_s: int = 0,
    ) -> dict[str, Any]:
        """{wave, begin, postponed, stopped} of the wave with these hosts, after writing it to the
        journal. soak_s: of the nodes released before. Raises UserError, OSError."""
        wave, limits = self._wave_of(hosts), limits_of(self.plan, groups, max_failed)
        admitted = failure_limit.admit(self.standing(), wave, limits, self.ends_because)
        soaking = (
            None if admitted.stopped else soaking_before(self.standing(), self.plan, soak_s, wave)
        )
        name = self.plan.waves[wave].name
        if soaking is not None and any(self._is_to_begin(host) for host in hosts):
            why = self._soaks(soaking, name)
            admitted = failure_limit.admit(self.standing(), wave, limits, why)
            admitted = replace(admitted, postponed={})
        else:
            status = FAILED if admitted.stopped else DONE
            evidence = {"wave": name, "why": admitted.stopped or ""}
            self._note("", FAILURE_LIMIT, status, self.epoch, evidence)
            for host, why in admitted.postponed.items():
                if host not in admitted.begin:
                    self._note(host, "lock", DEFERRED, 0, {"why": why})
        return {
            "wave": name,
            "begin": list(admitted.begin),
            "postponed": dict(admitted.postponed),
            "stopped": admitted.stopped,
        }

    def _is_to_begin(self, host: str) -> bool:
        node = self.standing().node(host)
        return not node.touched and node.state not in FINAL

    def _soaks(self, soaking: Soaking, wave: str) -> str:
        """Writes to the journal, once, until when which nodes soak; wave: that waits for it, "" for
        the end. Returns it as text."""
        before, hosts = self.standing().soak, shortened(fold_hosts(soaking.hosts), 200)
        if before is None or before.evidence.get("until") != soaking.until:
            evidence = {"until": soaking.until, "hosts": list(soaking.hosts)[:200], "wave": wave}
            self._note("", SOAK, BEGUN, self.epoch, evidence)
        return f"{hosts} {'soaks' if len(soaking.hosts) == 1 else 'soak'} until {soaking.until}"

    def fleet(self, known: Sequence[str]) -> list[str]:
        """The hosts of the audit, of which the plan's floor is a share. known: hosts of the
        inventory, which all count if the run folder has no list."""
        run = self.folder / "run.json"
        audited = set(read_run(self.folder).document.get("hosts") or ()) if run.is_file() else set()
        return [host for host in known if not audited or host in audited]

    def keep_floor(self, service: Service | None, why: str = "") -> str:
        """Writes to the journal how many nodes the floor leaves to the rollout now, and returns
        that as a line. Raises UserError, OSError. service: the fleet as its scheduler lists it;
        None if it cannot be queried, for the reason `why`."""
        if service is None:
            return self._put_floor(
                {
                    "why": (
                        "nodes that others took out of service count as in service for the floor:"
                        f" {why}"
                    )
                }
            )
        standing = self.standing()
        emptied = standing.reserved() & (service.out.keys() - service.unknown)
        left = floor_left(service, standing.out | emptied, self.plan.limits.floor)
        return self._put_floor({**floor_evidence(left), "emptied": sorted(emptied)})

    def keep_no_room(self, why: str) -> str:
        """As keep_floor, if the scheduler did not answer: no further node is taken out of service
        until it does. Raises UserError, OSError."""
        why = f"the scheduler did not say which nodes are in service: {visible(why, 500)}"
        return self._put_floor(floor_evidence(Floor(len(self.standing().out), why)))

    def _put_floor(self, evidence: Evidence) -> str:
        self._note("", FLOOR, DONE, self.epoch, evidence)
        return str(evidence["why"])

    def ask(
        self,
        host: str,
        step: str,
        groups: Mapping[str, Sequence[str]],
        max_failed: int | str,
        limit_s: int = 0,
    ) -> Order | None:
        """The order, if the host needs this step now; its beginning is then written to the journal.
        Raises UserError, OSError. limit_s: seconds that the step may take, if known, for people who
        wait."""
        standing = self.standing()
        node = standing.node(host)
        target = self.target(host) if node.changed else self._target_now(host, node)
        if why := state_machine.refusal(node, target):
            if step == "lock":
                self._note(host, step, FAILED, 0, {"why": why})
            return None
        stopped = (
            None
            if self.ends_because
            else failure_limit.why_not(
                standing, host, self._wave_of([host]), limits_of(self.plan, groups, max_failed)
            )
        )
        order = state_machine.next_order(
            node,
            target,
            self.epoch,
            stopped if node.changed else self.ends_because or stopped,
            self.ends_because,
        )
        if order is None or order.step != step:
            return None
        if why := state_machine.may_act(order):
            self._note(host, step, FAILED, order.token, {"why": why})
            return None
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=limit_s)
        until = {"until": utc_text(later)} if limit_s else {}
        evidence = {"boot_id": order.boot_id, "why": order.why, **until}
        self._note(host, step, BEGUN, order.token, evidence)
        return order

    def record(self, order: Order, result: StepResult) -> tuple[str, dict[str, Any]]:
        """(status, evidence) as written to the journal. Raises UserError, OSError."""
        if order.step == "save" and result.status == "ok":
            result = StepResult("ok", self._kept(order.host, dict(result.evidence)))
        if order.step in ("drain", WAIT) and result.status == "ok":
            result = StepResult("ok", self._waited(order.host, dict(result.evidence)))
        if order.step in ("reboot", "audit") and result.status == "ok":
            result = StepResult("ok", {**result.evidence, "running": self._running(order.host)})
        status, evidence = state_machine.judge(order, result, self.target(order.host))
        self._note(order.host, order.step, status, order.token, _short(evidence))
        return status, evidence

    def _kept(self, host: str, evidence: dict[str, Any]) -> dict[str, Any]:
        """The evidence of a save, after a copy of the node's baseline was written beside the
        plan."""
        if baseline := evidence.pop("baseline", None):
            keep_baseline(self.folder, host, baseline)
        return evidence

    def _waited(self, host: str, evidence: dict[str, Any]) -> dict[str, Any]:
        """The evidence of a drain or a wait, with the end of its jobs, and whether that is over, by
        the scheduler's own clock."""
        ends, at = evidence.pop("ends", None) or (), evidence.pop("at", None)
        if not evidence.get("jobs"):
            return evidence
        now = at or utc_now()
        until = waits_until(self.standing().node(host).waits_since or now, ends)
        return evidence | {"until": until, "over": now >= until}

    def silent(self, host: str, why: str) -> None:
        """Records that the node did not answer in its present step. Raises UserError, OSError."""
        node = self.standing().node(host)
        if node.begun and node.epoch == self.epoch:
            self._note(host, node.begun, SILENT, node.token, {"why": why})

    def rebuild(self, found: Mapping[str, Kept]) -> str:
        """Writes to the journal what the nodes have kept of a rollout whose journal was lost, and
        returns it as a line. found: of the hosts that answered. Raises UserError, OSError."""
        at, known = utc_now(), dict(self.standing().nodes)
        runs = (self.plan.run.id, *([self.plan.undoes] if self.plan.undoes else []))
        for host in (host for host in self.plan.wave_of if host not in known):
            for entry in entries_of(host, found.get(host), runs, at):
                self.put(entry)
        states = [node.state for node in self.standing().nodes.values()]
        counts = (
            ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            or "none of its nodes was changed"
        )
        why = f"the journal of this rollout was lost; by what the nodes have kept: {counts}"
        self._note("", REBUILT, DONE, self.epoch, {"why": why})
        return why

    def soak_at_the_end(self, soak_s: int) -> str:
        """Writes to the journal what is waited for after the last wave, if nothing stopped the
        rollout, and returns it as a line. Raises UserError, OSError."""
        standing = self.standing()
        if standing.soak is None and not standing.stopped and not self.ends_because:
            soaking = soaking_before(standing, self.plan, soak_s, len(self.plan.waves))
            self._soaks(soaking, "") if soaking is not None else None
        return describe_soak(self.standing().soak) or "no node soaks"

    def end(self) -> None:
        """Records the end of the playbook; an ended rollout is closed when it holds no node any
        more. Raises UserError, OSError."""
        standing = self.standing()
        is_over = self.ends_because and not any(map(standing.holds, standing.nodes))
        closed = {"closed": self.ends_because} if is_over and not standing.is_lost else {}
        self._note("", ROLLOUT, DONE, self.epoch, closed)

    def ending(self, host: str, is_waited_for: bool = False) -> tuple[bool, str]:
        """(proved, the host's state in one line). While nodes soak, the first of them alone is not:
        the playbook is run again, and the others wait for that; is_waited_for: by the command that
        has started it, so that none fails for it."""
        node, soak = self.standing().node(host), self.standing().soak
        if soak is not None and node.state in (RELEASED, TO_COME):
            first = next(iter(soak.evidence.get("hosts") or [host]))
            return is_waited_for or host != first, describe_soak(soak)
        meaning = meaning_of(node)
        why = node.why or self._target_now(host, node).refused or ""
        return (
            node.state == RELEASED,
            f"{host} {node.state}: {meaning}{f' ({why})' if why else ''}",
        )

    def target(self, host: str) -> Target:
        """The host's entry of the plan, for the state machine. Raises UserError."""
        return self._target_of(self._entry(host))

    @property
    def plan(self) -> Plan:
        """As it was when this process, or the one that forked it, has read it."""
        return self.followed.plan

    def standing(self) -> RolloutState:
        """The states of the nodes, by the journal. Raises UserError, OSError."""
        return self.followed.standing()

    def _target_now(self, host: str, node: NodeState) -> Target:
        """The host's target, with the reason if the plan is no longer valid for it; only if the
        node was read just now."""
        entry = self._entry(host)
        if self.read is None:
            return self._target_of(entry)
        now = sections_of(self.read, host)
        if self.plan.undoes:  # what others have changed since stays, and the role names it
            silent = f"{host}: it did not answer when it was read"
            return self._target_of(entry, [silent] if now is None else [])
        is_same = now is not None and hash_of_sections(now) == entry.config_hash
        then = None if is_same else sections_of(self.folder, host)
        own_boot = node.boot_id or "" if node.changed else None
        return target_of(entry, reasons_against(entry, now, then, own_boot))

    def _target_of(self, entry: HostPlan, refused: Sequence[str] = ()) -> Target:
        """As target_of; what an undo brings back is what ran before the rollout."""
        target = target_of(entry, refused)
        return (
            replace(target, running=_running_in(folder_before(self.folder), entry.host))
            if self.plan.undoes
            else target
        )

    def _entry(self, host: str) -> HostPlan:
        entry = self.plan.for_host(host)
        if entry is None:
            raise UserError(f"{host!r} is not a host of the plan; next: unhang plan RUN")
        return entry

    def _note(self, host: str, step: str, status: str, token: int, evidence: Evidence) -> None:
        self.put(Entry(utc_now(), host, step, status, token, evidence))

    def put(self, entry: Entry) -> None:
        journal.append(self.folder, self.epoch, entry)

    def _wave_of(self, hosts: Sequence[str]) -> int:
        found = {self.plan.wave_of.get(host, -1) for host in hosts} - {-1}
        if len(found) != 1:
            raise UserError(
                f"these are not the hosts of one wave of the plan: {', '.join(hosts)}; run it"
                " without --limit, or leave hosts out of the plan"
            )
        return found.pop()

    def most_kinds(self, host: str) -> int:
        """The maximum number of kinds of nodes in the host's wave: the number of canaries, because
        each kind has one."""
        canaries = sum(len(wave.hosts) for wave in self.plan.waves if wave.is_canary)
        return max(1, min(canaries, len(self.plan.waves[self._wave_of([host])].hosts)))

    def kind(self, host: str) -> str:
        """The node's hardware and image at its latest reading, as in the plan's choice of canaries;
        a node that was not read is a kind of its own."""
        sections = sections_of(self.read, host)
        return kind_of_plain(sections) if sections else host

    def _running(self, host: str) -> dict[str, str]:
        return _running_in(self.read, host)


def folder_before(folder: Path) -> Path:
    """The run folder with the nodes' state before the rollout that the plan in this folder
    undoes."""
    return (folder if folder.is_dir() else folder.parent).absolute().parent


def _running_in(run: Path | None, host: str) -> dict[str, str]:
    sections = sections_of(run, host) or {}
    loaded = (sections.get("driver") or {}).get("loaded") or {}
    return {
        "kernel": str((sections.get("kernel") or {}).get("release")),
        "driver": str(loaded.get("version")),
    }


def open_plan(path: Path, known_hosts: Sequence[str]) -> tuple[Path, Plan]:
    """(run folder, plan). path: plan.json or its folder. A rollout that has begun goes on without
    the nodes that the inventory has lost since. Raises UserError."""
    folder = (path if path.is_dir() else path.parent).absolute()
    has_begun = not known_hosts or bool(journal.read_journal(folder).entries)
    return folder, read_plan(path, None if has_begun else known_hosts)


def begin(
    path: Path,
    known_hosts: Sequence[str],
    evidence: Evidence,
    is_over: Any,
    takes_over: str,
    command: str = "",
) -> dict[str, Any]:
    """{folder, epoch, run, floor} of a new controller. Raises UserError, OSError.

    is_over: whether the process of an earlier one has certainly ended; takes_over: id of the plan's
    run, if the operator gave it; command: of `unhang` that a person has typed, "" for a playbook
    alone.
    """
    folder, plan = open_plan(path, known_hosts)
    if plan.undoes:
        _refuse_another_controller(
            folder_before(folder), read_plan(folder_before(folder)), is_over, takes_over, command
        )
    elif undos := sorted(path.parent.name for path in folder.glob("undo*/journal.jsonl")):
        raise UserError(f"{', '.join(undos)} in {folder} undid the rollout;{OVER}")
    elif undone := describe_undone(undone_of(folder, plan.run.id)):
        raise UserError(f"the rollout was undone on {undone};{OVER}")
    if closed := Followed(folder, plan).standing().closed:
        raise UserError(f"the rollout was {closed};{OVER}")
    _refuse_another_controller(folder, plan, is_over, takes_over, command)
    return {
        "folder": str(folder),
        "run": plan.run.id,
        "floor": plan.limits.floor,
        "epoch": journal.begin(folder, utc_now(), evidence),
    }


def _refuse_another_controller(
    folder: Path, plan: Plan, is_over: Any, takes_over: str, command: str
) -> None:
    standing = Followed(folder, plan).standing()
    newest = standing.begun
    if (
        newest is not None
        and not standing.ended
        and not is_over(newest.evidence)
        and takes_over != plan.run.id
    ):
        by, at = newest.evidence.get("by") or "somebody", newest.at
        raise UserError(
            f"another controller works on the rollout in {folder}: {by}, who began {at}; when that"
            " one is over for sure:"
            f" {f'{command} --take-over' if command else f'-e unhang_take_over={plan.run.id}'}"
        )


def sections_of(run: Path | None, host: str) -> dict[str, Any] | None:
    """The facts of a host in a run folder; None if it was not read, or its document cannot be
    used."""
    path = None if run is None else run / "nodes" / f"{file_stem(host)}.json"
    if path is None or not path.is_file():
        return None
    document = read_node(path)
    try:
        sections = document["facts"]["sections"] if document.get("status") == "ok" else None
        return None if sections is None or to_fragment(sections) is None else dict(sections)
    except (
        InvalidNode,
        KeyError,
        TypeError,
    ):  # a document that the judge would refuse counts as no answer
        return None


def _short(evidence: Evidence) -> dict[str, Any]:
    """The evidence, reduced to a line of the journal: long texts are shortened, values that cannot
    be written are omitted."""
    cut = {
        key: value[:2000] if isinstance(value, str) else value for key, value in evidence.items()
    }
    return {key: value for key, value in cut.items() if len(json.dumps(value, default=str)) <= 8000}
