"""Decides from slurmctld's answers whether a Slurm node may be drained or released. Values in,
values out."""

from __future__ import annotations

from ...base.named_tuple import NamedTuple
from ...base.parse.slurm import Job, Reservation, SlurmNode, parse_utc
from .reasons import ANY_RUN, MARK, DrainAnswer, is_ours, is_sealed, run_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Optional, Sequence

BUSY = ("ALLOCATED", "MIXED", "COMPLETING")
OUT_OF_SERVICE = ("DRAIN", "DOWN", "FAIL", "FAILING", "ERROR")
REBOOTING = ("REBOOT_REQUESTED", "REBOOT_ISSUED")
# What takes_jobs answers.
SERVES, RESERVED, OUT, NOT_KNOWN = "serves", "reserved for us later", "out", "not known"
# slurmd and the kernel round the boot time, and the clock may have been set since
SAME_BOOT_S = 600
# slurmctld's own reasons, as whole texts. With ReturnToService a node that does not answer returns
# to service by itself, so it must be drained too.
OWN_TEXTS = ("Not responding", "Node unexpectedly rebooted")


class Standing(NamedTuple):
    """A node, its jobs, and its reservations, also future ones. at: slurmctld's own time, as Slurm
    writes it in UTC; "" if it was not asked."""

    node: SlurmNode
    jobs: Sequence[Job] = ()
    reservations: Sequence[Reservation] = ()
    at: str = ""


class Host(NamedTuple):
    """A machine's own name and boot time. booted_at: seconds since 1970; 0 if it could not be
    read; cluster: of its slurm.conf, "" if unknown."""

    name: str
    booted_at: int
    cluster: str = ""


class Asked(NamedTuple):
    """run: this run's id, which its reasons contain; takes_over: an ended run whose drain may be
    taken over; reservations: the ones in which a node may be drained. slurm_user: the user that
    slurmctld sets its own reasons as. reason: the text that Slurm shows; "" keeps an earlier reason
    of unhang's. host: name and boot time that the machine to drain reports; None if they were not
    read."""

    run: str
    takes_over: str = ""
    reservations: Sequence[str] = ()
    reason: str = ""
    host: Optional[Host] = None
    slurm_user: str = ""


class Decision(NamedTuple):
    """act: whether to change something; refused: why not, else ""; note: a line for the operator,
    "" for none."""

    act: bool = False
    refused: str = ""
    note: str = ""


class Window(NamedTuple):
    """When a node is to be reserved, in seconds since 1970. own: the reservation of this name, if
    there is one already; refused: why the node may not be reserved, else ""."""

    name: str
    begins: int
    ends: int
    own: Optional[Reservation] = None
    refused: str = ""


def drain_answer(standing: Standing, asked: Asked) -> DrainAnswer:
    """The drain state of the node. A node that is busy in Slurm has jobs, even if squeue does not
    list them."""
    node = standing.node
    out = is_out(node)
    jobs = [
        {
            "id": job.id,
            "user": job.user,
            "state": job.state,
            "ends": f"{job.ends}Z" if parse_utc(job.ends) else "",
        }
        for job in standing.jobs
    ]
    busy = [state for state in BUSY if state in node.states]
    if busy and not jobs:
        jobs = [{"id": "", "user": "", "state": busy[0], "ends": ""}]
    return DrainAnswer(
        drained=out,
        by=node.by if out else "",
        reason=node.reason if out else "",
        jobs=jobs,
        owned="DRAIN" in node.states and _is_untouched(node, asked.run),
        at=f"{standing.at}Z" if parse_utc(standing.at) else "",
    )


def takes_jobs(node: SlurmNode, is_reserved: bool = False) -> str:
    """SERVES, RESERVED, OUT or NOT_KNOWN: whether the node is there for jobs now. is_reserved: the
    run has a reservation of it. A node that is powered down serves, for Slurm powers it up; one
    that still runs its job in our reservation is in service until that job ends."""
    states = node.states
    if is_out(node) or states & {"REBOOT_ISSUED", "FUTURE"}:
        return OUT
    if "UNKNOWN" in states:  # slurmctld has just started, and has not heard of the slurmd yet
        return NOT_KNOWN
    if "NOT_RESPONDING" in states:
        return OUT
    if states & {"MAINT", "MAINTENANCE"} and not (is_reserved and states & set(BUSY)):
        return OUT
    return RESERVED if is_reserved else SERVES


