"""The plan as a value, as JSON (schema unhang/plan/1), and as a file with a digest that shows an
edit."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from unhang.act.plan.role_remedies import ROLE_ORDER
from unhang.core.errors import UserError
from unhang.core.run.run_folder import read_object
from unhang.core.run.whole_files import write_atomically
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.policy import one_line, policy_faults
from unhang.core.text import listed, visible

SCHEMA = "unhang/plan/1"
FILE = "plan.json"
JOURNAL, LOCK = "journal.jsonl", "journal.lock"  # beside it, of the rollout that has begun
LARGEST_PLAN_BYTES = 128 * 1024 * 1024  # a plan for 10,000 nodes has some 40
SHOWN_HOSTS = 5
CANARY = "canary"
PLAYED = (*ROLE_ORDER, "undo")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True)
class PlannedRun:
    """The run from which the plan was made. started, finished: UTC, RFC 3339."""

    id: str
    started: str
    finished: str | None


class GroupLimit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Number of nodes of a group that may be out of service at once. hosts: of an NVLink domain;
    () for a group of the inventory, whose hosts that names."""

    group: str
    max_unavailable: int
    hosts: tuple[str, ...] = ()


class PlanLimits(msgspec.Struct, frozen=True, rename={"except_": "except"}):
    """The limits of the waves, and the restrictions of the plan. max_unavailable already takes the
    floor into account. in_service: nodes that answered."""

    max_unavailable: int
    floor: int
    in_service: int
    groups: tuple[GroupLimit, ...] = ()
    only: tuple[str, ...] = ()
    except_: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remedy:
    """A role to run. policy: unhang_policy for it, the same in all remedies of a host. before,
    after: versions, None for a role without a version."""

    role: str
    policy: dict[str, Any]
    because: tuple[str, ...]
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Reboot:
    """One reboot that the node may make. step: trial, apply or rollback."""

    step: str
    why: str


# not a dataclass: a fleet has tens of thousands of jobs, and making a dataclass takes five times as
# long
class Job(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A process that used GPUs when the node was read, or a job of its scheduler when the plan was
    made: only that has an id."""

    pid: int | None
    user: str | None
    command: str | None
    gpus: tuple[int, ...]
    id: str = ""


@dataclass(frozen=True)
class Refused:
    """A remedy that is not applied, with the reason."""

    why: str


@dataclass(frozen=True)
class PersonNeeded:
    """A finding that no role repairs, and what a person has to do."""

    rule: str
    what: str


@dataclass(frozen=True)
class HostPlan:
    """One host. boot_id, config_hash: None if not read; jobs: processes on its GPUs and jobs of its
    scheduler, None if that is not known.

    scheduler: slurm, kubernetes or none, by the daemons on the node; None if that is not certain.
    """

    host: str
    boot_id: str | None
    config_hash: str | None
    remedies: tuple[Remedy, ...] = ()
    reboots: tuple[Reboot, ...] = ()
    jobs: tuple[Job, ...] | None = None
    refused: tuple[Refused, ...] = ()
    person: tuple[PersonNeeded, ...] = ()
    scheduler: str | None = None

    @property
    def roles(self) -> list[str]:
        return [one.role for one in self.remedies]

    @property
    def policy(self) -> dict[str, Any]:
        """The one policy of all its remedies; {} for a host without any."""
        return self.remedies[0].policy if self.remedies else {}


@dataclass(frozen=True)
class Wave:
    """Hosts that may be out of service together."""

    name: str
    hosts: tuple[str, ...]

    @property
    def is_canary(self) -> bool:
        """Whether no failure is allowed in it."""
        return self.name.startswith(CANARY)


@dataclass(frozen=True)
class Plan:
    """A complete plan. hosts: each host that has a finding; waves: the hosts that have remedies;
    wave_of: the wave of a host, from 0, in the order of the waves.
    undoes: id of the run whose rollout the plan undoes, "" for any other plan; through: and what
    later runs have changed."""

    run: PlannedRun
    day: str
    limits: PlanLimits
    hosts: tuple[HostPlan, ...] = ()
    waves: tuple[Wave, ...] = ()
    undoes: str = ""
    through: bool = False

    @cached_property
    def by_host(self) -> Mapping[str, HostPlan]:
        return {one.host: one for one in self.hosts}

    @cached_property
    def wave_of(self) -> Mapping[str, int]:
        return {host: number for number, wave in enumerate(self.waves) for host in wave.hosts}

    def for_host(self, host: str) -> HostPlan | None:
        """The entry of a host; None for a host without a finding, or one that is not in the
        plan."""
        return self.by_host.get(host)


def to_document(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON document, with its digest. Hosts and waves are not copied; the encoder
    writes the plan's own objects."""
    names = ("run", "day", "limits", "hosts", "waves", "undoes", "through")
    content = {name: value for name in names if (value := getattr(plan, name)) or name in names[:5]}
    document: dict[str, Any] = {"schema": SCHEMA, "digest": "", **content}
    return {**document, "digest": digest_of(document)}


def digest_of_plan(plan: Plan) -> str:
    """The digest that plan.json has; its first characters name the plan to a person."""
    return str(to_document(plan)["digest"])


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of everything but the digest itself, independent of the file's layout: of the JSON in
    ASCII, with sorted keys and without spaces."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(_canonical(content)).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    """msgspec writes the same bytes as json, ten times as fast, except for characters that json
    escapes and for values that msgspec refuses; json writes those."""
    try:
        quick = _encode_sorted(content)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        quick = b"\x7f"
    if quick.isascii() and b"\x7f" not in quick:
        return quick
    return json.dumps(msgspec.to_builtins(content), sort_keys=True, separators=(",", ":")).encode()


def render_plan(plan: Plan) -> str:
    """The text of plan.json. The same plan gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(to_document(plan)), indent=1).decode() + "\n"


