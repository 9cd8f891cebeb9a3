"""The smoke test's payload: proves on the machines themselves, under the torch that users train with, that a group of ranks can train together.

    python3 unhang_smoke.py node --plan JSON     starts this node's ranks, monitors them from outside, and ends them in every case
    python3 unhang_smoke.py survey               describes this node: addresses, routes, GPUs, a free port
    torchrun ... unhang_smoke.py                 one rank (also under srun, or by hand with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)

One file that needs only torch and the standard library, Python >= 3.8, so that it can be copied, read and piped anywhere. It measures and never judges: it
prints events as lines of JSON, each with `e` (the kind of event); `unhang smoke` makes the verdict from them.

Assembled by tools/payload/build.py from tools/payload/parts: change it there.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import importlib
import json
import math
import mmap
import os
import pwd
import re
import selectors
import shutil
import signal
import socket
import stat
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

# board.py: The shared page of memory in which each rank records its current step for its agent ------------------------------------------------------


class Board:
    """A page of memory that a rank shares with its agent through a file: it can be read when the rank is stopped, hung or dead.

    Numbers: collectives entered and finished, when the step began, the step's deadline, the phase's deadline (CLOCK_MONOTONIC, s).
    """

    NUMBERS = struct.Struct("<qqddd")
    ASKED, ANSWERED, TEXT, SIZE = 48, 49, 64, 1024

    def __init__(self, path: str, create: bool = False) -> None:
        if create:
            with open(path, "wb") as fresh:
                fresh.write(b"\0" * self.SIZE)
        with open(path, "r+b") as shared:
            self.memory = mmap.mmap(shared.fileno(), self.SIZE)
        self.entered = self.done = 0
        self.phase, self.phase_until = "", 0.0

    def begin(self, phase: str, step: str, step_s: float, phase_until: float) -> None:
        """Records a step before it starts."""
        text = ("%s\n%s" % (phase, step)).encode()[: self.SIZE - self.TEXT - 1]
        self.memory[self.TEXT : self.TEXT + len(text) + 1] = text + b"\0"
        now = time.monotonic()
        self.NUMBERS.pack_into(self.memory, 0, self.entered, self.done, now, now + step_s, phase_until)

    def enter(self) -> None:
        """Records that this rank is about to enter its next collective."""
        self.entered += 1
        struct.pack_into("<q", self.memory, 0, self.entered)

    def leave(self) -> None:
        """Records that the collective has finished, on the device too."""
        self.done = self.entered
        struct.pack_into("<q", self.memory, 8, self.done)

    def read(self) -> dict[str, Any]:
        """The recorded values: phase, step, seq (entered), done, began, until, phase_until."""
        entered, done, began, until, phase_until = self.NUMBERS.unpack_from(self.memory, 0)
        text = bytes(self.memory[self.TEXT :]).split(b"\0", 1)[0].decode("utf-8", "replace")
        phase, _, step = text.partition("\n")
        return {"phase": phase, "step": step, "seq": entered, "done": done, "began": began, "until": until, "phase_until": phase_until}

    def flag(self, place: int, value: int | None = None) -> int:
        """Reads or sets one of the two flags (ASKED: the agent wants a dump; ANSWERED: it is written)."""
        if value is not None:
            self.memory[place] = value
        return self.memory[place]


# roots.py: Root of the system's own files: /, or another folder for a recorded machine --------------------------------------------------------------


def rooted(path: str) -> str:
    """UNHANG_SMOKE_ROOT in front of an absolute path."""
    return os.path.join(os.environ.get("UNHANG_SMOKE_ROOT") or "/", path.lstrip("/"))


# counters.py: Counters of network interfaces and RDMA ports, and how much they rose -----------------------------------------------------------------

COUNTED_OF = re.compile(r"(?:GPU \d+ link \d+|GPU \d+|\S+ port \d+|\S+) (.+)")  # the part before a counter's own name
NET = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "tx_carrier_errors")


def net_counters() -> dict[str, int]:
    """{name: count}: "eth0 rx_bytes", "mlx5_0 port 1 symbol_error"; all ports of all devices."""
    counts: dict[str, int] = {}
    net, rdma = rooted("/sys/class/net"), rooted("/sys/class/infiniband")
    for name in _names(net):
        _read_all(counts, name, os.path.join(net, name, "statistics"), NET)
    for name in _names(rdma):
        for port in _names(os.path.join(rdma, name, "ports")):
            for kind in ("counters", "hw_counters"):
                folder = os.path.join(rdma, name, "ports", port, kind)
                _read_all(counts, "%s port %s" % (name, port), folder, _names(folder))
    return counts


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read_all(counts: dict[str, int], name: str, folder: str, counters: Iterable[str]) -> None:
    for counter in counters:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, counter), encoding="ascii") as source:
            counts["%s %s" % (name, counter)] = int(source.read())


def peers_of(moved: Iterable[str], read: Iterable[str]) -> dict[str, int]:
    """{kind of a counter: how many of it were read} for each kind of which at least one rose: {"replay errors": 144, "symbol_error": 8}."""
    wanted = {found.group(1) for found in map(COUNTED_OF.match, moved) if found}
    kinds = [found.group(1) for found in map(COUNTED_OF.match, read) if found]
    return {kind: kinds.count(kind) for kind in sorted(wanted)}


def changed(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The counters that rose, and by how much."""
    return {name: after[name] - before.get(name, 0) for name in sorted(after) if after[name] != before.get(name, 0)}


# events.py: Writes events as lines of JSON ----------------------------------------------------------------------------------------------------------


def emit(descriptor: int, kind: str, **fields: Any) -> None:
    """Writes one event as one line in one write. An error means that the reader is gone, and the agent handles that, not the rank."""
    line = json.dumps(dict(fields, e=kind, t=round(time.time(), 3)), default=str).encode() + b"\n"
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


PIECE_BYTES = 800  # srun mixes the lines of its tasks when they are longer than a kilobyte


def shorten_lines(name: str) -> Callable[[], None]:
    """From now on, standard output is written in numbered pieces, `~NAME.LINE PIECE/PIECES text`. Returns a function that ends this."""
    reader, writer = os.pipe()
    real = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)

    def relay() -> None:
        with os.fdopen(reader, "rb") as lines:
            for number, whole in enumerate(lines):
                line = whole.rstrip(b"\n")
                pieces = [line[at : at + PIECE_BYTES] for at in range(0, len(line), PIECE_BYTES)]
                for place, piece in enumerate(pieces):
                    with contextlib.suppress(OSError):
                        os.write(real, b"~%s.%d %d/%d %s\n" % (name.encode(), number, place + 1, len(pieces), piece))

    thread = threading.Thread(target=relay)
    thread.start()

    def finish() -> None:
        sys.stdout.flush()
        os.close(1)
        thread.join()
        os.dup2(real, 1)

    return finish


# kernel_log.py: Reads the kernel log's new lines ----------------------------------------------------------------------------------------------------


