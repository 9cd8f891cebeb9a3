"""Whether a daemon runs, from its pid file, its control group, its socket or its name; runs no
program."""

from __future__ import annotations

from .reading import there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...base.root import Root

COMM_BYTES = 15  # the kernel truncates names of processes to this length
CGROUPS = (
    "/sys/fs/cgroup/system.slice",
    "/sys/fs/cgroup/systemd/system.slice",
    "/sys/fs/cgroup/unified/system.slice",
)


def is_running(
    root: Root, comm: str, unit: str, pid_files: Iterable[str] = (), socket: str | None = None
) -> bool | None:
    """True or False; None if none of the sources could be read.

    comm: the program's name; unit: its systemd service; socket: a path that it listens on.
    """
    for path in pid_files:
        if runs_under_pid_file(root, path, comm):
            return True
    can_say = False
    for folder in CGROUPS:
        members = _text(root, f"{folder}/{unit}/cgroup.procs")
        if members:
            return bool(members.split())
        # systemd runs (this folder exists) and the unit does not (it has no folder).
        can_say = can_say or members == "" or there(root, folder)
    if socket:
        listening = _text(root, "/proc/net/unix")
        if listening is not None:
            can_say = True
            if any(
                line.endswith((" " + socket, " /var" + socket)) for line in listening.splitlines()
            ):
                return True
    return False if can_say else find_comm(root, comm)


def started_s(root: Root, comm: str, unit: str, pid_files: Iterable[str] = ()) -> int | None:
    """Whole seconds between the boot and the start of a running daemon, or None when its process is
    not found. Raises OSError and ValueError.

    Field 22 of /proc/<pid>/stat, in ticks of 1/100 s on every Linux that has GPUs (proc(5)).
    """
    pids = [(_text(root, path) or "").strip() for path in pid_files]
    for folder in CGROUPS:
        pids += (_text(root, f"{folder}/{unit}/cgroup.procs") or "").split()[:16]
    pid = next(
        (
            word
            for word in pids
            if word.isdigit() and len(word) <= 10 and _comm(root, word) == comm[:COMM_BYTES]
        ),
        None,
    )
    if pid is None:
        return None
    fields = root.text(f"/proc/{pid}/stat", 4096).rpartition(")")[2].split()
    return int(fields[19]) // 100 if len(fields) > 19 else None


def runs_under_pid_file(root: Root, path: str, comm: str) -> bool:
    """True when the process that a pid file names is there and has that name."""
    pid = (_text(root, path) or "").strip()
    return pid.isdigit() and len(pid) <= 10 and _comm(root, pid) == comm[:COMM_BYTES]


def find_comm(root: Root, comm: str) -> bool | None:
    """True when some process has that name; None when the processes cannot be listed."""
    try:
        pids = [name for name in root.names("/proc") if name.isdigit()]
    except OSError:
        return None
    return any(_comm(root, pid) == comm[:COMM_BYTES] for pid in pids)


def _comm(root: Root, pid: str) -> str:
    return (_text(root, f"/proc/{pid}/comm") or "").rstrip("\n")


def _text(root: Root, path: str) -> str | None:
    try:
        return root.text(path, 1 << 20)
    except OSError:
        return None
