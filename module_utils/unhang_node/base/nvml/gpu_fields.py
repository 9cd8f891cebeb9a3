"""The fields of a GPU that the node's facts and a look at a job both have: its address, its fabric,
and what the driver requires to recover it."""

from __future__ import annotations

from .names import FIELDS, INVALID_ARGUMENT, NOT_SUPPORTED, error_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calls import Asking, FieldAnswers

FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
RECOVERY = FIELDS["NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"]
UNKNOWN_FIELD = (0, INVALID_ARGUMENT, NOT_SUPPORTED)  # an older driver, or a board without it
RECOVERY_ACTIONS = (
    "none",
    "reset",
    "reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


def read_recovery_action(asking: Asking, fields: FieldAnswers) -> str | None:
    """What the driver requires to recover the GPU: one of RECOVERY_ACTIONS. Drivers before 570 do
    not report it."""
    code, action = fields.get(RECOVERY, (NOT_SUPPORTED, None))
    if code or action is None:
        asking.note(
            "recovery_action",
            NOT_SUPPORTED if code in UNKNOWN_FIELD else code,
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
        )
        return None
    return RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else "unknown"


def sysfs_address(bus_id: Any) -> str:
    """0000:3b:00.0 of NVML's 00000000:3B:00.0."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def read_fabric(asking: Asking, note: str | None = "fabric") -> dict[str, Any] | None:
    """Registration with the fabric manager, or None where the driver does not support the query.
    note: where that is noted."""
    found = asking.ask_first(
        note,
        ("nvmlDeviceGetGpuFabricInfoV", asking.handle, "v2"),
        ("nvmlDeviceGetGpuFabricInfo", asking.handle),
    )
    if found is None:
        return None
    cluster, state = (
        "".join(f"{byte:02x}" for byte in found.clusterUuid),
        FABRIC_STATES.get(found.state),
    )
    return {
        "state": state,
        "status": "success" if found.status == 0 else error_name(found.status),
        # 0 is also a valid clique id, and the field is 0 where there is no fabric
        "clique": None if state == "not_supported" else found.cliqueId,
        "cluster": cluster if cluster.strip("0") else None,
        "health_mask": getattr(found, "healthMask", None),
    }