def open_kernel_log() -> int | None:
    """A descriptor that yields the lines from now on, or None where this is not permitted."""
    try:
        descriptor = os.open(rooted("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(descriptor, 0, os.SEEK_END)
        return descriptor
    except OSError:
        return None


def new_kernel_lines(descriptor: int | None, most: int = 200) -> list[str] | None:
    """The new lines, limited in number; None where the log may not be read.

    A record is `priority,number,time,flags;text`, followed by lines that begin with a blank and hold more for programs.
    https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
    """
    if descriptor is None:
        return None
    lines: list[str] = []
    piece = b" "
    with contextlib.suppress(OSError):  # EAGAIN: no more lines; EPIPE: the log's buffer was overwritten
        while len(lines) < most and piece:
            piece = os.read(descriptor, 8192)
            records = [line for line in piece.decode("utf-8", "replace").split("\n") if line and not line.startswith(" ")]
            lines += [record.partition(";")[2][:500] for record in records]
    return lines[:most]


# limits.py: Times and sizes that more than one part needs -------------------------------------------------------------------------------------------

VERSION = 1
STEP_S = 10.0  # a step (one collective) that takes longer has stalled; collecting evidence included, the verdict exists within 20 s
GRACE_S = 3.0  # for the peers of a dead rank to notice its end
SLOW_BYTES_S = 0.5e9  # the bandwidth that a large message needs at least, even on the slowest network that is used for training
START_S = 30.0  # for an interpreter to start and read this file, until its first event
EVIDENCE_S = 4.0  # for ranks to answer with stacks and recordings
SELF_END_S = 20.0  # a rank that nothing has ended by then ends itself, from a thread that needs no interpreter
STOPPED_S = 3.0  # how long a process may be in state T before it counts as stalled
POLL_S = 0.1
LINE_BYTES = 256 * 1024
MOST_READS = 10_000  # of pipes, before the loop that reads them ends


# processes.py: Watches processes from outside, and ends them ----------------------------------------------------------------------------------------


def process_state(pid: int) -> tuple[str, str]:
    """(state letter, wchan) of a process, ("gone", "") when there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as source:
            state = source.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone", ""
    wchan = ""
    with contextlib.suppress(OSError), open("/proc/%d/wchan" % pid, encoding="ascii") as source:
        wchan = source.read().strip("0\n")
    return state, wchan


def die_with_parent() -> None:
    """Runs in a child before exec: the kernel kills the child when its parent ends, however the parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def signal_name(code: int) -> str | None:
    """SIGKILL for -9, None for an ordinary exit."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return "signal %d" % -code


def session_members(session: int) -> list[int]:
    """pids that have this session id, in the order of their start."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as source:
                fields = source.read().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    found.append((int(fields[19]), int(name)))
    return [pid for _, pid in sorted(found)]


def session_commands(session: int) -> list[str]:
    """Command lines of a session's processes, the latest started last."""
    found = []
    for pid in session_members(session):
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as source:
            command = source.read().replace(b"\0", b" ").strip().decode("utf-8", "replace")
            if command:
                found.append(command[:200])
    return found


def end_session(pid: int) -> None:
    """Sends SIGKILL to a session: to its process group, and to every process with its session id."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for member in session_members(pid):
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)


# nvml.py: NVLink states from NVML, read by a child process, because a driver in trouble may never answer --------------------------------------------

NVML_S = 10.0  # at the start, while torch is imported
NVML_AGAIN_S = 3.0
NVLINK_CAPABILITY = 2  # NVML_P2P_CAPS_INDEX_NVLINK; status 0 is NVML_P2P_STATUS_OK
# NVML_FI_DEV_NVLINK_*: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html, each by link. Errors up to Hopper; Blackwell has none of these
# three (change log of that API) and has NVLINK5_FIELDS instead.
FIELDS = {138: "data sent (KiB)", 139: "data received (KiB)", 161: "replay errors", 162: "recovery errors", 163: "CRC errors"}
NVLINK5_FIELDS = {
    206: "malformed packet errors", 207: "buffer overrun errors", 208: "receive errors", 211: "link integrity errors", 215: "link recovery events",
    221: "symbol errors",
}  # fmt: skip
# nvmlNvLinkErrorCounter_t, for a driver that knows none of the fields: the counters of `nvidia-smi nvlink -e`. Its counters 3 (CRC data) and 4 (ECC data) rise
# on every link of a healthy H200 (docs/decisions/0014): https://github.com/DataDog/datadog-agent/pull/55966
OLDER = {0: "replay errors", 1: "recovery errors", 2: "CRC errors"}
NVLINK_SPEED = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, MB/s by link
MOST_LINKS = 18
COUNTED_ERRORS = ((0, "corrected memory errors"), (1, "uncorrected memory errors"))  # nvmlMemoryErrorType_t
SINCE_LOADED = 0  # NVML_VOLATILE_ECC


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong), ("kind", ctypes.c_uint),
        ("code", ctypes.c_uint), ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class NvmlQuestion:
    """A child that queries NVML; answer() waits for it, but no longer than the limit since its start."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 -- open until it was answered
        argv = [sys.executable, "-S", os.path.abspath(__file__), "nvml"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Once: {"pairs", "counters", "links", "problem"}: pairs of UUIDs that NVLink connects or None, the others by name and UUID, why parts are missing."""
        problem = "NVML did not answer within %.0f s: the driver hangs" % limit_s
        try:
            self.process.wait(max(0.1, limit_s - (time.monotonic() - self.began)))
            self.output.seek(0)
            return dict(json.loads(self.output.read()))
        except subprocess.TimeoutExpired:
            self.process.kill()
        except ValueError:
            problem = "NVML ended its caller with code %s" % self.process.returncode
        return nothing_read(problem)


def nothing_read(problem: str | None = None) -> dict[str, Any]:
    """An answer without any values."""
    return {"pairs": None, "counters": {}, "links": {}, "problem": problem}


def read_nvml() -> dict[str, Any]:
    """Collects the answer, in the child. Without the library it is empty."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return nothing_read()
    code = call(library, "nvmlInit_v2")
    if code:
        return nothing_read("nvmlInit answered %d" % code)
    handles = nvml_handles(library)
    counters, links = {}, {}
    for index, (handle, uuid) in enumerate(handles):
        links[uuid] = gpu_links(library, handle)
        counters.update(gpu_counters(library, handle, "GPU %d" % index))
        counters.update(link_counters(library, handle, "GPU %d" % index))
    return {"pairs": joined_pairs(library, handles), "counters": counters, "links": links, "problem": None}


def call(library: Any, name: str, *arguments: Any) -> int:
    """The return code of a call; 13 (function not found) where the library is too old to have the function."""
    function = getattr(library, name, None)
    return function(*arguments) if function else 13


def nvml_handles(library: Any) -> list[tuple[Any, str]]:
    """[(handle, UUID)] in NVML's order."""
    count, handles = ctypes.c_uint(), []
    call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0 and call(library, "nvmlDeviceGetUUID", handle, text, 96) == 0:
            handles.append((handle, text.value.decode("ascii", "replace")))
    return handles


def joined_pairs(library: Any, handles: list[tuple[Any, str]]) -> list[list[str]]:
    """[[uuid, uuid]] of GPUs that NVLink connects, directly or through switches."""
    pairs, status = [], ctypes.c_int()
    for place, (first, name) in enumerate(handles):
        for second, other in handles[place + 1 :]:
            if call(library, "nvmlDeviceGetP2PStatus", first, second, NVLINK_CAPABILITY, ctypes.byref(status)) == 0 and status.value == 0:
                pairs.append([name, other])
    return pairs


def active_links(library: Any, handle: Any) -> list[int]:
    """Numbers of the NVLinks that are up."""
    active, state = ctypes.c_uint(), "nvmlDeviceGetNvLinkState"
    return [link for link in range(MOST_LINKS) if call(library, state, handle, link, ctypes.byref(active)) == 0 and active.value]


def gpu_links(library: Any, handle: Any) -> dict[str, int]:
    """{nvlinks, nvlink_mb_s, pcie_generation, pcie_width}: the links of this GPU; 0 for missing values."""
    links = active_links(library, handle)
    speed = FieldValue(NVLINK_SPEED, links[0] if links else 0)
    read = bool(links) and call(library, "nvmlDeviceGetFieldValues", handle, 1, ctypes.byref(speed)) == 0 and speed.code == 0
    found = {"nvlinks": len(links), "nvlink_mb_s": speed.value & 0xFFFFFFFF if read else 0}
    for name, function in (("pcie_generation", "nvmlDeviceGetMaxPcieLinkGeneration"), ("pcie_width", "nvmlDeviceGetMaxPcieLinkWidth")):
        value = ctypes.c_uint()
        found[name] = value.value if call(library, function, handle, ctypes.byref(value)) == 0 else 0
    return found


def gpu_counters(library: Any, handle: Any, gpu: str) -> dict[str, int]:
    """{"GPU 0 PCIe replays": 0, "GPU 0 corrected memory errors": 0}: the GPU's own counters."""
    counters, replays = {}, ctypes.c_uint()
    if call(library, "nvmlDeviceGetPcieReplayCounter", handle, ctypes.byref(replays)) == 0:
        counters["%s PCIe replays" % gpu] = replays.value
    for kind, name in COUNTED_ERRORS:
        count = ctypes.c_ulonglong()
        if call(library, "nvmlDeviceGetTotalEccErrors", handle, kind, SINCE_LOADED, ctypes.byref(count)) == 0:
            counters["%s %s" % (gpu, name)] = count.value
    return counters


def link_counters(library: Any, handle: Any, gpu: str) -> dict[str, int]:
    """{"GPU 0 link 3 replay errors": 0}; links that are not active are left out."""
    links = active_links(library, handle)
    counters = field_counters(library, handle, gpu, links, FIELDS)
    if not any(name.endswith("errors") for name in counters):
        counters.update(field_counters(library, handle, gpu, links, NVLINK5_FIELDS))
    older = {} if any(name.endswith("errors") for name in counters) else OLDER
    for link in links:
        for number, name in older.items():
            count = ctypes.c_ulonglong()
            if call(library, "nvmlDeviceGetNvLinkErrorCounter", handle, link, number, ctypes.byref(count)) == 0:
                counters["%s link %d %s" % (gpu, link, name)] = count.value
    return counters


def field_counters(library: Any, handle: Any, gpu: str, links: list[int], fields: Mapping[int, str]) -> dict[str, int]:
    """The same for these field values: {number: name}."""
    wanted = [(field, link) for link in links for field in fields]
    values = (FieldValue * len(wanted))(*[FieldValue(field, link) for field, link in wanted])
    if not wanted or call(library, "nvmlDeviceGetFieldValues", handle, len(wanted), values) != 0:
        return {}
    read = [one for one in values if one.code == 0 and one.kind != 0]  # type 0 is a double, and no counter is one; type 1 has 32 bits
    return {"%s link %d %s" % (gpu, one.scope, fields[one.field]): one.value & 0xFFFFFFFF if one.kind == 1 else one.value for one in read}


# run.py: A rank's state: its rank number, its steps, its planned faults, and its exchange with the others outside the network under test ------------

MOST_STEPS, LEAST_STEP_S = 4, 0.1  # of the steps that are reported


class Failed(Exception):
    """A phase failed; the text has what was expected and what was found. more: fields of the event."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


class Run:
    """State of a rank: its rank number, its plan, its board; torch and the process group once they exist."""

    def __init__(self, plan: dict[str, Any], place: tuple[int, int, int, int], descriptor: int, folder: str) -> None:
        self.plan, self.descriptor, self.folder = plan, descriptor, folder
        self.rank, self.world, self.local_rank, self.local_world = place
        self.board = Board(os.path.join(folder, "board-%d" % self.rank), create=True)
        self.stacks = open(os.path.join(folder, "stacks-%d" % self.rank), "w+", encoding="utf-8")  # noqa: SIM115 -- open as long as the process lives
        self.host = plan.get("host") or socket.gethostname()
        self.phases: tuple[str, ...] = ()
        self.phase, self.phase_until = "", 0.0
        self.torch: Any = None
        self.dist: Any = None
        self.store: Any = None
        self.device: Any = None
        self.backend: str | None = None
        self.groups: Any = None
        self.facts: dict[str, Any] = {}
        self.losses: Sequence[float] = ()
        self.seed, self.last_status = 0, "ok"
        self.steps: dict[str, float] = {}
        self.step_name, self.step_began = "", time.monotonic()

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this rank, in this phase."""
        emit(self.descriptor, kind, rank=self.rank, host=self.host, phase=self.phase, **fields)

    def step(self, name: str, limit_s: float | None = None) -> None:
        """Announces a step: from now on the agent measures its time. A timer in this process measures it too, and ends the process if the agent does not."""
        limit_s = limit_s or self.plan.get("step_timeout_s") or STEP_S
        limit_s = min(limit_s, max(0.5, self.phase_until - time.monotonic()))
        self.end_step(name)
        self.board.begin(self.phase, name, limit_s, self.phase_until)
        faulthandler.dump_traceback_later(limit_s + SELF_END_S, exit=True, file=self.stacks)

    def end_step(self, following: str = "") -> None:
        """Notes how long the step before took."""
        now = time.monotonic()
        self.steps[self.step_name] = self.steps.get(self.step_name, 0.0) + now - self.step_began
        self.step_name, self.step_began = following, now

    def longest_steps(self) -> dict[str, float]:
        """{step: seconds} of the phase's longest steps, which shows where its time was spent; then the counting starts again for the next phase."""
        self.end_step()
        longest = sorted(self.steps.items(), key=lambda step: -step[1])[:MOST_STEPS]
        self.steps = {}
        return {name: round(seconds, 3) for name, seconds in longest if seconds >= LEAST_STEP_S}

    def collective(self, name: str, call: Callable[[], Any], size_bytes: int = 0, expected_s: float | None = None) -> Any:
        """One collective, counted before it is entered and after it is over. Returns its result; the device has finished.

        Its limit is that of any collective plus the time that its size takes on a slow network, or plus three times the expected time, where one was measured.
        """
        base_s = self.plan.get("step_timeout_s") or STEP_S
        slow = SLOW_BYTES_S if self.backend == "nccl" else SLOW_BYTES_S / 5
        self.step(name, base_s + (size_bytes / slow if expected_s is None else 3 * expected_s))
        drill(self)
        self.board.enter()
        result = call()
        self.await_device()
        self.board.leave()
        return result

    def await_device(self) -> None:
        """Waits for the device."""
        if self.device is not None and self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def free_bytes(self) -> int:
        """Memory that this rank may use: of its GPU, or its share of the machine's."""
        if self.device is not None and self.device.type == "cuda":
            return int(self.torch.cuda.mem_get_info()[0])
        with open("/proc/meminfo", encoding="ascii") as lines:
            available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 1 << 30)
        return available // max(1, self.local_world)

    def scaled(self, elements: int, element_bytes: int, copies: int) -> int:
        """The number of elements that was requested, limited by memory (half of what is free) and by the plan's largest message."""
        room = min(self.free_bytes() // 2, copies * (self.plan.get("max_bytes") or 1 << 62)) // (copies * element_bytes)
        agreed = self.torch.tensor([min(elements, room)], dtype=self.torch.int64, device=self.device)
        self.collective("agree on the size", lambda: self.dist.all_reduce(agreed, op=self.dist.ReduceOp.MIN))
        return max(self.world, int(agreed) // self.world * self.world)


def drill(run: Run) -> None:
    """Runs a planned fault, so that the smoke test itself can be tested: `--drill RANK:FAULT[:PHASE]`. Once per run, except for lasting faults."""
    for fault in run.plan.get("drills") or ():
        if fault["rank"] != run.rank or fault.get("phase", "all_reduce") != run.phase:
            continue
        if fault["fault"] == "absent":
            while True:
                time.sleep(3600)
        elif fault["fault"] == "exit":
            os._exit(7)
        elif fault["fault"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault["fault"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault["fault"] == "read":
            with contextlib.suppress(OSError), open(os.environ["UNHANG_DRILL_FILE"], "rb") as source:
                source.read(1)


def drilled(run: Run, fault: str) -> bool:
    """Whether this rank must show this lasting fault."""
    return any(one["rank"] == run.rank and one["fault"] == fault for one in run.plan.get("drills") or ())


def short_list(numbers: Sequence[int]) -> str:
    """3, 5, 8 and 40 more."""
    shown = ", ".join(map(str, numbers[:16]))
    return shown if len(numbers) <= 16 else "%s and %d more" % (shown, len(numbers) - 16)


def wait_for(run: Run, keys: list[str], limit_s: float) -> None:
    """Waits until the store has all keys."""
    until = time.monotonic() + limit_s
    for key in keys:
        while not run.store.check([key]):
            if time.monotonic() > until:
                raise Failed("expected %s in the store, found nothing within %.0f s" % (key, limit_s))
            time.sleep(0.02)


def arrive(run: Run, name: str) -> None:
    """Records at the store that this rank has arrived, whatever its result."""
    run.store.add("met/" + name, 1)


def await_all(run: Run, name: str) -> None:
    """Waits until all ranks have arrived, without the network under test. The waiting rank arrives first."""
    limit_s = run.phase_until - time.monotonic()
    run.step("wait for the others after %s" % name, limit_s)
    while run.store.add("met/" + name, 0) < run.world:
        time.sleep(0.02)


def meet(run: Run, name: str) -> None:
    """All ranks meet at the store."""
    arrive(run, name)
    await_all(run, name)


# recording.py: Flight recordings and other files that one process writes for another ----------------------------------------------------------------


def recording_path(folder: str, rank: int) -> str:
    """Path of a rank's flight recording."""
    return os.path.join(folder, "flight-%d" % rank)


def write_flight_recording(run: Run) -> None:
    """Writes torch's own record of the last collectives (a pickle), if this torch keeps one. The file is complete or missing."""
    path = recording_path(run.folder, run.rank)
    with contextlib.suppress(Exception):  # a recorder that is missing or broken must not prevent the other evidence
        import torch._C._distributed_c10d as inner

        dump = getattr(inner, "_dump_nccl_trace" if run.backend == "nccl" else "_dump_fr_trace", None) or inner._dump_fr_trace  # type: ignore[attr-defined]
        with open(path + ".partial", "wb") as sink:
            sink.write(recorded(dump))
        os.replace(path + ".partial", path)


def recorded(dump: Callable[..., bytes]) -> bytes:
    """The record. To name Python's frames torch loads its compiler, which takes seconds of imports during a hang: done only where it is loaded already."""
    if "torch._dynamo" in sys.modules:
        return dump()
    try:
        return dump(includeCollectives=True, includeStackTraces=False)
    except TypeError:  # this torch has no such option
        return dump()


def nccl_log(folder: str, rank: int) -> tuple[str, str]:
    """The path of NCCL's log file, and that of the file that lists the parts of it that concern other groups than that of all ranks."""
    return os.path.join(folder, "nccl-%d.log" % rank), os.path.join(folder, "nccl-%d.others" % rank)


@contextlib.contextmanager
def logs_of_others(run: Run) -> Iterator[None]:
    """Marks the part of NCCL's log written meanwhile: it concerns groups with rank numbers of their own, not the group of all ranks."""
    log, record = nccl_log(run.folder, run.rank)
    with open(record, "a", encoding="ascii") as target:
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))
        target.flush()
        yield
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))


def read_nccl_log(folder: str, rank: int, limit: int = 4 << 20) -> str:
    """The end of a rank's NCCL log, without the parts that concern other groups."""
    path, record = nccl_log(folder, rank)
    log = read_tail(path, 1 << 30).encode()
    bounds = [int(word) for word in read_tail(record).split()] + [len(log)]
    for begin, end in reversed(list(zip(bounds[::2], bounds[1::2]))):
        log = log[:begin] + log[end:]
    return log[-limit:].decode("utf-8", "replace")


def read_tail(path: str, limit: int = 16000) -> str:
    """The end of a text file."""
    try:
        with open(path, "rb") as source:
            source.seek(max(0, os.path.getsize(path) - limit))
            return source.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_encoded(path: str, limit: int = 131072) -> str | None:
    """A binary file as base64, or None. A file that is too large is left out, because half a pickle cannot be read."""
    try:
        if os.path.getsize(path) > limit:
            return None
        with open(path, "rb") as source:
            return base64.b64encode(source.read()).decode("ascii")
    except OSError:
        return None


# stacks.py: Native stacks of ranks by py-spy, where it is installed: the function below Python that a process waits in ------------------------------

SPY_S = 4.0  # for all ranks of a node together
# Without stopping the process, py-spy takes a hundredth of a second. With native frames it stops the process for half a second and more, but names the function
# of NCCL or of the driver: its output replaces the first, if it finishes.
SPY_WAYS = (("--nonblocking", 0.25), ("--native", 0.75))


def find_spy(python: str | None) -> str | None:
    """py-spy on PATH, or beside the Python that the ranks run under; None where there is none."""
    folders = [os.path.dirname(one) for one in (python, sys.executable) if one]
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.pathsep.join(folders))


def native_stacks(spy: str, pids: list[int], limit_s: float = SPY_S) -> dict[int, str]:
    """{pid: text} with py-spy's output for each process, all at the same time and each within the limit."""
    found = {}
    for way, share in SPY_WAYS:
        until = time.monotonic() + limit_s * share
        looks = {pid: _look(spy, way, pid) for pid in pids}
        for pid, (process, output) in looks.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            if process.poll() is None:
                process.kill()
            elif process.returncode == 0:
                output.seek(0)
                found[pid] = "\n".join(line[:160] for line in output.read().decode("utf-8", "replace").splitlines())[:8000]
            output.close()
    return found


def _look(spy: str, way: str, pid: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by who reads it
    argv = [spy, "dump", way, "--pid", str(pid)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent), output


# transports.py: The transport between each pair of ranks, from NCCL's own log -----------------------------------------------------------------------

# The lines that NCCL prints in p2p.cc, shm.cc and net.cc; those for shared memory have no connection number, those for networks the proxy's rank in brackets.
# https://github.com/NVIDIA/nccl/tree/master/src/transport
TRANSPORT = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(send|receive)\] )?via (.+?)(?: comm 0x.*)?$")
NET_DEVICES = re.compile(r"NCCL INFO NET/(.+?) : Using (\[\d.*)")
NET_DEVICE = re.compile(r"\[(\d+)\]=?(\{[^}]*\}|[^\s\[;]+)")
THREAD = re.compile(r":(\d+):(\d+) \[")  # of a process, at the start of a line: host:process:thread [device]
OTHER_GROUP = re.compile(r"nranks (\d+) cudaDev .* Init START")
GRAPH = re.compile(r"NCCL INFO Pattern \d+, .*, type (\w+)/(\w+)")
NVLS_CHANNELS = re.compile(r" (\d+) nvls channels")


