"""Sets compute mode and persistence mode of GPUs through NVML. Neither survives a reboot or a
reload of the driver."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ...base.root import Root
from ...base.section import Unread
from ...facts.sections.processes import read_holders

# NVML's numbers 0 to 3
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
# Programs that have a GPU open only to monitor it: a change of mode does not disturb them.
CARETAKERS = frozenset(
    [
        "nvidia-persistenc",
        "nvidia-persiste",
        "nv-fabricmanage",
        "nv-hostengine",
        "dcgm-exporter",
        "nvidia-imex",
        "nvidia-imex-daemon",
    ]
)
Nvml = Any
"""The module nvidia-ml-py, which ships no types."""


class Gpu(NamedTuple):
    """A mode is None if the GPU does not support it. pids: processes that compute on it."""

    index: int  # type: ignore[assignment]  # the driver's word, not the method of a tuple
    uuid: str
    compute_mode: Optional[str]
    persistence: Optional[bool]
    pids: List[int]


class ModeChange(NamedTuple):
    """mode: compute_mode or persistence."""

    gpu: Gpu
    mode: str
    wanted: Union[str, bool]

    @property
    def before(self) -> Union[str, bool, None]:
        """The mode as it was."""
        return self.gpu.compute_mode if self.mode == "compute_mode" else self.gpu.persistence


def open_nvml(load: Callable[[], Nvml]) -> Tuple[Nvml, Optional[str]]:
    """(nvidia-ml-py, None) initialised, or (None, why not). load: () -> nvidia-ml-py, which Ansible
    sends with the module."""
    try:
        nvml = load()
    except ImportError:
        return None, "the controller has no nvidia-ml-py to send along"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return None, f"the driver does not answer: {problem}"
    return nvml, None


def read_gpus(nvml: Nvml) -> List[Gpu]:
    """nvml: nvidia-ml-py, initialised. Raises NVMLError."""
    rows = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        mode, persistence = (
            _ask(nvml, nvml.nvmlDeviceGetComputeMode, handle),
            _ask(nvml, nvml.nvmlDeviceGetPersistenceMode, handle),
        )
        pids = [
            process.pid
            for process in _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        ]
        uuid = nvml.nvmlDeviceGetUUID(handle)
        name = COMPUTE_MODES[mode] if mode is not None and mode < len(COMPUTE_MODES) else None
        rows.append(
            Gpu(
                index=index,
                uuid=uuid,
                compute_mode=name,
                persistence=None if persistence is None else bool(persistence),
                pids=pids,
            )
        )
    return rows


def _ask(nvml: Nvml, call: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return call(handle)
    except nvml.NVMLError as problem:
        if problem.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def read_busy() -> Dict[str, List[str]]:
    """{device path: [process]} of the jobs that have it open, without programs that only monitor
    GPUs."""
    busy: Dict[str, List[str]] = {}
    for holder in read_holders(Root(), Unread(), {}):
        if holder.command not in CARETAKERS:
            for device in holder.devices:
                busy.setdefault(device, []).append(f"pid {holder.pid} ({holder.command})")
    return busy


def plan_modes(
    gpus: Sequence[Gpu], compute_mode: Optional[str], persistence: Optional[bool]
) -> List[ModeChange]:
    """The modes to change. None as the wanted mode means no change; a mode that a GPU does not
    support is skipped."""
    rows = []
    if persistence is not None:
        rows += [
            ModeChange(gpu=gpu, mode="persistence", wanted=persistence)
            for gpu in gpus
            if gpu.persistence not in (None, persistence)
        ]
    if compute_mode is not None:
        rows += [
            ModeChange(gpu=gpu, mode="compute_mode", wanted=compute_mode)
            for gpu in gpus
            if gpu.compute_mode not in (None, compute_mode)
        ]
    return rows


def in_use(rows: Sequence[ModeChange], busy: Mapping[str, List[str]]) -> List[str]:
    """A line for each GPU in use whose compute mode would change."""
    reasons = []
    for gpu, mode, _wanted in rows:
        users = [f"pid {pid}" for pid in gpu.pids] + busy.get(f"/dev/nvidia{gpu.index}", [])
        if mode == "compute_mode" and users:
            reasons.append(f"GPU {gpu.index} ({gpu.uuid}) is in use by {', '.join(users[:8])}")
    return reasons


def refuse_in_use(rows: Sequence[ModeChange]) -> None:
    """Raises ValueError naming every job on a GPU whose compute mode would change."""
    users = in_use(rows, read_busy() if rows else {})
    if users:
        raise ValueError(
            f"GPUs are in use, and their compute mode cannot change: {'; '.join(users)}; drain the"
            " node and run again"
        )


def set_modes(nvml: Nvml, rows: Sequence[ModeChange]) -> None:
    """Sets the modes and reads them back. Raises NVMLError, ValueError."""
    for gpu, mode, wanted in rows:
        handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        if mode == "compute_mode":
            nvml.nvmlDeviceSetComputeMode(handle, COMPUTE_MODES.index(wanted))
        else:
            nvml.nvmlDeviceSetPersistenceMode(handle, int(wanted))
    now = {gpu.index: gpu for gpu in read_gpus(nvml)}
    for gpu, mode, wanted in rows:
        found = ModeChange(gpu=now[gpu.index], mode=mode, wanted=wanted).before
        if found != wanted:
            raise ValueError(f"GPU {gpu.index} has {mode} {found} after {wanted} was set")


def effects_of(rows: Sequence[ModeChange]) -> List[Tuple[str, Any, Any]]:
    """[(mode and GPU, before, after)] for a module's result."""
    return [
        (f"{row.mode} of GPU {row.gpu.index} ({row.gpu.uuid})", row.before, row.wanted)
        for row in rows
    ]