def is_out(node: SlurmNode) -> bool:
    """Whether somebody, or slurmctld, has taken the node out of service; nothing but that keeps it
    out until it is resumed."""
    return any(state in node.states for state in OUT_OF_SERVICE)


def decide_drain(standing: Standing, asked: Asked) -> Decision:
    """Whether to drain. A node that somebody else took out of service, reserved, or reboots with
    Slurm is not changed."""
    node = standing.node
    if "DRAIN" in node.states and _is_untouched(node, asked.run):
        # already drained by this run, with another text
        return Decision(act=asked.reason not in ("", node.reason))
    if asked.host and is_another_machine(node, asked.host):
        return Decision(
            refused=(
                f"Slurm's node {node.name} is {_machine(node)}, not the machine"
                f" {asked.host.name}: drain_node names another machine"
            )
        )
    rebooting = [state for state in REBOOTING if state in node.states]
    if rebooting:
        return Decision(
            refused=(
                f"a reboot is under way, {rebooting[0]}: Slurm reboots {node.name} for somebody,"
                " and that ends every drain"
            )
        )
    if is_out(node) and not _may_be_marked(node, asked):
        return Decision(
            note=(
                f"{node.name} was taken out of service by {describe(node)}: it is left so, and"
                " stays so afterwards"
            )
        )
    if "FUTURE" in node.states:
        return Decision(
            refused=(f"{node.name} is not in use: its state is {'+'.join(sorted(node.states))}")
        )
    if why := _reserved(standing, asked, 0, 0):
        return Decision(refused=why)
    return Decision(act=True)


def decide_window(standing: Standing, asked: Asked, hold_s: int, now: int) -> Window:
    """When to reserve a node that has jobs. A job without an end, or over its end, may end at any
    time: the node takes no new job from now on. Refused where it would meet a reservation of
    others, for a MAINT reservation takes its nodes from it."""
    ends = [parse_utc(job.ends) for job in standing.jobs]
    begins = max([now, *ends]) if ends and all(ends) else now
    name = reservation_name(asked.run, standing.node.name)
    own = next((row for row in standing.reservations if row.name == name), None)
    window = Window(name=name, begins=begins, ends=begins + hold_s, own=own)
    return window._replace(refused=_reserved(standing, asked, window.begins, window.ends))


def is_own_reservation(row: Reservation, name: str, asked: Asked) -> bool:
    """Whether a reservation is of the node of this name alone, and by its own name of this run, or
    of one run that it takes over by name. One of any other run is that run's wait."""
    own = [reservation_name(run, name) for run in (asked.run, asked.takes_over) if run]
    return row.nodes == name and "MAINT" in row.flags and row.name in own


def reservation_name(run: str, node: str) -> str:
    """The name of a run's reservation of a node."""
    return f"{MARK}-{run}-{node}"


def _reserved(standing: Standing, asked: Asked, begins: int, ends: int) -> str:
    """Why the node may not be taken: a reservation of others is active, or begins before `ends`, or
    is another run's wait for the node; "" for none."""
    foreign = [
        row
        for row in standing.reservations
        if row.name not in asked.reservations
        and not is_own_reservation(row, standing.node.name, asked)
        and (
            row.is_active
            or _waiting_run(row, standing.node.name)
            or (row.starts < ends and row.ends > begins)
        )
    ]
    if not foreign:
        return ""
    row, name = foreign[0], standing.node.name
    if run := _waiting_run(row, name):
        return (
            f"{name} is reserved for unhang's run {run}, which waits for its jobs ({row.name}), and"
            f" is left to it; next: unhang remediate {run} --apply goes on there, and unhang"
            f" remediate --end {run} gives it back"
        )
    return (
        f"others have reserved the node: {_reservation(row)}; drain_reservations names those in"
        " which to act"
    )


def _waiting_run(row: Reservation, node: str) -> str:
    """The run of unhang that keeps the node free by this reservation; "" for any other one."""
    run = row.name[len(MARK) + 1 : -len(node) - 1]
    return run if row.name == reservation_name(run, node) else ""