def write_plan(folder: Path, plan: Plan) -> Path:
    """Writes plan.json into a run folder, atomically. Raises OSError."""
    write_atomically(folder / FILE, render_plan(plan))
    return folder / FILE


def read_plan(path: Path, known_hosts: Collection[str] | None = None) -> Plan:
    """A plan from its file or its run folder. known_hosts: of the inventory, to refuse a plan with
    other hosts. Raises UserError if it is not readable, of another version, edited since it was
    written, or has hosts that the inventory does not have."""
    path = path / FILE if path.is_dir() else path
    document = _read(path)
    if digest_of(document) != document["digest"]:
        raise UserError(
            f"{path} was edited since `unhang plan` wrote it (its digest differs){_next(path)}"
        )
    try:
        plan = msgspec.convert(document, Plan)
    except msgspec.ValidationError as problem:
        raise UserError(f"{path}: {visible(str(problem), 300)}{_next(path)}") from None
    _check_hosts(plan, path)
    _check_remedies(plan, path)
    gone = sorted(plan.wave_of.keys() - known_hosts) if known_hosts is not None else []
    if gone:
        names = listed([visible(host, 80) for host in gone], SHOWN_HOSTS)
        raise UserError(
            f"{path} names {names}, which the inventory does not have; audit again{_next(path)}"
        )
    return plan


def _next(path: Path) -> str:
    """The next step after an unreadable plan: the command that makes a new one. path: of
    plan.json."""
    folder, here = path.absolute().parent, Path.cwd()
    return (
        "; next: unhang plan"
        f" {shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))}"
    )


def _read(path: Path) -> dict[str, Any]:
    document = read_object(path, f"a plan ({SCHEMA})", LARGEST_PLAN_BYTES, _next(path))
    if document.get("schema") != SCHEMA:
        raise UserError(
            f"{path} is a plan of schema {visible(document.get('schema'), 80)}, not of"
            f" {SCHEMA}{_next(path)}"
        )
    for fault in check_schema(document, "plan-1"):
        where = ".".join(str(part) for part in fault.path) or "plan"
        raise UserError(
            f"{path}: {visible(where, 200)}: {visible(fault.message, 300)}{_next(path)}"
        )
    return document


def _check_hosts(plan: Plan, path: Path) -> None:
    """Checks that each host is listed once, and each host with remedies in exactly one wave,
    because somebody may have edited the plan and its digest."""
    in_waves = [host for wave in plan.waves for host in wave.hosts]
    wanted = [one.host for one in plan.hosts if one.remedies]
    if (
        len(plan.by_host) != len(plan.hosts)
        or len(set(in_waves)) != len(in_waves)
        or set(in_waves) != set(wanted)
    ):
        raise UserError(
            f"{path} must have each host with remedies in exactly one wave, and does"
            f" not{_next(path)}"
        )
    if any(remedy.policy != one.policy for one in plan.hosts for remedy in one.remedies):
        raise UserError(
            f"{path} must have one policy for all remedies of a host, and has several{_next(path)}"
        )


def _check_remedies(plan: Plan, path: Path) -> None:
    """Checks that remedies are roles and policies that a plan can have. Somebody who computes the
    digest may have put in others."""
    remedies = [(one.host, remedy) for one in plan.hosts for remedy in one.remedies]
    if wrong := next(
        ((host, remedy.role) for host, remedy in remedies if remedy.role not in PLAYED), None
    ):
        raise UserError(
            f"{path} gives {visible(wrong[0], 80)} the role {wrong[1][:80]}, and a plan has the"
            f" roles {', '.join(PLAYED)}{_next(path)}"
        )
    different = {_encode_sorted(remedy.policy): (host, remedy.policy) for host, remedy in remedies}
    for host, policy in different.values():
        for fault in policy_faults(policy):
            raise UserError(
                f"{path}: {visible(host, 80)}: {visible(one_line(fault), 300)}{_next(path)}"
            )
