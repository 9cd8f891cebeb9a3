"""How long NVML's init and first handles may take: a sleeping GPU (persistence off, no user) is
started by the first handle."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..context import Context
    from ..root import Root

SLEEPING_HANDLE_S = 20.0
GPUS = "/proc/driver/nvidia/gpus"
PERSISTENCED = "/run/nvidia-persistenced/nvidia-persistenced.pid"


def seconds_for_first_handle(ctx: Context) -> float:
    """Seconds for one such call, or 0 for as long as any call may take.

        The option first_handle_s decides if it is set. Otherwise 20 s, unless the driver's own
        files show that every GPU is awake: the persistence daemon
    is running, or /proc shows each GPU's VBIOS (question marks while it sleeps) and active memory.
    """
    chosen_s = ctx.options.get("first_handle_s")
    if chosen_s is not None:
        return float(chosen_s)
    if ctx.options.get("nvml_recording"):
        return 0.0
    ctx.mark(f"list {GPUS}")
    try:
        addresses = ctx.root.names(GPUS)
    except OSError:
        return 0.0
    if ctx.root.exists(PERSISTENCED) or all(is_awake(ctx.root, address) for address in addresses):
        return 0.0
    return SLEEPING_HANDLE_S


def is_awake(root: Root, address: str) -> bool:
    """True when procfs shows a GPU that has been started and not put to sleep again."""
    folder = f"{GPUS}/{address}"
    try:
        return "??" not in root.text(
            folder + "/information", 65536
        ) and "Video Memory:" in active_memory(root.text(folder + "/power", 65536))
    except OSError:
        return False


def active_memory(text: str) -> str:
    """The line of /proc/driver/nvidia/gpus/*/power that reports active video memory, or ""."""
    return next(
        (
            line
            for line in text.splitlines()
            if line.startswith("Video Memory:") and line.split()[-1] == "Active"
        ),
        "",
    )