def powers_down(config: Mapping[str, str], node: SlurmNode, kept_nodes: Sequence[str]) -> str:
    """Why Slurm would power the node down while it is drained and idle, "" if it would not:
    slurm.conf(5), SuspendExcStates. config: of parse_config; kept_nodes: of SuspendExcNodes,
    expanded."""
    program, idle = config.get("SuspendProgram", ""), config.get("SuspendTime", "")
    kept = [state.strip().upper() for state in config.get("SuspendExcStates", "").split(",")]
    if (
        not program
        or not idle[:1].isdigit()
        or any(len(state) > 1 and "DRAIN".startswith(state) for state in kept)
    ):
        return ""
    parts = config.get("SuspendExcParts", "").split(",")
    if node.name in kept_nodes or any(
        part in parts for part in node.fields.get("Partitions", "").split(",") if part
    ):
        return ""
    return (
        f"SuspendProgram and SuspendTime {idle} are set: Slurm would power {node.name} down while"
        " it is changed; next: scontrol update SuspendExcStates=DRAIN, and the same in slurm.conf"
    )


def is_another_machine(node: SlurmNode, host: Host) -> bool:
    """True when both name and boot time differ. One difference is no proof: hosts have several
    names, and many machines boot at the same time."""
    known = node.fields.get("NodeHostName", "")
    if not (known and host.name and node.booted_at and host.booted_at) or _label(known) == _label(
        host.name
    ):
        return False
    return abs(node.booted_at - host.booted_at) > SAME_BOOT_S


def name_of_machine(nodes: Sequence[SlurmNode], host: Host) -> str:
    """The name in Slurm of the machine that calls itself so; "" if none or several do."""
    names = [node.name for node in nodes if is_called(node, host)]
    return names[0] if len(names) == 1 else ""


def is_called(node: SlurmNode, host: Host) -> bool:
    """Whether slurmd reports the machine's own host name for the node."""
    return bool(host.name) and _label(node.fields.get("NodeHostName", "")) == _label(host.name)


def _label(name: str) -> str:
    return name.partition(".")[0].lower()


def _machine(node: SlurmNode) -> str:
    return f"{node.fields.get('NodeHostName', '')}, which booted at another time"


def _may_be_marked(node: SlurmNode, asked: Asked) -> bool:
    """True when slurmctld itself took the node out of service, or a run that this one takes over;
    by the whole reason, and who set it."""
    if "DRAIN" in node.states or not node.reason:
        return _is_untouched(node, asked.takes_over)
    if node.reason in OWN_TEXTS and node.by == asked.slurm_user:
        return True
    return _is_untouched(node, asked.run, asked.takes_over)


def _is_untouched(node: SlurmNode, *runs: str) -> bool:
    """Whether the whole reason is one that one of these runs wrote: one that somebody has added to
    is that person's, and keeps the node drained."""
    return is_ours(node.reason, runs) and is_sealed(node.reason)


def decide_wait(standing: Standing, asked: Asked) -> Decision:
    """Whether to keep waiting for jobs. Refused if the node takes jobs again, because somebody has
    ended the drain."""
    answer = drain_answer(standing, asked)
    if not answer.drained:
        return Decision(
            refused=(
                f"{standing.node.name} is in state {'+'.join(sorted(standing.node.states))}:"
                " somebody has ended the drain"
            )
        )
    return Decision(act=bool(answer.jobs))


def decide_release(standing: Standing, asked: Asked) -> Decision:
    """Whether to resume: only a drain with this run's reason. A node whose slurmd does not answer
    stays drained."""
    node = standing.node
    if "DRAIN" not in node.states:
        note = (
            f"{node.name} is out of service by {describe(node)}: it is left so"
            if drain_answer(standing, asked).drained
            else ""
        )
        return Decision(note=note)
    if not _is_untouched(node, asked.run, "" if asked.takes_over == ANY_RUN else asked.takes_over):
        return Decision(note=f"{node.name} was drained by {describe(node)}: it is left so")
    if "NOT_RESPONDING" in node.states:
        return Decision(
            act=True,
            refused=(
                f"slurmd does not answer (NOT_RESPONDING): start slurmd on {node.name}; it stays"
                " drained until then"
            ),
        )
    return Decision(act=True)


def describe(node: SlurmNode) -> str:
    """Who took a node out of service, and why."""
    run = run_of(node.reason)
    who = f"unhang's run {run}" if run else node.by or "somebody"
    return f"{who} ({node.reason or 'no reason given'})"


def _reservation(row: Reservation) -> str:
    flags = f", flags {','.join(row.flags)}" if row.flags else ""
    return f"{row.name} (of {row.users or 'nobody named'}{flags})"