def transports_of(log: str, world: int | None = None) -> dict[str, Any]:
    """The transports in one rank's log, as the fields of an event.

    pairs: {"0>1": {"via": ["P2P/CUMEM"], "channels": 24}}; nics: lines that list the network's devices; devices: {"IB": {"0": "mlx5_0:1/IB"}};
    graph: kinds of path inside a node that NCCL planned with (NVL, PIX, PXB, PHB, SYS); nvls: NVLink SHARP in use. A smaller group has rank numbers of its own,
    so the lines of a thread are left out after it started a group whose size is not `world`.
    """
    found: dict[str, Any] = {"pairs": {}, "nics": [], "devices": {}, "nvls": None}
    graphs: list[str] = []
    sizes: dict[tuple[str, str], int] = {}  # of the latest group that each thread started
    for line in log.splitlines():
        begun = OTHER_GROUP.search(line)
        if begun:
            sizes[thread_of(line)] = int(begun.group(1))
        if " via " in line and is_of_all(line, sizes, world):
            _add_pair(found["pairs"], TRANSPORT.search(line))
        elif " : Using [" in line:
            _add_devices(found, NET_DEVICES.search(line))
        elif "Pattern" in line:
            graph = GRAPH.search(line)
            if graph and is_of_all(line, sizes, world) and graph.group(1) not in graphs:
                graphs.append(graph.group(1))
        elif "nvls channels" in line:
            channels = NVLS_CHANNELS.search(line)
            found["nvls"] = bool(found["nvls"]) or (channels is not None and int(channels.group(1)) > 0)
    if found["nvls"] is None:  # for releases that do not log a count
        found["nvls"] = "NVLS multicast support is available" in log
    return dict(found, graph=graphs)


def thread_of(line: str) -> tuple[str, str]:
    """(process, thread) that logged a line; ("", "") where the line does not name them."""
    found = THREAD.search(line)
    return (found.group(1), found.group(2)) if found else ("", "")


def is_of_all(line: str, sizes: dict[tuple[str, str], int], world: int | None) -> bool:
    """Whether a line concerns the group of all ranks. A thread that started no group works for the first thread of its process."""
    process, thread = thread_of(line)
    size = sizes.get((process, thread), sizes.get((process, process)))
    return world is None or size is None or size == world


def _add_pair(pairs: dict[str, dict[str, Any]], found: re.Match[str] | None) -> None:
    if found:
        row = pairs.setdefault("%s>%s" % (found.group(1), found.group(2)), {"via": [], "channels": 0})
        row["channels"] += 1
        way = found.group(4).strip()[:120]
        if way not in row["via"] and len(row["via"]) < 16:
            row["via"].append(way)


def _add_devices(found: dict[str, Any], used: re.Match[str] | None) -> None:
    if used:
        text = used.group(2)[:200]
        if text not in found["nics"]:
            found["nics"].append(text)
        found["devices"].setdefault(used.group(1), {}).update(NET_DEVICE.findall(used.group(2)))


# watched.py: Processes that an agent monitors: each in its own session, with a pipe for events, and ended together with the agent -------------------


class Watched:
    """A process as its agent sees it. events: pipe that it writes events to; buffer: an incomplete line; output: its last lines; code: its exit code."""

    def __init__(self, process: subprocess.Popen[bytes], events: int) -> None:
        self.process, self.events = process, events
        self.code: int | None = None
        self.buffer = b""
        self.output: list[str] = []


def start_process(argv: list[str], environment: Mapping[str, str], begin: Callable[[], None]) -> tuple[subprocess.Popen[bytes], int]:
    """(the process, the pipe of its events). argv: `--events` and the pipe's other end are added. begin: runs in the child before exec."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*argv, "--events", str(writer)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=[writer], start_new_session=True, preexec_fn=begin,
        )  # fmt: skip
    finally:
        os.close(writer)
    return process, reader


def listen_to(child: Watched, selector: selectors.BaseSelector) -> None:
    """Registers the pipes, so that the selector reports events and output of the processes."""
    assert child.process.stdout is not None
    for descriptor in (child.events, child.process.stdout.fileno()):
        os.set_blocking(descriptor, False)
    selector.register(child.events, selectors.EVENT_READ, child)
    selector.register(child.process.stdout, selectors.EVENT_READ, child)


def add_output(child: Watched, piece: bytes) -> None:
    """The last lines that a process printed."""
    child.output = (child.output + piece.decode("utf-8", "replace").splitlines())[-40:]


def reap(children: Iterable[Watched]) -> None:
    """Records the processes that have ended."""
    for child in children:
        if child.code is None and child.process.poll() is not None:
            child.code = child.process.returncode


def end_politely(ask: Callable[[int], None]) -> None:
    """Signals only request a stop from now on. The launcher's death ends no process, and orphans of children become children of this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: ask(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are ended with the other processes


# evidence.py: The evidence that the agent collects when its ranks fail or hang, all within 20 s of the stall ----------------------------------------

NOWHERE = {"phase": "environment", "step": "start the interpreter", "seq": 0, "done": 0, "began": 0, "until": 0, "phase_until": 0}


def collect_evidence(agent: Any, kind: str) -> None:
    """For every rank: its position, the call that it waits in, its stacks, its flight recording; for the node: log and counters."""
    alive = [child for child in agent.children if child.code is None]
    states = {child.rank: process_state(child.process.pid) for child in alive}
    stands = {child.rank: child.board.read() if child.board else None for child in agent.children}
    for child in alive:
        with contextlib.suppress(OSError):
            if child.board:
                child.board.flag(Board.ASKED, 1)
                os.kill(child.process.pid, signal.SIGUSR1)
    before, second = agent.first_links(), None
    with contextlib.suppress(OSError):
        second = NvmlQuestion()
    asked = time.monotonic()
    able = [child for child in alive if child.board and states[child.rank][0] not in ("T", "t")]
    while time.monotonic() - asked < EVIDENCE_S and not all(child.board.flag(Board.ANSWERED) or child.code is not None for child in able):
        agent.listen(POLL_S)
        reap(agent.children)
    spy = find_spy(agent.plan.get("python"))
    native = native_stacks(spy, [child.process.pid for child in alive]) if spy else {}
    for child in alive:
        # A process is in state D for a moment while it reads a page; only one that stays in it hangs in the kernel.
        state = states[child.rank]
        state = process_state(child.process.pid) if state[0] == "D" else state
        report_stall(agent, child, kind, state, stands[child.rank], native.get(child.process.pid))
    after = second.answer(NVML_AGAIN_S) if second else before
    log, net = new_kernel_lines(agent.kernel_log), net_counters()
    moved = changed(agent.counters, net)
    links = changed(before["counters"], after["counters"]) if before["counters"] else {}
    peers = {**peers_of(moved, net), **peers_of(links, after["counters"])}
    counted_s = round(time.monotonic() - agent.counted_since, 1)
    agent.event("evidence", kernel_log=log, counters=moved, nvlink=links, nvml=after["problem"], peers=peers, counted_s=counted_s)


def report_stall(agent: Any, child: Any, kind: str, state: tuple[str, str], stand: dict[str, Any] | None, native: str | None) -> None:
    """The evidence of one living rank as an event."""
    now = time.monotonic()
    late = 0 < min(stand["until"], stand["phase_until"]) < now if stand else kind == "stalled"
    began = stand["began"] if stand else child.started
    stand = stand or NOWHERE
    reason = "stopped" if state[0] in ("T", "t") else "deadline" if late else "witness"
    fields = {
        "rank": child.rank, "pid": child.process.pid, "reason": reason, "trouble": kind, "state": state[0], "wchan": state[1], "phase": stand["phase"],
        "step": stand["step"], "seq": stand["seq"], "done": stand["done"], "waited_s": round(now - began, 1) if began else None,
        "stack": read_tail(os.path.join(agent.folder, "stacks-%d" % child.rank)), "output": child.output[-8:],
        "flight_recorder": read_encoded(recording_path(agent.folder, child.rank)), "native_stack": native,
    }  # fmt: skip
    agent.event("stall", **fields)


def report_exits(agent: Any) -> None:
    """Reports how each rank ended by itself, before any process is killed."""
    for child in agent.children:
        if child.code is not None and child.code != 0:
            stand = child.board.read() if child.board else {"phase": "environment", "step": "", "seq": 0, "done": 0}
            fields = {key: stand[key] for key in ("phase", "step", "seq", "done")}
            stack = read_tail(os.path.join(agent.folder, "stacks-%d" % child.rank), 4000)
            agent.event("exit", rank=child.rank, code=child.code, signal=signal_name(child.code), output=child.output[-12:], stack=stack, **fields)


def report_transports(agent: Any) -> None:
    """Which transport each pair of ranks uses, from NCCL's log, and from NVML for GPUs that NVLink connects."""
    links = agent.first_links()
    if links["pairs"] is not None:
        agent.event("nvlink", pairs=links["pairs"], links=links["links"])
    for child in agent.children:
        log = read_nccl_log(agent.folder, child.rank)
        if log:
            warnings = [line[:300] for line in log.splitlines() if " NCCL WARN " in line][-8:]
            agent.event("transports", rank=child.rank, warnings=warnings, **transports_of(log, agent.plan["world_size"]))


# leftovers.py: Removes folders of runs whose launcher or agent was killed before it could do so -----------------------------------------------------

PREFIX = "unhang-smoke-"
RECORD = "keep-until"
MARGIN_S = 3600.0  # after a run's own deadline: no launcher waits that long for results
UNTOLD_S = 86400.0  # for a folder whose agent ended before it recorded a time


def hold_folder(folder: str, seconds: float) -> None:
    """Keeps this folder for this time, and as long as this process runs: the descriptor stays open on purpose, and no rank inherits it."""
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH | fcntl.LOCK_NB)
    with contextlib.suppress(OSError), open(os.path.join(folder, RECORD), "w", encoding="ascii") as target:
        target.write("%d\n" % (time.time() + seconds + MARGIN_S))


def clear_leftovers(now: float) -> list[str]:
    """Removes this user's folders that are past their time, and returns their names. now: seconds since the epoch."""
    parent, cleared = tempfile.gettempdir(), []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(parent)):
            folder = os.path.join(parent, name)
            if name.startswith(PREFIX) and is_left_over(folder, now):
                shutil.rmtree(folder, ignore_errors=True)
                cleared.append(name)
    return cleared


def is_left_over(folder: str, now: float) -> bool:
    """Whether the folder belongs to this user, is past its time, and is not locked."""
    try:
        known = os.lstat(folder)
        if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid() or now < wanted_until(folder, known):
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    return True


def wanted_until(folder: str, known: os.stat_result) -> float:
    """Seconds since the epoch. Raises OSError, ValueError for an empty record."""
    try:
        with open(os.path.join(folder, RECORD), encoding="ascii") as source:
            return float(source.read(64))
    except FileNotFoundError:
        return known.st_mtime + UNTOLD_S


# mapped.py: Which libraries a process has mapped, and its settings ----------------------------------------------------------------------------------

SHOWN_VARIABLES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LD_PRELOAD", "LD_LIBRARY_PATH", "UCX_", "FI_")


