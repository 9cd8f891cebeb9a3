"""Compute mode and persistence mode of GPUs, through NVML. Neither outlives a reboot or a reload of the driver."""

from __future__ import annotations

from collections import namedtuple

from ...root import Root
from ...section import Unread
from ...sections.processes import read_holders

COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")  # NVML's numbers 0 to 3
# Programs that have a GPU open to look after it: a change of mode is no harm to them.
CARETAKERS = frozenset(["nvidia-persistenc", "nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "nvidia-imex", "nvidia-imex-daemon"])
Gpu = namedtuple("Gpu", "index uuid compute_mode persistence pids")


def open_nvml(load):
    """(nvidia-ml-py, None) initialised, or (None, why not). load: () -> nvidia-ml-py, which comes along with the module."""
    try:
        nvml = load()
    except ImportError:
        return None, "the controller has no nvidia-ml-py to send along"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return None, "the driver does not answer: {}".format(problem)
    return nvml, None


def read_gpus(nvml):
    """[Gpu]. nvml: nvidia-ml-py, initialised; None for a mode that a GPU has not. Raises NVMLError."""
    rows = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        mode, persistence = _ask(nvml, nvml.nvmlDeviceGetComputeMode, handle), _ask(nvml, nvml.nvmlDeviceGetPersistenceMode, handle)
        pids = [process.pid for process in _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()]
        uuid = nvml.nvmlDeviceGetUUID(handle)
        name = COMPUTE_MODES[mode] if mode is not None and mode < len(COMPUTE_MODES) else None
        rows.append(Gpu(index, uuid, name, None if persistence is None else bool(persistence), pids))
    return rows


def _ask(nvml, call, handle):
    try:
        return call(handle)
    except nvml.NVMLError as problem:
        if problem.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def read_busy():
    """{device path: [what has it open]} of jobs; programs that only look after GPUs are left out."""
    busy = {}
    for holder in read_holders(Root(), Unread(), {}):
        if holder.command not in CARETAKERS:
            for device in holder.devices:
                busy.setdefault(device, []).append("pid {} ({})".format(holder.pid, holder.command))
    return busy


def plan_modes(gpus, compute_mode, persistence):
    """[(Gpu, "compute_mode" or "persistence", wanted)]; a wanted None is left as it is, and so is a mode that a GPU does not have."""
    rows = [(gpu, "persistence", persistence) for gpu in gpus if persistence is not None and gpu.persistence not in (None, persistence)]
    return rows + [(gpu, "compute_mode", compute_mode) for gpu in gpus if compute_mode is not None and gpu.compute_mode not in (None, compute_mode)]


def in_use(rows, busy):
    """[why] of the GPUs whose compute mode would change under a job."""
    whys = []
    for gpu, what, _wanted in rows:
        users = ["pid {}".format(pid) for pid in gpu.pids] + busy.get("/dev/nvidia{}".format(gpu.index), [])
        if what == "compute_mode" and users:
            whys.append("GPU {} ({}) is in use by {}".format(gpu.index, gpu.uuid, ", ".join(users[:8])))
    return whys


def refuse_in_use(rows):
    """Raises ValueError naming every job that has a GPU whose compute mode would change."""
    users = in_use(rows, read_busy() if rows else {})
    if users:
        raise ValueError("expected GPUs that nobody uses to change their compute mode, found: {}; drain the node and run again".format("; ".join(users)))


def set_modes(nvml, rows):
    """Sets them and reads them back. Raises NVMLError, ValueError."""
    for gpu, what, wanted in rows:
        handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        if what == "compute_mode":
            nvml.nvmlDeviceSetComputeMode(handle, COMPUTE_MODES.index(wanted))
        else:
            nvml.nvmlDeviceSetPersistenceMode(handle, int(wanted))
    now = {gpu.index: gpu for gpu in read_gpus(nvml)}
    for gpu, what, wanted in rows:
        found = getattr(now[gpu.index], what)
        if found != wanted:
            raise ValueError("GPU {}: expected {} {}, found {} after it was set".format(gpu.index, what, wanted, found))


def effects_of(rows):
    """[(what, before, after)] for an answer."""
    return [("{} of GPU {} ({})".format(what, gpu.index, gpu.uuid), getattr(gpu, what), wanted) for gpu, what, wanted in rows]