def mapped_libraries(prefix: str, maps: str = "/proc/self/maps") -> list[str]:
    """Paths of mapped files whose name begins with `prefix`, in the order of the map."""
    found = []
    with contextlib.suppress(OSError), open(maps, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[-1]
            if path.startswith("/") and os.path.basename(path).startswith(prefix) and path not in found:
                found.append(path)
    return found


def build_id(path: str) -> str | None:
    """The GNU build id of a 64-bit little-endian ELF file in hex, or None."""
    try:
        with open(path, "rb") as library:
            head = library.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return None
            table, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            library.seek(table)
            rows = library.read(size * min(count, 128))
            for at in range(0, len(rows) - 55, size):
                kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", rows, at)
                if kind == 4 and length <= 65536:  # PT_NOTE
                    library.seek(offset)
                    found = _gnu_note(library.read(length))
                    if found:
                        return found
    except (OSError, struct.error):
        pass
    return None


def _gnu_note(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + length].hex()
        at = content + (length + 3 & ~3)
    return None


def nccl_in_process() -> list[dict[str, Any]]:
    """[{path, version, build_id}] of every libnccl that is really mapped; the version comes from the library itself."""
    answers = []
    for path in mapped_libraries("libnccl.so"):
        number = ctypes.c_int(0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
        answers.append({"path": path, "version": nccl_version(number.value), "build_id": build_id(path)})
    return answers


def nccl_version(number: int) -> str | None:
    """22809 -> 2.28.9; 2708 -> 2.7.8 (the older numbering); None for 0."""
    if not number:
        return None
    major = 10000 if number >= 10000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def shown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that control how ranks communicate and which devices they see."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(SHOWN_VARIABLES)}


def nccl_conf_lines() -> list[list[str]]:
    """[path, line] of NCCL's own configuration files, where they are readable."""
    rows = []
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf"), os.environ.get("NCCL_CONF_FILE") or ""):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as lines:
            rows += [[path, line.strip()[:200]] for line in list(lines)[:100] if line.strip() and not line.lstrip().startswith("#")]
    return rows


def boot_id() -> str:
    """An id of the machine that does not depend on its name; two containers of one machine have the same."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return socket.gethostname()


def read_driver() -> str | None:
    """The loaded NVIDIA driver's version, or None."""
    with contextlib.suppress(OSError), open(rooted("/sys/module/nvidia/version"), encoding="ascii") as source:
        return source.read().strip()
    return None


# agent.py: The node's agent: starts its ranks, monitors them from outside, and ends them in every case ----------------------------------------------


class Child(Watched):
    """One rank as its agent sees it."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes], board: Board | None, events: int) -> None:
        super().__init__(process, events)
        self.rank, self.board, self.started = rank, board, time.monotonic()
        self.stopped_since: float | None = None


class Agent:
    """Starts the ranks of this node, passes their events on, monitors them from outside, collects evidence, and ends them in every case."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.folder = tempfile.mkdtemp(prefix="unhang-smoke-")
        self.host = plan.get("host") or socket.gethostname()
        self.children: list[Child] = []
        self.selector = selectors.DefaultSelector()
        limit_s = plan.get("total_timeout_s") or 600
        self.until = time.monotonic() + limit_s
        own = os.path.dirname(os.path.abspath(__file__))
        for folder in [self.folder] + ([own] if os.path.basename(own).startswith(PREFIX) else []):
            hold_folder(folder, limit_s)
        self.stop: str | None = None
        self.asked = False
        self.nvml: NvmlQuestion | None = None
        self.links: dict[str, Any] | None = None

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this node."""
        emit(1, kind, host=self.host, **fields)

    def start(self) -> None:
        """All ranks, each in a session of its own."""
        self.kernel_log, self.counters, self.counted_since = open_kernel_log(), net_counters(), time.monotonic()
        with contextlib.suppress(OSError):
            self.nvml = NvmlQuestion()
        for local_rank in range(self.plan["nproc"]):
            self.children.append(self.start_rank(local_rank))
        if self.plan.get("watch_stdin"):
            os.set_blocking(0, False)
            self.selector.register(0, selectors.EVENT_READ, "stdin")

    def start_rank(self, local_rank: int) -> Child:
        """One rank with its pipe for events and its own settings."""
        rank = self.plan["rank_offset"] + local_rank
        environment = rank_environment(self.plan, rank, local_rank, self.folder, os.environ)
        argv = [self.plan.get("python") or sys.executable, "-u", os.path.abspath(__file__), "rank", "--folder", self.folder]
        process, events = start_process(argv, environment, begin_rank)
        child = Child(rank, process, None, events)
        listen_to(child, self.selector)
        self.event("rank_begin", rank=rank, pid=process.pid, local_rank=local_rank)
        return child

    def listen(self, wait_s: float) -> bool:
        """Passes on the ranks' output, for at most wait_s. Returns whether there was any."""
        ready = self.selector.select(wait_s)
        for key, _ in ready:
            if key.data == "stdin":
                self.hear_stdin()
                continue
            try:
                piece = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if not piece:
                self.selector.unregister(key.fileobj)
            elif key.fd == key.data.events:
                self.pass_on(key.data, piece)
            else:
                add_output(key.data, piece)
        return bool(ready)

    def drain(self) -> None:
        """Reads what ranks printed before they ended, so that a rank that reported why it ends does not count as ended without a reason."""
        for _ in range(MOST_READS):
            if not self.listen(0):
                return

    def pass_on(self, child: Child, piece: bytes) -> None:
        """Passes on complete lines of events at once."""
        *lines, child.buffer = (child.buffer + piece).split(b"\n")
        for line in lines:
            with contextlib.suppress(OSError):
                os.write(1, line[:LINE_BYTES] + b"\n")
        child.buffer = child.buffer[-LINE_BYTES:]

    def hear_stdin(self) -> None:
        """Reads from the launcher. The end of its stream means that the launcher is gone."""
        try:
            output = os.read(0, 4096)
        except BlockingIOError:
            return
        if not output:
            self.selector.unregister(0)
            self.stop = self.stop or "the launcher is gone"
        elif b"evidence" in output:
            self.asked = True  # another node is in trouble: the evidence of this node is needed too, and need not wait for a deadline

    def trouble(self) -> tuple[str, list[Child]] | None:
        """Why to stop monitoring before the ranks end: (kind, children in trouble), or None."""
        now = time.monotonic()
        if self.stop:
            return "stopped", []
        if now > self.until:
            return "deadline", [child for child in self.children if child.code is None]
        dead = [child for child in self.children if child.code not in (None, 0)]
        if dead:
            return "died", dead
        stuck = [child for child in self.children if child.code is None and self.is_stuck(child, now)]
        if stuck:
            return "stalled", stuck
        return ("asked", []) if self.asked else None

    def is_stuck(self, child: Child, now: float) -> bool:
        """Whether the child is past its deadline, or stopped by a signal."""
        if child.board is None:
            path = os.path.join(self.folder, "board-%d" % child.rank)
            if os.path.exists(path) and os.path.getsize(path) == Board.SIZE:
                child.board = Board(path)
        stopped = process_state(child.process.pid)[0] in ("T", "t")
        child.stopped_since = (child.stopped_since or now) if stopped else None
        if child.stopped_since is not None and now - child.stopped_since > STOPPED_S:
            return True
        if child.board is None:
            return now - child.started > (self.plan.get("start_timeout_s") or START_S)
        state = child.board.read()
        return bool(0 < min(state["until"], state["phase_until"]) < now)

    def watch(self) -> tuple[str, list[Child]] | None:
        """Waits until all ranks ended, or there is trouble. Returns the trouble or None."""
        while any(child.code is None for child in self.children):
            self.listen(POLL_S)
            reap(self.children)
            found = self.trouble()
            if found:
                return found
        return None

    def listen_on(self, seconds: float) -> None:
        """Gives the ranks time for more output, because some have only begun to notice the fault."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(child.code is None for child in self.children):
            self.listen(POLL_S)
            reap(self.children)

    def first_links(self) -> dict[str, Any]:
        """Reports what NVML gave at the start."""
        if self.nvml is not None:
            self.links, self.nvml = self.nvml.answer(NVML_S), None
        return self.links or nothing_read()

    def end_ranks(self) -> None:
        """Ends every rank and all processes that it started. Names those that survive SIGKILL: the node is unfit."""
        for child in self.children:
            end_session(child.process.pid)
        until = time.monotonic() + 5
        while time.monotonic() < until and any(child.code is None for child in self.children):
            self.listen(0.02)
            reap(self.children)
        for child in self.children:
            if child.code is None:
                state, wchan = process_state(child.process.pid)
                self.event("unkillable", rank=child.rank, pid=child.process.pid, state=state, wchan=wchan)
        self.listen(0)

    def work(self) -> int:
        """Does all of the agent's work; exit code 0 if all ranks ended well."""
        try:
            self.event("node_begin", nproc=self.plan["nproc"], python=self.plan.get("python") or sys.executable, pid=os.getpid(), machine=boot_id())
            self.start()
            found = self.watch()
            if found:
                if found[0] == "died":
                    self.listen_on(GRACE_S)
                self.drain()
                report_exits(self)
                if found[0] != "stopped" and any(child.code is None for child in self.children):
                    collect_evidence(self, found[0])
            report_transports(self)
            return 1 if found else 0
        except OSError as problem:
            self.event("node_failed", message="%s: %s" % (problem.filename or "", problem.strerror or problem))
            return 1
        finally:
            self.end_ranks()
            self.event("node_end", reason=self.stop, codes={child.rank: child.code for child in self.children})
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                if self.plan.get("remove_self"):
                    shutil.rmtree(os.path.dirname(os.path.abspath(__file__)))


def begin_rank() -> None:
    """Runs in a rank before exec. SIGUSR1 requests stacks; until its handler is installed, the signal must not end the process."""
    die_with_parent()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def rank_environment(plan: dict[str, Any], rank: int, local_rank: int, folder: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The rank's environment: torchrun's variables, the plan's settings for all ranks and for this rank. The caller's own settings stay in force."""
    environment = dict(inherited)
    environment.update({
        "RANK": str(rank), "WORLD_SIZE": str(plan["world_size"]), "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(plan["nproc"]),
        "MASTER_ADDR": str(plan["master_address"]), "MASTER_PORT": str(plan["master_port"]), "UNHANG_SMOKE_PLAN": json.dumps(dict(plan, watched=True)),
        "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": inherited.get("PYTHONWARNINGS", "ignore"), "OMP_NUM_THREADS": inherited.get("OMP_NUM_THREADS", "1"),
    })  # fmt: skip
    for name, value in (
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "100"), ("TORCH_FR_BUFFER_SIZE", "100"), ("TORCH_CPP_LOG_LEVEL", "ERROR"), ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH"), ("NCCL_DEBUG_FILE", os.path.join(folder, "nccl-%d.log" % rank)),
    ):  # fmt: skip
        environment.setdefault(name, value)
    if plan.get("gloo_interface"):
        environment.setdefault("GLOO_SOCKET_IFNAME", plan["gloo_interface"])
    environment.update(plan.get("environment") or {})
    environment.update((plan.get("rank_environment") or {}).get(str(rank)) or {})
    return {name: str(value) for name, value in environment.items() if value is not None}


def run_agent(plan: dict[str, Any]) -> int:
    """Runs the agent with signal handlers installed: SIGTERM ends the ranks too."""
    agent = Agent(plan)
    end_politely(lambda _: setattr(agent, "stop", agent.stop or "a signal"))
    return agent.work()


# pattern.py: Test data whose result is exactly known ------------------------------------------------------------------------------------------------


def pattern(torch: Any, device: Any, count: int, source: int, seed: int, bound: int, dtype: Any, start: int = 0) -> Any:
    """`count` whole numbers in [-bound, bound], scrambled from their place, the source rank and the seed: any rank can compute what any other rank sent.

    Whole numbers up to 256 are exact in bfloat16, and so are their sums: a result is either right or wrong, never approximately right.
    """
    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    mixed = (place + source * 1_000_003 + seed * 7_919) * 6364136223846793005 + 1442695040888963407
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return ((mixed >> 33).remainder(2 * bound + 1) - bound).to(dtype)


def reduced_pattern(torch: Any, run: Run, count: int, seed: int, dtype: Any, start: int = 0) -> Any:
    """The expected result of all_reduce: the sum over the inputs of all ranks."""
    total = torch.zeros(count, dtype=torch.int64, device=run.device)
    for source in range(run.world):
        total += summand(torch, run, count, source, seed, torch.int64, start)
    return total.to(dtype)


def summand(torch: Any, run: Run, count: int, source: int, seed: int, dtype: Any, start: int = 0) -> Any:
    """One rank's input of a sum. With more than 256 ranks only every k-th rank has a value other than zero at a place, so that the sum stays exact."""
    values = pattern(torch, run.device, count, source, seed, max(1, 256 // run.world), dtype, start)
    share = -(-run.world // 256)
    if share > 1:
        place = torch.arange(start, start + count, dtype=torch.int64, device=run.device)
        values = values * ((place + source) % share == 0).to(dtype)
    return values


def wrong_elements(torch: Any, found: Any, expected: Any) -> int:
    """How many elements differ; NaN differs from everything."""
    return int((found != expected).sum())


# operations.py: Phases broadcast to agreement: compares the result of each operation with the exactly known one -------------------------------------


def op_broadcast(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Broadcast: every rank receives the last rank's data."""
    torch, source = run.torch, run.world - 1
    held = pattern(torch, run.device, count, run.rank, seed, 256, dtype)
    expected = pattern(torch, run.device, count, source, seed, 256, dtype)
    return held, lambda: run.dist.broadcast(held, source), lambda: [(source, held, expected)]


def op_all_reduce(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """all_reduce: the sum over all ranks."""
    held = summand(run.torch, run, count, run.rank, seed, dtype)
    return held, lambda: run.dist.all_reduce(held), lambda: [(None, held, reduced_pattern(run.torch, run, count, seed, dtype))]


def op_all_gather(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """all_gather: each rank's part, at that rank's place."""
    torch = run.torch
    held = pattern(torch, run.device, count, run.rank, seed, 256, dtype)
    whole = torch.zeros(count * run.world, dtype=dtype, device=run.device)

    def parts() -> Iterable[tuple[int | None, Any, Any]]:
        for source, part in enumerate(whole.split(count)):
            yield source, part, pattern(torch, run.device, count, source, seed, 256, dtype)

    return held, lambda: gather_whole(run, whole, held), parts


def op_reduce_scatter(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """reduce_scatter: this rank's part of the sum."""
    held = summand(run.torch, run, count * run.world, run.rank, seed, dtype)
    part = run.torch.zeros(count, dtype=dtype, device=run.device)

    def parts() -> Iterable[tuple[int | None, Any, Any]]:
        return [(None, part, reduced_pattern(run.torch, run, count, seed, dtype, start=count * run.rank))]

    return held, lambda: scatter_sum(run, part, held), parts


def op_all_to_all(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """all_to_all: the part of each rank that is meant for this rank."""
    torch = run.torch
    held = torch.cat([pattern(torch, run.device, count, run.rank * run.world + target, seed, 256, dtype) for target in range(run.world)])
    whole = torch.zeros_like(held)

    def parts() -> Iterable[tuple[int | None, Any, Any]]:
        for source, part in enumerate(whole.split(count)):
            yield source, part, pattern(torch, run.device, count, source * run.world + run.rank, seed, 256, dtype)

    return held, lambda: run.dist.all_to_all_single(whole, held), parts


def op_send_recv(run: Run, count: int, dtype: Any, seed: int) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """A ring: sends to the next rank and receives from the previous one."""
    torch, dist = run.torch, run.dist
    held = pattern(torch, run.device, count, run.rank, seed, 256, dtype)
    if run.world == 1:
        return held, lambda: None, list
    came = torch.zeros_like(held)
    after, before = (run.rank + 1) % run.world, (run.rank - 1) % run.world

    def call() -> None:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, held, after), dist.P2POp(dist.irecv, came, before)]):
            work.wait()

    return held, call, lambda: [(before, came, pattern(torch, run.device, count, before, seed, 256, dtype))]


def gather_whole(run: Run, whole: Any, part: Any, **options: Any) -> Any:
    """all_gather into one tensor, ordered by rank."""
    return run.dist.all_gather_into_tensor(whole, part, **options)


def scatter_sum(run: Run, part: Any, whole: Any, **options: Any) -> Any:
    """reduce_scatter from one tensor."""
    return run.dist.reduce_scatter_tensor(part, whole, **options)


OPERATIONS = {
    "broadcast": op_broadcast, "all_reduce": op_all_reduce, "all_gather": op_all_gather, "reduce_scatter": op_reduce_scatter,
    "all_to_all": op_all_to_all, "send_recv": op_send_recv,
}  # fmt: skip


def phase_operation(run: Run) -> None:
    """Runs one operation on fresh data, in float32 and bfloat16, and compares it with the exactly known result."""
    torch, operation = run.torch, OPERATIONS[run.phase]
    count = max(1024, min(1 << 18, (1 << 24) // run.world, (run.plan.get("max_bytes") or 1 << 30) // 4 // run.world))
    total, senders = 0, {}
    for number, dtype in enumerate((torch.float32, torch.bfloat16)):
        seed = run.seed + 101 * number + 7 * list(OPERATIONS).index(run.phase)
        held, call, parts = operation(run, count, dtype, seed)
        if any(one["fault"] == "corrupt" and one["rank"] == run.rank and one.get("phase", run.phase) == run.phase for one in run.plan.get("drills") or ()):
            held[count // 3] = 1 - held[count // 3]  # one element; for a whole number x, 1 - x is never x
        name = str(dtype).replace("torch.", "")
        began = time.perf_counter()
        run.collective("%s %s" % (run.phase, name), call)
        time_us = (time.perf_counter() - began) * 1e6
        wrong_from = {}
        for source, found, expected in parts():
            wrong = wrong_elements(torch, found, expected)
            if wrong:
                wrong_from["unknown" if source is None else source] = wrong
                senders["unknown" if source is None else source] = wrong
        wrong = sum(wrong_from.values())
        total += wrong
        size = count * dtype_bytes(dtype) * (run.world if run.phase in SPREAD else 1)
        about = {"op": run.phase, "dtype": name, "size_bytes": size, "measures": "correctness"}
        run.event("collective", time_us=round(time_us, 1), wrong=wrong, wrong_from=wrong_from, **about)
    if total:
        run.store.add("wrong", total)
        raise Failed("expected the exactly known result of %s, found %d wrong elements" % (run.phase, total), wrong=total, wrong_from=senders)


SPREAD = ("all_gather", "reduce_scatter", "all_to_all")  # their size is that of the whole result, as nccl-tests counts


def dtype_bytes(dtype: Any) -> int:
    """Bytes of an element."""
    return 2 if "16" in str(dtype) else 4


def phase_agreement(run: Run) -> None:
    """Whether any rank found wrong data: all ranks get the same answer from the store, and continue or end together."""
    meet(run, "operations")
    wrong = run.store.add("wrong", 0)
    if wrong:
        raise Failed("expected the exactly known results on all ranks, found %d wrong elements in all" % wrong)


# bandwidth.py: Phases pace and bandwidth: the speed of each rank alone, and of all of them together -------------------------------------------------


def phase_pace(run: Run) -> dict[str, Any]:
    """Measures each rank's own work while all others do the same. It shows a slow rank; a collective hides it, because all ranks leave it together."""
    torch = run.torch
    size = 4096 if run.device.type == "cuda" else 192
    left = torch.randn(size, size, device=run.device)
    repeats = 8 if run.device.type == "cuda" else 4
    times = []
    run.collective("begin together", lambda: run.dist.all_reduce(torch.ones(1, device=run.device)))
    for _ in range(9):
        run.step("work alone")
        began = time.perf_counter()
        for _ in range(repeats):
            left = (left @ left).clamp_(-1, 1)
        if drilled(run, "slow"):
            time.sleep(0.25)
        run.await_device()
        times.append((time.perf_counter() - began) * 1e6)
    # The third fastest of nine: the speed of the rank itself, without the time that another process on the same core took from it.
    return {"pace_us": round(sorted(times)[2], 1)}


def bandwidth_call(run: Run, operation: str, size_bytes: int) -> tuple[Callable[[], Any], int]:
    """(call, real size in bytes) of a float32 collective whose size is counted as nccl-tests does."""
    torch, dist = run.torch, run.dist
    count = max(1, size_bytes // 4 // run.world) * run.world
    whole = torch.zeros(count, device=run.device)
    part = torch.zeros(count // run.world, device=run.device)
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole), "broadcast": lambda: dist.broadcast(whole, 0), "all_gather": lambda: gather_whole(run, whole, part),
        "reduce_scatter": lambda: scatter_sum(run, part, whole),
    }  # fmt: skip
    if operation == "all_to_all":
        came = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(came, whole), count * 4
    return calls[operation], count * 4


def timed(run: Run, call: Callable[[], Any], iterations: int) -> float:
    """Mean time (us) of a call among `iterations` calls queued on the device one after the other, by the device's own clock."""
    torch = run.torch
    if run.device.type != "cuda":
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        return (time.perf_counter() - began) * 1e6 / iterations
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(iterations):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / iterations


def phase_bandwidth(run: Run) -> None:
    """Time of each collective by size: warm-up, then the median of several batches."""
    gpu = run.device.type == "cuda"
    sizes = run.plan.get("bandwidth_bytes") or ([1 << 20, 32 << 20, 256 << 20, 1 << 30] if gpu else [64 << 10, 1 << 20, 8 << 20])
    largest = min(run.plan.get("max_bytes") or 1 << 62, run.free_bytes() // 4)
    agreed = run.torch.tensor([largest], dtype=run.torch.int64, device=run.device)
    run.collective("agree on the largest size", lambda: run.dist.all_reduce(agreed, op=run.dist.ReduceOp.MIN))
    for operation in run.plan.get("bandwidth_ops") or ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"):
        byte_s = None
        for size in sorted(one for one in sizes if one <= int(agreed)):
            byte_s = measure(run, operation, size, byte_s)


def measure(run: Run, operation: str, size: int, byte_s: float | None) -> float:
    """Measures one operation at one size, reported as an event. byte_s: seconds per byte at the size before, for an early deadline. Returns the new one."""
    gpu = run.device.type == "cuda"
    call, real = bandwidth_call(run, operation, size)
    name, warm = "%s of %d bytes" % (operation, real), 5 if gpu else 1
    run.collective("warm up " + name, lambda: [call() for _ in range(warm)], size_bytes=real * warm, expected_s=byte_s and byte_s * real * warm)
    once = run.torch.tensor([timed(run, call, 1)], dtype=run.torch.float64, device=run.device)
    run.collective("agree on iterations", lambda: run.dist.all_reduce(once, op=run.dist.ReduceOp.MAX))
    once_us = max(1.0, float(once))
    iterations = int(min(20, max(2, (100e3 if gpu else 30e3) / once_us)))
    batches = []
    for _ in range(5 if gpu else 3):
        batches.append(run.collective("time " + name, lambda: timed(run, call, iterations), expected_s=once_us * 1e-6 * iterations))
    run.event("collective", op=operation, dtype="float32", size_bytes=real, time_us=round(statistics.median(batches), 2), wrong=None,
              iterations=iterations, batches=len(batches), measures="bandwidth")  # fmt: skip
    return once_us * 1e-6 / real


# binding.py: Phase binding: which device each rank uses, and whether two ranks use the same one -----------------------------------------------------


def device_index(run: Run) -> int:
    """The GPU that this rank uses, among those that it sees."""
    return 0 if drilled(run, "wrong_device") else run.local_rank


def phase_binding(run: Run) -> dict[str, Any]:
    """Which device this rank uses."""
    torch = run.torch
    if run.backend != "nccl":
        index = device_index(run)
        run.device = torch.device("cpu")
        device = {"index": index, "uuid": "cpu-%s-%d" % (run.host, index), "model": "cpu", "simulated": True}
    else:
        count = torch.cuda.device_count()
        index = device_index(run)
        if index >= count:
            raise Failed(
                "expected a GPU for local rank %d, found %d visible; CUDA_VISIBLE_DEVICES=%s" % (index, count, os.environ.get("CUDA_VISIBLE_DEVICES")),
                variable="CUDA_VISIBLE_DEVICES",
            )
        torch.cuda.set_device(index)
        run.device = torch.device("cuda", index)
        about = torch.cuda.get_device_properties(index)
        device = {
            "index": index, "uuid": "GPU-%s" % getattr(about, "uuid", "unknown-%d" % index), "model": about.name, "memory_bytes": about.total_memory,
            "architecture": "sm_%d%d" % (about.major, about.minor),
        }  # fmt: skip
    device["local_rank"] = run.local_rank
    device["local_rank_set"] = "LOCAL_RANK" in os.environ
    run.facts["device"] = device
    return {"device": device}


def binding_faults(everyone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """[{ranks, device, blamed, variable}] of devices that more than one rank of a machine uses. blamed: ranks whose device does not match their local rank."""
    takers: dict[tuple[str, str], list[int]] = {}
    for rank, facts in enumerate(everyone):
        takers.setdefault((facts["machine"], facts["device"]["uuid"]), []).append(rank)
    faults = []
    for (_, uuid), ranks in sorted(takers.items()):
        if len(ranks) > 1:
            misplaced = [rank for rank in ranks if everyone[rank]["device"]["index"] != everyone[rank]["device"]["local_rank"]]
            unset = [rank for rank in ranks if not everyone[rank]["device"]["local_rank_set"]]
            visible = everyone[ranks[-1]]["variables"].get("CUDA_VISIBLE_DEVICES")
            otherwise = "the program chose the device" if visible is None else "CUDA_VISIBLE_DEVICES=%s" % visible
            variable = "LOCAL_RANK is not set" if unset else otherwise
            faults.append({"ranks": ranks, "device": uuid, "blamed": misplaced or ranks[1:], "variable": variable})
    return faults


# consistency.py: Phase consistency: compares what must be the same on all ranks before their first collective ---------------------------------------

# What must be the same on all ranks before they meet in a collective: where these differ, NCCL communicates in another way or not at all.
MUST_AGREE = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET",
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_COLLNET_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_CROSS_NIC", "NCCL_MNNVL_ENABLE", "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_NET_GDR_LEVEL",
)  # fmt: skip


def agreeing_facts(facts: dict[str, Any]) -> dict[str, str]:
    """The facts of a rank that must be the same on all ranks, as {name: text}."""
    libraries = facts.get("nccl") or []
    values = {
        "backend": facts["backend"], "torch": facts["torch"], "CUDA of torch": facts["cuda"], "world size": facts["world"],
        "NCCL": ", ".join("%s (%s)" % (one["version"], (one["build_id"] or "no build id")[:12]) for one in libraries),
        "net plugin": ", ".join(os.path.basename(path) for path in facts.get("net_plugins") or []), "GPU model": facts["device"]["model"],
        "GPU architecture": facts["device"].get("architecture"), "GPUs of the node": node_gpus(facts.get("gpus") or []),
    }  # fmt: skip
    in_files = dict(line.split("=", 1) for _, line in facts.get("nccl_conf") or [] if "=" in line)
    for name in MUST_AGREE:
        values[name] = facts["variables"].get(name, in_files.get(name))
    return {name: "not set" if value is None or value == "" else str(value) for name, value in values.items()}


def node_gpus(models: list[str]) -> str:
    """8 x NVIDIA H200: the GPUs that the driver shows on a node, whichever of them its ranks use."""
    return ", ".join("%d x %s" % (models.count(model), model) for model in sorted(set(models)))


def differences(everyone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """[{name, values: {value: [ranks]}}] of facts that must be the same on all ranks and are not. everyone: facts by rank."""
    rows = []
    table = [agreeing_facts(facts) for facts in everyone]
    for name in table[0]:
        values: dict[str, list[int]] = {}
        for rank, facts in enumerate(table):
            values.setdefault(facts[name], []).append(rank)
        if len(values) > 1:
            rows.append({"name": name, "values": values})
    return rows


def phase_consistency(run: Run) -> dict[str, Any]:
    """Compares the ranks before the first collective. A difference that is found here would be a hang later."""
    limit_s = run.phase_until - time.monotonic()
    run.facts["net_plugins"] = mapped_libraries("libnccl-net")
    run.step("exchange facts over the store", limit_s)
    drill(run)
    if run.rank == 0:
        run.store.set("seed", str(run.plan.get("seed") or int.from_bytes(os.urandom(3), "big")))
    run.store.set("facts/%d" % run.rank, json.dumps(run.facts))
    wait_for(run, ["facts/%d" % rank for rank in range(run.world)], limit_s)
    run.seed = int(run.store.get("seed"))
    # Only rank 0 compares: with thousands of ranks, no other rank needs the answers of all.
    if run.rank == 0:
        everyone = [json.loads(run.store.get("facts/%d" % rank)) for rank in range(run.world)]
        run.store.set("compared", json.dumps({"differences": differences(everyone), "binding": binding_faults(everyone)}))
    wait_for(run, ["compared"], limit_s)
    compared = json.loads(run.store.get("compared"))
    if compared["binding"]:
        fault = compared["binding"][0]
        text = "expected one GPU for each rank of a machine, found ranks %s on %s; cause: %s"
        raise Failed(text % (short_list(fault["ranks"]), fault["device"], fault["variable"]), **compared)
    if compared["differences"]:
        first = compared["differences"][0]
        groups = "; ".join("%s on ranks %s" % (value, short_list(ranks)) for value, ranks in sorted(first["values"].items()))
        raise Failed("expected the same %s on all ranks, found %s" % (first["name"], groups), **compared)
    return {"seed": run.seed}


# context.py: Creates a CUDA context in a thread while torch is imported -----------------------------------------------------------------------------


def begin_context(index: int) -> threading.Thread:
    """Creates the context of GPU `index` in a thread that does not hold Python's lock. An error is not lost: torch meets it again and reports it."""
    maker = threading.Thread(target=retain_context, args=(index,), daemon=True)
    maker.start()
    return maker


def retain_context(index: int) -> bool:
    """Whether the GPU's primary context exists, which is the one that torch uses; it lives as long as the process."""
    # Drivers before CUDA 12.2 load every kernel of torch at once by default. torch sets this variable too, but too late for a context that exists already.
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return False
    return bool(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0)


# survey.py: Surveys a node for the launcher before ranks start there --------------------------------------------------------------------------------

LOOKS, LOOK_AGAIN_S, SMI_S = 3, 1.0, 15.0  # the driver takes a moment to forget a process that has ended; without persistence mode it takes seconds to start
MOST_USERS = 16
MPS = "nvidia-cuda-mps"  # its server is no job; the kernel keeps 15 characters of a name
STEP = re.compile(r"slurmstepd: \[([0-9]{1,12})(?:\.|\])")  # how slurmstepd names itself: one process for each step of a job on the node


def survey() -> dict[str, Any]:
    """What a launcher needs to know of this node, from files and ip(8): addresses, routes, GPUs, a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {
        "e": "survey", "hostname": socket.gethostname(), "interfaces": interfaces(), "routes": ip_json("route", "show", "table", "all"), "gpus": gpus(),
        "in_use": in_use(), "network": "%s-%d" % (boot_id(), os.stat("/proc/self/ns/net").st_ino),
        "slurm_node": os.environ.get("SLURMD_NODENAME"), "free_port": port, "python": sys.version.split()[0], "payload": VERSION,
    }  # fmt: skip


def ip_json(*arguments: Any) -> Any:
    """ip -j's answer, or None."""
    try:
        output = subprocess.run(["ip", "-j", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=False).stdout
        return json.loads(output)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def interfaces() -> list[dict[str, Any]]:
    """[{name, up, kind, addresses: ["10.0.0.1/24"]}]; kind: bridge, veth, loopback, wireguard ... or physical."""
    rows = []
    for row in ip_json("-d", "addr") or []:
        kind = (row.get("linkinfo") or {}).get("info_kind") or ("loopback" if row.get("link_type") == "loopback" else "physical")
        addresses = ["%s/%s" % (one.get("local"), one.get("prefixlen")) for one in row.get("addr_info") or []]
        rows.append({"name": row.get("ifname"), "up": "UP" in (row.get("flags") or []), "kind": kind, "addresses": addresses})
    return rows


def gpus() -> list[dict[str, Any]]:
    """[{model, uuid, pci_address}] from the driver's own files."""
    rows = []
    root = rooted("/proc/driver/nvidia/gpus")
    with contextlib.suppress(OSError):
        for address in sorted(os.listdir(root)):
            with contextlib.suppress(OSError), open(os.path.join(root, address, "information"), encoding="utf-8", errors="replace") as lines:
                pairs = dict(line.rstrip().split(":", 1) for line in lines if ":" in line)
                rows.append({"model": pairs.get("Model", "").strip(), "uuid": pairs.get("GPU UUID", "").strip(), "pci_address": address})
    return rows


def in_use() -> list[str] | None:
    """A line for each process on the GPUs and each job of Slurm with a step on this node; [] where Slurm itself has started this; None if it is not known."""
    if "SLURM_JOB_ID" in os.environ or not gpus():
        return []
    for look in range(LOOKS):
        time.sleep(LOOK_AGAIN_S if look else 0)
        pids = gpu_pids()
        if not pids:
            break
    lines = [line for pid in pids or () for line in described(pid)] + ["job %s of Slurm" % job for job in slurm_jobs()]
    return None if pids is None and not lines else lines[:MOST_USERS]


def gpu_pids() -> list[int] | None:
    """Processes that compute on a GPU, of all users; None if nvidia-smi could not say. One that hangs in the kernel is left to itself."""
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        asked = subprocess.Popen(query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        output = asked.communicate(timeout=SMI_S)[0]
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        asked.kill()
        return None
    words = output.decode("ascii", "replace").split()
    return sorted({int(word) for word in words if word.isdigit()} - {os.getpid()}) if asked.returncode == 0 else None


def described(pid: int) -> list[str]:
    """[process 4711 (python3) of alice]; [] for a daemon that is no job. A process of another container has a number alone."""
    command, user = "", ""
    with contextlib.suppress(OSError), open(rooted("/proc/%d/comm" % pid), encoding="utf-8", errors="replace") as source:
        command = source.read().strip()
    with contextlib.suppress(OSError, KeyError):
        user = pwd.getpwuid(os.stat(rooted("/proc/%d" % pid)).st_uid).pw_name
    if command.startswith(MPS):
        return []
    return ["process %d%s%s" % (pid, " (%s)" % command if command else "", " of %s" % user if user else "")]


def slurm_jobs() -> list[str]:
    """Ids of the jobs of Slurm with a step on this node, also those that use no GPU."""
    found = set()
    for pid in os.listdir(rooted("/proc")):
        with contextlib.suppress(OSError):
            if pid.isdigit() and same_machine(pid):
                with open(rooted("/proc/%s/cmdline" % pid), "rb") as source:
                    found.update(STEP.findall(source.read(256).decode("utf-8", "replace")))
    return sorted(found, key=int)


def same_machine(pid: str) -> bool:
    """False for a process of a container, whose slurmd is another node's."""
    try:
        return os.readlink(rooted("/proc/%s/ns/pid" % pid)) == os.readlink("/proc/self/ns/pid")
    except PermissionError:
        return True


# training.py: Phases ddp and fsdp: real steps of a small model --------------------------------------------------------------------------------------


def load_training(run: Run) -> None:
    """Loads what training needs before the ranks wait for each other: the first optimizer step imports modules for seconds on a busy machine."""
    if not {"ddp", "fsdp"} & set(run.phases):
        return
    torch = run.torch
    run.step("load what training needs", run.phase_until - time.monotonic())
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.distributed.fsdp")
    model = small_model(torch, checkpointed=True)
    model(torch.zeros(1, 256)).sum().backward()
    torch.optim.AdamW(model.parameters()).step()


def small_model(torch: Any, checkpointed: bool) -> Any:
    """Four small transformer blocks; with activation checkpointing, as FSDP users have it."""
    from torch.utils.checkpoint import checkpoint

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

        def inner(self, value: Any) -> Any:
            return value + self.down(torch.nn.functional.gelu(self.up(self.norm(value))))

        def forward(self, value: Any) -> Any:
            return checkpoint(self.inner, value, use_reentrant=False) if checkpointed else self.inner(value)

    torch.manual_seed(7)
    return torch.nn.Sequential(*[Block() for _ in range(4)])


def train(run: Run, model: Any, steps: int = 10) -> list[float]:
    """Real steps: forward, backward, optimizer. Returns losses; each must be a number."""
    torch = run.torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(run.seed + run.rank)
    batch = torch.randn(32, 256, device=run.device)
    losses = []
    for number in range(steps):

        def one() -> Any:
            loss = (model(batch) - batch.flip(-1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))

        run.collective("training step %d of %d" % (number + 1, steps), one)
    if not all(math.isfinite(loss) for loss in losses):
        raise Failed("expected finite losses, found %s" % losses)
    return losses


def phase_ddp(run: Run) -> dict[str, Any]:
    """Ten real steps under DistributedDataParallel; afterwards all ranks hold the same parameters."""
    torch = run.torch
    model = small_model(torch, checkpointed=False).to(run.device)
    run.step("wrap the model in DDP")
    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[run.device.index] if run.device.type == "cuda" else None)
    losses = run.losses = train(run, wrapped)
    mine = sum(parameter.detach().double().sum() for parameter in model.parameters()).reshape(1)
    bounds = torch.cat([mine, -mine])
    run.collective("compare parameters", lambda: run.dist.all_reduce(bounds, op=run.dist.ReduceOp.MAX))
    if float(bounds[0] + bounds[1]) != 0.0:
        raise Failed("expected the same parameters on all ranks after DDP, found sums from %r to %r" % (-float(bounds[1]), float(bounds[0])))
    return {"losses": [round(losses[0], 4), round(losses[-1], 4)]}


def phase_fsdp(run: Run) -> dict[str, Any]:
    """Ten real steps under FSDP with activation checkpointing."""
    model = small_model(run.torch, checkpointed=True).to(run.device)
    run.step("wrap the model in FSDP")
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(run.device.type, (run.world,))
        for block in model:
            fully_shard(block, mesh=mesh)
        wrapped = fully_shard(model, mesh=mesh) or model
        kind = "fully_shard"
    except ImportError:
        from torch.distributed.fsdp import FullyShardedDataParallel

        if run.device.type != "cuda":
            return {"skip": "this torch has FSDP for GPUs only"}
        wrapped, kind = FullyShardedDataParallel(model, device_id=run.device), "FullyShardedDataParallel"
    losses = train(run, wrapped)
    check_losses(run, losses)
    return {"losses": [round(losses[0], 4), round(losses[-1], 4)], "kind": kind}


def check_losses(run: Run, losses: Sequence[float]) -> None:
    """The same model, data and optimizer must learn the same whether its gradients were averaged whole (DDP) or in shards. Raises Failed."""
    for number, (whole, sharded) in enumerate(zip(run.losses, losses)):
        if abs(whole - sharded) > 0.02 * abs(whole) + 1e-4:
            raise Failed("expected the losses of DDP under FSDP, found %.6f in place of %.6f at step %d" % (sharded, whole, number + 1))


# environment.py: Phase environment: which torch, which NCCL, which settings -------------------------------------------------------------------------


def phase_environment(run: Run) -> dict[str, Any]:
    """Reports which torch, which NCCL and which settings the rank really uses, not those that it should use."""
    maker = begin_context(device_index(run)) if run.plan.get("backend") != "gloo" else None
    run.step("import torch", run.phase_until - time.monotonic())
    try:
        import torch
        import torch.distributed as dist
    except ImportError as problem:
        raise Failed("expected torch in %s, found none (%s); name the users' Python with --python" % (sys.executable, problem), blind=True) from None
    run.torch, run.dist = torch, dist
    import warnings

    warnings.filterwarnings("ignore")
    if not dist.is_available():
        message = "expected a torch with distributed support in %s, found %s without"
        raise Failed(message % (sys.executable, torch.__version__), blind=True)
    demand_interfaces()
    load_training(run)
    if maker:
        run.step("make a CUDA context", run.phase_until - time.monotonic())
        maker.join()
    run.step("look at what is loaded", run.phase_until - time.monotonic())
    run.backend = choose_backend(run)
    run.facts = {
        "payload": VERSION, "backend": run.backend, "torch": str(torch.__version__), "cuda": torch.version.cuda, "python": sys.version.split()[0],
        "executable": sys.executable, "driver": read_driver(), "nccl": nccl_in_process() if run.backend == "nccl" else [],
        "variables": shown_variables(os.environ), "nccl_conf": nccl_conf_lines(), "machine": boot_id() + os.environ.get("NCCL_HOSTID", ""), "host": run.host,
        "pid": os.getpid(), "world": run.world, "gpus": [one["model"] for one in gpus()],
    }  # fmt: skip
    return dict(run.facts)


def demand_interfaces() -> None:
    """Raises Failed for a setting that excludes every network interface of this node."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        present = [one for _, one in socket.if_nameindex()]
        if name in os.environ and not names_interface(name, os.environ[name], present):
            message = "expected %s=%s to name an interface of this node, found none such among %s"
            raise Failed(message % (name, os.environ[name], ", ".join(present)), variable=name)


def choose_backend(run: Run) -> str:
    """The plan's backend, or nccl where torch has it and a GPU. Raises Failed for nccl without a GPU."""
    has_gpu = run.torch.cuda.is_available()
    backend = run.plan.get("backend") or "auto"
    if backend == "auto":
        backend = "nccl" if has_gpu and run.dist.is_nccl_available() else "gloo"
    if backend == "nccl" and not has_gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        raise Failed("expected a GPU that torch %s can use, found none; CUDA_VISIBLE_DEVICES=%s" % (run.torch.__version__, visible), blind=True)
    return str(backend)


def names_interface(variable: str, value: str, present: Sequence[str]) -> bool:
    """Whether the setting allows at least one interface. NCCL takes prefixes, =exact names and ^exclusions; gloo exact names.

    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    if not value:
        return True
    if variable == "GLOO_SOCKET_IFNAME":
        return any(name in present for name in value.split(","))
    without, exact = value.startswith("^"), value.lstrip("^").startswith("=")
    wanted = value.lstrip("^=").split(",")
    matching = [name for name in present if any(name == one if exact else name.startswith(one) for one in wanted)]
    return len(matching) < len(present) if without else bool(matching)


# extension.py: Phase build: builds a tiny extension, as training jobs build fused kernels at their start --------------------------------------------

# Uses torch's own builder, as for fused kernels: ninja, the compiler that it chooses, its lock file, a library that is loaded at the end. Every extension needs
# Python.h; torch's own headers take half a minute to compile and would prove nothing more.
BUILD_SOURCE = '#include <Python.h>\nextern "C" int answer() { return PY_MAJOR_VERSION == 3 ? 42 : 0; }\n'
BUILD_KERNEL = '__global__ void store(int *to) { *to = 42; }\nextern "C" int answer_cuda() {\n'
BUILD_KERNEL += "  int *device = nullptr, host = 0;\n  if (cudaMalloc(&device, sizeof(int)) != cudaSuccess) return -1;\n  store<<<1, 1>>>(device);\n"
BUILD_KERNEL += "  cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost);\n  cudaFree(device);\n  return host;\n}\n"
BUILD_PROGRAM = """
import ctypes, sys, sysconfig, time
from torch.utils import cpp_extension
folder, sources, function, device = sys.argv[1], sys.argv[2:-2], sys.argv[-2], sys.argv[-1]
if device != "cpu":
    import torch
    torch.cuda.set_device(int(device))
print("begun", flush=True)
began = time.time()
library = cpp_extension.load(
    "unhang_" + function, sources, build_directory=folder, is_python_module=False, with_cuda=device != "cpu",
    extra_include_paths=[sysconfig.get_paths()["include"]],
)
built = time.time() - began
found = getattr(ctypes.CDLL(folder + "/unhang_" + function + ".so"), function)()
assert found == 42, "the extension answers %d" % found
print("built in %.1f" % built)
"""
BUILD_S = 60.0
IMPORT_S = 60.0  # for the import of torch, before the build begins
TOOLS = {"cpp": ("ninja", "c++"), "cuda": ("ninja", "c++", "nvcc")}


def phase_build(run: Run) -> dict[str, Any] | None:
    """Builds a C++ extension without GPU, and one with CUDA where nvcc exists, each in a new cache; measures how long it takes and whether it ends."""
    if run.local_rank != 0:
        meet(run, "build")
        return {"skip": "built by the first rank of each node"}
    try:
        found = {"cpp": build_one(run, "cpp")}
        if run.device.type == "cuda":
            found["cuda"] = build_one(run, "cuda")
    finally:
        arrive(run, "build")
    await_all(run, "build")
    missing = sorted({name for one in found.values() for name in one.get("missing", ())})
    if all("missing" in one for one in found.values()):
        return {"skip": "not installed: %s; extensions cannot be built on this node" % ", ".join(missing)}
    return found


def build_one(run: Run, kind: str) -> dict[str, Any]:
    """{seconds, compiler}, or {missing: programs}. Raises Failed when the build does not end in time, or fails."""
    path = build_path(os.environ)
    missing = [name for name in TOOLS[kind] if not shutil.which(name, path=path) and not (name == "c++" and os.environ.get("CXX"))]
    if missing:
        return {"missing": missing}
    folder = tempfile.mkdtemp(prefix="unhang-build-")
    limit_s = run.plan.get("build_timeout_s") or BUILD_S
    run.step("build a %s extension" % ("C++" if kind == "cpp" else "CUDA"), limit_s + IMPORT_S + 10)
    latest = min(run.phase_until - 5, time.monotonic() + limit_s + IMPORT_S)
    try:
        began = time.monotonic()
        output = run_bounded(build_argv(folder, kind, run.device), limit_s, latest, dict(os.environ, PATH=path, TORCH_EXTENSIONS_DIR=folder, MAX_JOBS="2"))
        return {"seconds": round(time.monotonic() - began, 1), "compile_s": float(output.split("built in")[-1].split()[0]), "tools": tool_versions(kind, path)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build_path(environment: Mapping[str, str]) -> str:
    """PATH with the folder of the user's Python, which often contains ninja, and with the compiler of CUDA_HOME."""
    places = [os.path.dirname(sys.executable), environment.get("PATH") or os.defpath]
    home = environment.get("CUDA_HOME") or "/usr/local/cuda"
    return os.pathsep.join([*places, os.path.join(home, "bin")])


def build_argv(folder: str, kind: str, device: Any) -> list[str]:
    """argv of the builder; writes the builder and the source."""
    name, program = os.path.join(folder, "source.cpp" if kind == "cpp" else "source.cu"), os.path.join(folder, "build.py")
    for path, text in ((name, BUILD_SOURCE if kind == "cpp" else BUILD_KERNEL), (program, BUILD_PROGRAM)):
        with open(path, "w", encoding="ascii") as target:
            target.write(text)
    function = "answer" if kind == "cpp" else "answer_cuda"
    return [sys.executable, program, folder, name, function, "cpu" if kind == "cpp" else str(device.index or 0)]


def run_bounded(argv: list[str], limit_s: float, latest: float, environment: Mapping[str, str]) -> str:
    """The builder's result. It and its children are killed limit_s after the build began, and at `latest` (CLOCK_MONOTONIC). Raises Failed."""
    with tempfile.TemporaryFile() as output:  # not a pipe: a process that a compiler left running would keep it open
        builder = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True, preexec_fn=die_with_parent
        )
        try:
            until, begun = latest, False
            while builder.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
                if not begun and b"begun" in os.pread(output.fileno(), 65536, 0):
                    until, begun = min(latest, time.monotonic() + limit_s), True
            if builder.poll() is None:
                working = session_commands(builder.pid)
                text = "expected an extension to be built within %.0f s, found still at work: %s"
                raise Failed(text % (limit_s, working[-1] if working else "nobody"), working=working[:8])
        finally:
            end_session(builder.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                builder.wait(5)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if builder.returncode:
        raise Failed("expected an extension to build, found: %s" % build_error(text))
    return text


def build_error(text: str) -> str:
    """The line with the error: the compiler's own, not the end of Python's traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line or "No such file" in line or "not found" in line]
    return (telling or lines or ["nothing output"])[0 if telling else -1][:300]


def tool_versions(kind: str, path: str) -> dict[str, str]:
    """The first line with content of each compiler's --version."""
    found = {}
    for name in TOOLS[kind]:
        program = (os.environ.get("CXX") or name) if name == "c++" else name
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5, env=dict(os.environ, PATH=path),
                preexec_fn=die_with_parent, check=False,
            )  # fmt: skip
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            found[name] = next((line for line in lines if "release" in line), lines[0] if lines else "")[:120]
    return found


# groups.py: The process groups of phase overlap, whose communicators are created at the same time, while earlier phases run -------------------------


def mesh(world: int) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """(groups of the first kind, groups of the second kind): halves, and every second rank. Each rank belongs to one group of each kind."""
    everybody = list(range(world))
    return (everybody[: world // 2], everybody[world // 2 :]), (everybody[::2], everybody[1::2])


def has_mesh(world: int) -> bool:
    """Whether there are enough ranks for two groups of two."""
    return world >= 4 and world % 2 == 0


class OverlapGroups:
    """A second group of the whole world, and this rank's two groups of a mesh: (ranks, group) each, None where there is no mesh."""

    def __init__(self, run: Run) -> None:
        dist = run.dist
        run.step("create more groups", 15 + run.world * 0.05)
        self.second = dist.new_group(list(range(run.world)))
        made = [[(ranks, dist.new_group(ranks)) for ranks in kind] for kind in mesh(run.world)] if has_mesh(run.world) else []
        self.mesh = [next(one for one in kind if run.rank in one[0]) for kind in made]
        self.problems: list[Exception] = []
        own = [self.second] + [group for _, group in self.mesh]
        self.makers = [threading.Thread(target=self.connect, args=(run, group), daemon=True) for group in own if run.device.type == "cuda"]
        for maker in self.makers:
            maker.start()

    def connect(self, run: Run, group: Any) -> None:
        """Creates the group's communicator without a collective. A torch that cannot do this creates it with the first collective."""
        try:
            run.torch.cuda.set_device(run.device)
            backend = group._get_backend(run.device)
            if hasattr(backend, "eager_connect_single_device"):
                backend.eager_connect_single_device(run.device)
        except Exception as problem:
            self.problems.append(problem)  # reported by the phase that uses the groups

    def await_all(self, run: Run) -> None:
        """Waits until all groups exist. Raises the error of their creation."""
        run.step("wait for the communicators of more groups", 15 + run.world * 0.05)
        for maker in self.makers:
            maker.join()
        if self.problems:
            raise self.problems[0]

    def destroy(self, run: Run) -> None:
        """Ends all of them at the same time. Raises the error of one that failed.

        NCCL's thread that passes file descriptors checks every 500 ms whether to end, and the end of a communicator waits for it: one after the other, each
        took 0.5 s (https://github.com/NVIDIA/nccl/blob/master/src/proxy.cc, ncclProxyServiceUDS).
        """
        own = [self.second] + [group for _, group in self.mesh]
        leavers = [threading.Thread(target=self.leave, args=(run, group), daemon=True) for group in own]
        for leaver in leavers:
            leaver.start()
        for leaver in leavers:
            leaver.join()
        if self.problems:
            raise self.problems[0]

    def leave(self, run: Run, group: Any) -> None:
        """Destroys one group, in a thread of its own. Unless its device is set, the thread would use GPU 0 and create a context there."""
        try:
            if run.device.type == "cuda":
                run.torch.cuda.set_device(run.device)
            run.dist.destroy_process_group(group)
        except Exception as problem:
            self.problems.append(problem)


def phase_all_to_all(run: Run) -> None:
    """Runs the operation whose first call connects every pair of ranks and takes seconds; meanwhile the groups of phase overlap are created."""
    if "overlap" in run.phases:
        run.groups = OverlapGroups(run)
    return phase_operation(run)


# init.py: Phase init: creates the communicator ------------------------------------------------------------------------------------------------------


def phase_init(run: Run) -> dict[str, Any]:
    """Creates the communicator. NCCL creates it at the first collective, so this phase runs one."""
    import datetime

    limit_s = 15 + run.world * 0.05
    run.step("create the process group", limit_s)
    drill(run)
    timeout = datetime.timedelta(seconds=limit_s + 60)  # the step's own deadline comes first; torch's timeout is only a second safeguard
    began = time.perf_counter()
    # Without a device_id: with one, torch would split each further group from this one, one after the other and while nothing else may run on it.
    run.dist.init_process_group(run.backend, store=run.store, rank=run.rank, world_size=run.world, timeout=timeout)
    first = run.torch.ones(1, device=run.device)
    run.collective("first all_reduce", lambda: run.dist.all_reduce(first), expected_s=(limit_s - STEP_S) / 3)
    if int(first) != run.world:
        raise Failed("expected %d from the first all_reduce, found %s" % (run.world, first.item()))
    libraries = nccl_in_process() if run.backend == "nccl" else []
    return {"init_ms": round((time.perf_counter() - began) * 1e3, 1), "nccl": libraries, "net_plugins": mapped_libraries("libnccl-net")}


# p2p.py: Phase p2p_matrix: copies between the GPUs of a machine -------------------------------------------------------------------------------------


def phase_p2p_matrix(run: Run) -> dict[str, Any] | None:
    """Copies between each pair of this machine's GPUs, done by the machine's first rank: whether the content is right, and how fast it is."""
    enough = run.device.type == "cuda" and run.torch.cuda.device_count() > 1
    try:
        if enough and run.local_rank == 0:
            copy_all(run)
    finally:
        arrive(run, "p2p")
    await_all(run, "p2p")
    return None if enough else {"skip": "fewer than two GPUs here"}


def copy_all(run: Run) -> None:
    """Tries every pair in both directions. Raises Failed for wrong content."""
    torch, size, rows = run.torch, 64 << 20, []
    count = torch.cuda.device_count()
    for source in range(count):
        held = pattern(torch, torch.device("cuda", source), size // 4, source, run.seed, 256, torch.float32)
        for target in range(count):
            if source != target:
                run.step("copy from GPU %d to GPU %d" % (source, target))
                rows.append(copy_row(torch, held, source, target))
        held = None
    run.event("p2p", rows=rows)
    bad = [row for row in rows if row["wrong"]]
    if bad:
        message = "expected exact copies between GPUs, found wrong content from GPU %(from)d to GPU %(to)d" % bad[0]
        raise Failed(message, wrong=sum(row["wrong"] for row in bad))


def copy_row(torch: Any, held: Any, source: int, target: int) -> dict[str, Any]:
    """Tries one pair: {from, to, peer_access, gb_s, wrong}."""
    device = torch.device("cuda", target)
    came = torch.empty_like(held, device=device)
    came.copy_(held)
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    with torch.cuda.device(source):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(10):
            came.copy_(held, non_blocking=True)
        last.record()
        torch.cuda.synchronize(source)
    wrong = int((came.to(held.device) != held).sum())
    rate = held.numel() * 4 * 10 / (first.elapsed_time(last) * 1e-3) / 1e9
    return {"from": source, "to": target, "peer_access": bool(torch.cuda.can_device_access_peer(target, source)), "gb_s": round(rate, 1), "wrong": wrong}


# rendezvous.py: Phase rendezvous: all ranks meet at one store ---------------------------------------------------------------------------------------


def phase_rendezvous(run: Run) -> dict[str, Any]:
    """All ranks meet at the store. Ranks that are missing at the deadline are named."""
    import datetime

    address, port = run.plan["master_address"], int(run.plan["master_port"])
    limit_s = run.phase_until - time.monotonic() - 5
    if run.rank == 0:
        require_free(port)
    try:
        run.store = run.dist.TCPStore(address, port, run.world, run.rank == 0, timeout=datetime.timedelta(seconds=limit_s), wait_for_workers=False)
    except (RuntimeError, ValueError, OSError) as problem:
        output = " ".join(str(problem).split())[:300]
        raise Failed("expected a store at %s:%d, could not %s it: %s" % (address, port, "open" if run.rank == 0 else "reach", output)) from None
    run.store.set("here/%d" % run.rank, run.host)
    until = time.monotonic() + limit_s
    missing = list(range(run.world))
    while missing:
        missing = [rank for rank in missing if not run.store.check(["here/%d" % rank])]
        if missing and time.monotonic() > until:
            raise Failed("expected %d ranks at %s:%d, still missing: %s" % (run.world, address, port, short_list(missing)), missing=missing[:64])
        if missing:
            time.sleep(0.05)
    return {"address": address, "port": port}


def require_free(port: int) -> None:
    """Raises Failed when something listens on the port here."""
    for family, place in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 -- asked, not served
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((place, port))
            except OSError as problem:
                if problem.errno in (errno.EADDRINUSE, errno.EACCES):
                    message = "expected port %d to be free, found it in use (%s); choose another with --port" % (port, problem.strerror)
                    raise Failed(message, blind=True) from None


# shapes.py: Phase shapes: the sizes that hung in practice -------------------------------------------------------------------------------------------

# Shapes that hung in practice. The layer is Llama 3 8B's: q, k, v, o, gate, up, down, two norms; the embedding is 128,256 x 4,096.
BROADCAST_ELEMENTS = 253_440_000
LAYER_ELEMENTS = 218_112_000
EMBEDDING_ELEMENTS = 525_336_576
CHUNK = 1 << 22
ON_CORES = 8  # gloo moves and sums a layer on the same cores that the ranks run on: a part of the layer is enough


def phase_shapes(run: Run) -> dict[str, Any]:
    """The sizes that hung in practice: a broadcast of 253,440,000 elements, and the layers of an 8B model under FSDP."""
    torch = run.torch
    elements = run.scaled(BROADCAST_ELEMENTS, 4, 2)
    held = torch.empty(elements, device=run.device)
    if run.rank == 0:
        fill(torch, held, lambda place: place + run.seed & 255)
    meet(run, "shapes")  # filling takes a core seconds, and must not look like a stalled rank
    run.collective("broadcast of %d elements" % elements, lambda: run.dist.broadcast(held, 0), size_bytes=elements * 4)
    run.step("compare what came", compare_s(run, elements))
    wrong = differing(torch, held, lambda place: place + run.seed & 255)
    held = None  # the next collectives need its memory
    layers = []
    for name, asked in (("embedding", EMBEDDING_ELEMENTS), ("layer 1", LAYER_ELEMENTS), ("layer 2", LAYER_ELEMENTS)):
        size = run.scaled(asked if run.device.type == "cuda" else asked // ON_CORES, 2, 3)
        layers.append(size)
        wrong += gather_and_scatter(run, name, size)
    if wrong:
        raise Failed("expected the known content of large messages, found %d wrong elements" % wrong, wrong=wrong)
    scaled = elements < BROADCAST_ELEMENTS // run.world * run.world or layers[0] < EMBEDDING_ELEMENTS // run.world * run.world
    return {"broadcast_elements": elements, "layer_elements": layers, "scaled": scaled}


def gather_and_scatter(run: Run, name: str, size: int) -> int:
    """Runs FSDP's collectives for a layer of `size` bfloat16: all_gather of parameters, reduce_scatter of gradients. Returns wrong elements of both."""
    torch, share = run.torch, size // run.world
    part = torch.empty(share, dtype=torch.bfloat16, device=run.device)
    whole = torch.empty(size, dtype=torch.bfloat16, device=run.device)
    fill(torch, part, content_of(run.rank))
    run.collective("all_gather of %s" % name, lambda: gather_whole(run, whole, part), size_bytes=size * 2)
    run.step("compare what was gathered", compare_s(run, size))
    wrong = sum(differing(torch, whole[at * share :][:share], content_of(at)) for at in range(run.world))
    # Every second element is one; whether the first is depends on the rank: sums are exact up to 256 ranks.
    fill(torch, whole, lambda place: place + run.rank & 1)
    run.collective("reduce_scatter of %s" % name, lambda: scatter_sum(run, part, whole), size_bytes=size * 2)
    run.step("compare what was reduced", compare_s(run, share))
    first, odd = share * run.rank, run.world // 2  # odd ranks put ones at even places, even ranks at odd places
    return wrong + (differing(torch, part, lambda place: odd + (place + first & 1) * (run.world - 2 * odd)) if run.world <= 256 else 0)


def content_of(source: int) -> Callable[[Any], Any]:
    """The expected value at each place of a rank's part of a gathered layer."""
    return lambda place: place + source * 37 & 127


def fill(torch: Any, held: Any, content: Callable[[Any], Any]) -> None:
    """Sets each element to the value of `content` for its place (int32), in pieces for which there is memory."""
    for start in range(0, held.numel(), CHUNK):
        piece = held[start : start + CHUNK]
        piece.copy_(content(torch.arange(start, start + piece.numel(), dtype=torch.int32, device=held.device)))


def differing(torch: Any, found: Any, content: Callable[[Any], Any]) -> int:
    """How many elements differ from the value of `content` for their place."""
    wrong = 0
    for start in range(0, found.numel(), CHUNK):
        piece = found[start : start + CHUNK]
        expected = content(torch.arange(start, start + piece.numel(), dtype=torch.int32, device=found.device)).to(found.dtype)
        wrong += wrong_elements(torch, piece, expected)
    return wrong


def compare_s(run: Run, elements: int) -> float:
    """How long a comparison may take: a GPU compares a billion elements a second or more, a busy core some millions."""
    return STEP_S + elements / (1e9 if run.device.type == "cuda" else 1e7)


# storm.py: Phases storm and overlap: many collectives in a row, and on two groups at once -----------------------------------------------------------


def phase_storm(run: Run) -> None:
    """Runs many barriers one after the other, many small messages, few large ones."""
    torch, dist = run.torch, run.dist
    options = {"device_ids": [run.device.index]} if run.device.type == "cuda" else {}
    for number in range(30):
        run.collective("barrier %d of 30" % (number + 1), lambda: dist.barrier(**options))
    small = torch.ones(64, device=run.device)

    def many() -> None:
        for _ in range(200):
            small.fill_(1)
            dist.all_reduce(small)

    run.collective("200 small all_reduces", many)
    wrong = wrong_elements(torch, small, torch.full_like(small, run.world))
    elements = run.scaled(16 << 20, 4, 4)
    large = torch.ones(elements, device=run.device)
    for number in range(3):
        large.fill_(1)
        run.collective("large all_reduce %d of 3" % (number + 1), lambda: dist.all_reduce(large), size_bytes=elements * 4)
    wrong += wrong_elements(torch, large, torch.full_like(large, run.world))
    if wrong:
        raise Failed("expected %d in every element after the storm, found %d wrong elements" % (run.world, wrong), wrong=wrong)


def phase_overlap(run: Run) -> None:
    """Collectives in flight on two process groups at once: two groups of the whole world, then a mesh, as sharding within and between nodes uses it."""
    groups = run.groups or OverlapGroups(run)
    groups.await_all(run)
    wrong = overlap_twice(run, groups.second)
    if groups.mesh:
        with logs_of_others(run):
            wrong += overlap_on_mesh(run, groups.mesh)
    run.step("leave the groups", 15 + run.world * 0.05)
    groups.destroy(run)
    run.groups = None
    if wrong:
        raise Failed("expected exact results on both groups, found %d wrong elements" % wrong, wrong=wrong)


def overlap_elements(run: Run) -> int:
    """Of each message."""
    return min(1 << 20, (run.plan.get("max_bytes") or 1 << 30) // 4)


def overlap_twice(run: Run, second_group: Any) -> int:
    """Reductions of the whole world on its own group and on a second one. Returns wrong elements of both."""
    torch, dist, elements = run.torch, run.dist, overlap_elements(run)
    first, second = (torch.empty(elements, device=run.device) for _ in range(2))

    def both() -> None:
        first.fill_(1)
        second.fill_(2)
        works = [dist.all_reduce(held, group=group, async_op=True) for held, group in ((first, None), (second, second_group))]
        for work in works:
            work.wait()

    for number in range(10):
        run.collective("two groups at once, %d of 10" % (number + 1), both, size_bytes=elements * 8)
    return sum(wrong_elements(torch, held, torch.full_like(held, value * run.world)) for held, value in ((first, 1), (second, 2)))


def overlap_on_mesh(run: Run, mesh_groups: list[tuple[list[int], Any]]) -> int:
    """A gather within one half during a reduction between every second rank. Returns the wrong elements of both."""
    torch, share = run.torch, overlap_elements(run) // run.world
    (near, near_group), (far, far_group) = mesh_groups
    part = torch.full((share,), float(run.rank), device=run.device)
    whole = torch.empty(share * len(near), device=run.device)
    summed = torch.empty(share, device=run.device)
    terms = torch.arange(len(far), device=run.device).repeat_interleave(share).float()

    def both() -> None:
        gathered = gather_whole(run, whole, part, group=near_group, async_op=True)
        reduced = scatter_sum(run, summed, terms, group=far_group, async_op=True)
        gathered.wait()
        reduced.wait()

    for number in range(5):
        run.collective("gather and reduce on a mesh, %d of 5" % (number + 1), both, size_bytes=share * run.world * 4)
    wrong = wrong_elements(torch, summed, torch.full_like(summed, float(far.index(run.rank) * len(far))))
    return wrong + wrong_elements(torch, whole, torch.tensor(near, device=run.device).repeat_interleave(share).float())


# phases.py: Which phases there are, in which order, and how long each may take ----------------------------------------------------------------------

PHASE_LIMIT_S = {"environment": 120.0, "rendezvous": 60.0, "bandwidth": 120.0, "p2p_matrix": 60.0, "build": 240.0}
PHASES = {
    "environment": phase_environment, "binding": phase_binding, "rendezvous": phase_rendezvous, "consistency": phase_consistency, "init": phase_init,
    **dict.fromkeys(OPERATIONS, phase_operation), "all_to_all": phase_all_to_all,
    "agreement": phase_agreement, "storm": phase_storm, "shapes": phase_shapes, "overlap": phase_overlap, "ddp": phase_ddp, "fsdp": phase_fsdp,
    "pace": phase_pace, "bandwidth": phase_bandwidth, "p2p_matrix": phase_p2p_matrix, "build": phase_build,
}  # fmt: skip
OPTIONAL = ("p2p_matrix", "build")
ALWAYS = ("environment", "binding", "rendezvous", "consistency", "init")


def phases_of(plan: dict[str, Any]) -> list[str]:
    """Names of the phases to run, in order."""
    asked = plan.get("phases") or [name for name in PHASES if name not in OPTIONAL]
    checked = any(name in OPERATIONS for name in asked)
    return [name for name in PHASES if name in ALWAYS or name in asked or (name == "agreement" and checked)]


def phase_limit_s(plan: dict[str, Any], name: str) -> float:
    """How long a phase may take in all. The steps in it have their own, much shorter limit."""
    base = plan.get("rendezvous_timeout_s") if name == "rendezvous" else None
    base = float(base) if base else PHASE_LIMIT_S.get(name, 60.0)
    if name not in ALWAYS:
        base = max(base, 6 * (plan.get("step_timeout_s") or STEP_S))
    return float(base + plan.get("world_size", 1) * 0.05)


# rank.py: Runs the phases of one rank ---------------------------------------------------------------------------------------------------------------


def run_rank(plan: dict[str, Any], place: tuple[int, int, int, int], descriptor: int, folder: str) -> int:
    """Runs the phases; the exit code: 0 all well, 1 a phase failed, 3 stalled."""
    run = Run(plan, place, descriptor, folder)
    run.phases = tuple(phases_of(plan))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER, any process of this user: py-spy is not an ancestor of the ranks
    faulthandler.enable(file=run.stacks)
    faulthandler.register(signal.SIGUSR1, file=run.stacks, all_threads=True)
    threading.Thread(target=keep_watch, args=(run,), daemon=True).start()
    for name in run.phases:
        # A wrong result does not end the run before all operations were tried, because only all results together show whose data is wrong.
        if not run_phase(run, name) and (name not in OPERATIONS or run.last_status != "fail"):
            leave(run)
            return 1
    run.phase, run.phase_until = "end", time.monotonic() + 30
    run.step("leave the group")
    if run.dist.is_initialized():
        run.dist.destroy_process_group()
    leave(run)
    faulthandler.cancel_dump_traceback_later()
    run.event("rank_end")
    return 0


def leave(run: Run) -> None:
    """Rank 0 serves the store, so it leaves last; but it does not wait long for ranks that never leave."""
    if run.store is None:
        return
    with contextlib.suppress(RuntimeError):  # the store's server is gone, so no rank can read it
        run.store.add("left", 1)
        until = time.monotonic() + GRACE_S
        while run.rank == 0 and run.store.add("left", 0) < run.world and time.monotonic() < until:
            time.sleep(0.02)


def run_phase(run: Run, name: str) -> bool:
    """Announces a phase, runs it, and reports its result. False if the phase failed."""
    limit_s = phase_limit_s(run.plan, name)
    run.phase, run.phase_until = name, time.monotonic() + limit_s
    run.step("begin", limit_s if name in PHASE_LIMIT_S else None)
    run.event("phase_begin", limit_s=limit_s)
    began = time.monotonic()
    run.longest_steps()
    try:
        result = PHASES[name](run) or {}
    except Failed as problem:
        run.last_status = "fail"
        run.event("phase_end", status="fail", duration_s=round(time.monotonic() - began, 3), message=str(problem), result=problem.more)
        return False
    except Exception as problem:
        # An error of torch is a result about the machine here: it becomes an event that begins with the error's type.
        run.last_status = "error"
        message = "%s: %s" % (type(problem).__name__, " ".join(str(problem).split())[:600])
        run.event("phase_end", status="error", duration_s=round(time.monotonic() - began, 3), message=message, result={}, seq=run.board.entered)
        return False
    status = "skip" if "skip" in result else "ok"
    run.event("phase_end", status=status, duration_s=round(time.monotonic() - began, 3), message=result.get("skip"), result=result,
              steps=run.longest_steps())  # fmt: skip
    return True


def keep_watch(run: Run) -> None:
    """Answers the agent's request for a dump; without an agent, reports a stall itself and ends the rank."""
    while True:
        time.sleep(0.2)
        if run.board.flag(Board.ASKED) and not run.board.flag(Board.ANSWERED):
            if os.fstat(run.stacks.fileno()).st_size == 0:  # the signal stays pending while the main thread hangs in the kernel
                faulthandler.dump_traceback(file=run.stacks, all_threads=True)
            write_flight_recording(run)
            run.board.flag(Board.ANSWERED, 1)
        state = run.board.read()
        if not run.plan.get("watched") and time.monotonic() > min(state["until"], state["phase_until"]) > 0:
            write_flight_recording(run)
            faulthandler.dump_traceback(file=run.stacks, all_threads=True)
            emit(run.descriptor, "stall", host=run.host, **own_evidence(run, state))
            shutil.rmtree(run.folder, ignore_errors=True)
            os._exit(3)


def own_evidence(run: Run, state: dict[str, Any]) -> dict[str, Any]:
    """A rank's report of its own stall, without an agent."""
    return {"rank": run.rank, "phase": state["phase"], "step": state["step"], "seq": state["seq"], "done": state["done"], "reason": "deadline",
            "state": "S", "stack": read_tail(run.stacks.name), "flight_recorder": read_encoded(recording_path(run.folder, run.rank))}  # fmt: skip


def leading_number(text: str) -> int:
    """8 of "8" and of Slurm's "8(x2)". Raises ValueError."""
    found = re.match(r"\d+", text)
    return int(found.group() if found else text)


def rank_place(environment: Mapping[str, str]) -> tuple[int, int, int, int]:
    """(rank, world, local rank, local world) as torchrun, srun or a person set them. Raises Failed."""
    for names in (("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")):
        if names[0] in environment and names[1] in environment:
            try:
                rank, world, local_rank, local_world = (leading_number(environment.get(name, default)) for name, default in zip(names, ("0", "1", "0", "1")))
                return rank, world, local_rank, local_world
            except ValueError:
                raise Failed("expected whole numbers in %s, found %s" % (", ".join(names), [environment.get(name) for name in names])) from None
    raise Failed("expected RANK and WORLD_SIZE, found neither; start it with torchrun, srun or unhang smoke")


# main.py: The command line --------------------------------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """0 all well, 1 something failed, 2 wrong use, 3 stalled."""
    parser = argparse.ArgumentParser(description="The smoke test's payload; `unhang smoke` starts it.")
    parser.add_argument("what", nargs="?", choices=("rank", "node", "survey", "nvml"), default="rank")
    parser.add_argument("--plan", help="the plan as JSON, or @FILE")
    parser.add_argument("--events", type=int, default=1, help="descriptor for events")
    parser.add_argument("--folder", help="where status boards lie")
    parser.add_argument("--short-lines", action="store_true", help="write events in numbered pieces of less than a kilobyte")
    parser.add_argument("--output", help="write events to this file instead")
    parser.add_argument("--remove-self", action="store_true", help="remove the folder that this file lies in, at the end")
    given = parser.parse_args(argv)
    finish = shorten_lines(os.environ.get("SLURMD_NODENAME", "node")) if given.short_lines else lambda: None
    try:
        return do(given)
    finally:
        finish()


def do(given: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    if given.what in ("survey", "node"):
        clear_leftovers(time.time())
    if given.what == "survey":
        sys.stdout.write(json.dumps(survey()) + "\n")
        if given.remove_self:
            shutil.rmtree(os.path.dirname(os.path.abspath(__file__)), ignore_errors=True)
        return 0
    if given.what == "nvml":
        sys.stdout.write(json.dumps(read_nvml()) + "\n")
        return 0
    plan = read_plan(given.plan or os.environ.get("UNHANG_SMOKE_PLAN") or "{}")
    if given.output:
        os.dup2(os.open(given.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    return run_agent(plan) if given.what == "node" else run_one_rank(given, plan)


def run_one_rank(given: argparse.Namespace, plan: dict[str, Any]) -> int:
    """Runs this process as one rank, with its rank number from the launcher's environment; returns the exit code."""
    try:
        place = rank_place(os.environ)
    except Failed as problem:
        sys.stderr.write("unhang_smoke: %s\n" % problem)
        return 2
    plan.setdefault("master_address", os.environ.get("MASTER_ADDR", "127.0.0.1"))
    # torchrun has its own store at MASTER_PORT: the smoke test's store uses the next port.
    plan.setdefault("master_port", int(os.environ.get("MASTER_PORT", "29511")) + (1 if "TORCHELASTIC_RUN_ID" in os.environ else 0))
    plan.setdefault("world_size", place[1])
    if given.folder:
        return run_rank(plan, place, given.events, given.folder)
    folder = tempfile.mkdtemp(prefix="unhang-smoke-")
    try:
        return run_rank(plan, place, given.events, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # no agent knows of this folder, and its content was reported


def read_plan(text: str) -> dict[str, Any]:
    """The plan: from the argument, from the file that it names, or, under Slurm, this node's part of all nodes' plans (=, then base64 of packed JSON)."""
    if text.startswith("="):
        return dict(json.loads(zlib.decompress(base64.b64decode(text[1:])))[os.environ["SLURMD_NODENAME"]])
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as source:
            text = source.read()
    return dict(json.loads(text))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Not sys.exit: at its end the interpreter would wait for a process group that is broken.
    os._exit(code)
