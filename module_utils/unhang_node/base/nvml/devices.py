"""Reads one GPU with few and cheap calls.

Costs in microseconds were taken on H200 (see tests/fixtures/h200x8/nvml.json). What the board fixes
(highest clocks, slowdown temperature, the power limit's bounds: 7 to 9 ms) is asked once per board
and VBIOS, not once per GPU.
"""

from __future__ import annotations

from ..section import Unread
from .gpu_fields import (
    RECOVERY,
    UNKNOWN_FIELD,
    read_fabric,
    read_recovery_action,
    sysfs_address,
)
from .names import FIELDS, MEMORY_V2, NOT_SUPPORTED, THROTTLE_REASONS, error_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calls import Asking, FieldAnswers

MIB = 1024.0 * 1024.0
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
CLOCK_SM, CLOCK_MEMORY = 1, 2
THRESHOLDS = (("temperature_slowdown_c", 1), ("memory_temperature_max_c", 2))
CLOCKS_OF_BOARD = (
    ("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", CLOCK_SM),
    ("sm_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", CLOCK_SM),
    ("memory_max_mhz", "nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY),
)
MEMORY_TEMPERATURE = FIELDS["NVML_FI_DEV_MEMORY_TEMP"]
REMAPPED = tuple(
    FIELDS["NVML_FI_DEV_REMAPPED_" + name] for name in ("COR", "UNC", "PENDING", "FAILURE")
)
RETIRED = tuple(FIELDS["NVML_FI_DEV_RETIRED_" + name] for name in ("SBE", "DBE", "PENDING"))
REPLAYS, LINK_COUNT = (
    FIELDS["NVML_FI_DEV_PCIE_REPLAY_COUNTER"],
    FIELDS["NVML_FI_DEV_NVLINK_LINK_COUNT"],
)


def read_identity(asking: Asking) -> dict[str, Any]:
    """The fields that say which GPU it is: {uuid, minor, pci_address, model, ...}. asking.handle is
    set. Raises Lost."""
    handle = asking.handle
    pci = asking.ask("pci_address", "nvmlDeviceGetPciInfo", handle)
    capability = asking.ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", handle)
    architecture = asking.ask("architecture", "nvmlDeviceGetArchitecture", handle)
    return {
        "uuid": asking.ask("uuid", "nvmlDeviceGetUUID", handle),
        "minor": asking.ask("minor", "nvmlDeviceGetMinorNumber", handle),
        "pci_address": None if pci is None else sysfs_address(pci.busId),
        "model": asking.ask("model", "nvmlDeviceGetName", handle),
        "architecture": None
        if architecture is None
        else ARCHITECTURES.get(architecture, "unknown"),
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "vbios": asking.ask("vbios", "nvmlDeviceGetVbiosVersion", handle),
        "board_part_number": asking.ask(
            "board_part_number", "nvmlDeviceGetBoardPartNumber", handle
        ),
        "serial": asking.ask("serial", "nvmlDeviceGetSerial", handle),
    }


def read_state(asking: Asking, board: dict[str, Any]) -> dict[str, Any]:
    """All other fields of a GPU except its processes. board: a dict that caches the fixed values of
    this board. Raises Lost."""
    handle = asking.handle
    fields = asking.fields(
        REMAPPED
        + (REPLAYS, MEMORY_TEMPERATURE, RECOVERY)
        + (() if "no_retired_pages" in board else RETIRED)
    )
    bar1 = asking.ask("bar1_total_mib", "nvmlDeviceGetBAR1MemoryInfo", handle)
    utilization = asking.ask("utilization_percent", "nvmlDeviceGetUtilizationRates", handle)
    mig = asking.ask("mig", "nvmlDeviceGetMigMode", handle)
    persistence = asking.ask("persistence", "nvmlDeviceGetPersistenceMode", handle)
    state = {
        "inforom": asking.ask("inforom", "nvmlDeviceGetInforomImageVersion", handle),
        "pcie": read_pcie(asking, fields),
        "bar1_total_mib": bar1 and bar1.bar1Total / MIB,
        "bar1_used_mib": bar1 and bar1.bar1Used / MIB,
        "utilization_percent": utilization and utilization.gpu,
        "ecc": read_ecc(asking),
        "row_remap": read_row_remap(asking, fields),
        "retired_pages": read_retired_pages(asking, fields, board),
        "mig": mig and {"enabled": bool(mig[0]), "pending": bool(mig[1])},
        "persistence": None if persistence is None else bool(persistence),
        "compute_mode": COMPUTE_MODES.get(
            asking.ask("compute_mode", "nvmlDeviceGetComputeMode", handle)
        ),
        "gsp_version": asking.ask("gsp_version", "nvmlDeviceGetGspFirmwareVersion", handle),
        "fabric": read_fabric(asking),
        "recovery_action": read_recovery_action(asking, fields),
        "memory_temperature_c": read_memory_temperature(asking, fields),
    }
    state.update(read_memory(asking))
    state.update(read_power_and_clocks(asking, board))
    return state


def read_memory_temperature(asking: Asking, fields: FieldAnswers) -> int | None:
    """Temperature of the GPU's memory in C, or None on boards that do not measure it (they answer
    0)."""
    code, degrees = fields.get(MEMORY_TEMPERATURE, (NOT_SUPPORTED, None))
    if code or not degrees or degrees > 200:
        asking.note(
            "memory_temperature_c",
            NOT_SUPPORTED if code in UNKNOWN_FIELD else code,
            "NVML_FI_DEV_MEMORY_TEMP",
        )
        return None
    return int(degrees)


def read_pcie(asking: Asking, fields: FieldAnswers) -> dict[str, Any]:
    """{generation_now, generation_max, generation_card, width_now, width_max, replays}."""
    handle = asking.handle
    code, replays = fields.get(REPLAYS, (2, None))
    if code:
        replays = asking.ask("pcie.replays", "nvmlDeviceGetPcieReplayCounter", handle)
    return {
        "generation_now": asking.ask(
            "pcie.generation_now", "nvmlDeviceGetCurrPcieLinkGeneration", handle
        ),
        "generation_max": asking.ask(
            "pcie.generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", handle
        ),
        "generation_card": asking.ask(
            "pcie.generation_card", "nvmlDeviceGetGpuMaxPcieLinkGeneration", handle
        ),
        "width_now": asking.ask("pcie.width_now", "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "width_max": asking.ask("pcie.width_max", "nvmlDeviceGetMaxPcieLinkWidth", handle),
        "replays": replays,
    }


def read_memory(asking: Asking) -> dict[str, Any]:
    """{memory_total_mib, memory_used_mib, memory_reserved_mib}. Without the second version of the
    call, used includes the memory that the driver reserves."""
    found, code = asking.try_ask("nvmlDeviceGetMemoryInfo", asking.handle, MEMORY_V2)
    if code:
        found = asking.ask("memory_total_mib", "nvmlDeviceGetMemoryInfo", asking.handle)
        if found is None:
            return {"memory_total_mib": None, "memory_used_mib": None, "memory_reserved_mib": None}
        reason = f"{error_name(code)} from nvmlDeviceGetMemoryInfo_v2; memory_used_mib includes it"
        asking.unread.add(asking.prefix + "memory_reserved_mib", "absent", reason)
    reserved = None if code else found.reserved / MIB
    return {
        "memory_total_mib": found.total / MIB,
        "memory_used_mib": found.used / MIB,
        "memory_reserved_mib": reserved,
    }


def read_power_and_clocks(asking: Asking, board: dict[str, Any]) -> dict[str, Any]:
    """Power, clocks and temperature."""
    handle = asking.handle
    of_board(asking, board)
    limit = asking.ask("power_limit_w", "nvmlDeviceGetPowerManagementLimit", handle)
    draw = asking.ask("power_draw_w", "nvmlDeviceGetPowerUsage", handle)
    reasons = asking.ask_first(
        "clocks.throttle_reasons",
        ("nvmlDeviceGetCurrentClocksEventReasons", handle),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
    )
    return {
        "power_limit_w": limit and limit / 1000.0,
        **board["limits"],
        "power_draw_w": draw and draw / 1000.0,
        "clocks": {
            "sm_mhz": asking.ask("clocks.sm_mhz", "nvmlDeviceGetClockInfo", handle, CLOCK_SM),
            **board["clocks"],
            "memory_mhz": asking.ask(
                "clocks.memory_mhz", "nvmlDeviceGetClockInfo", handle, CLOCK_MEMORY
            ),
            "throttle_reasons": None
            if reasons is None
            else [name for bit, name in THROTTLE_REASONS if reasons & bit],
        },
        "temperature_c": asking.ask("temperature_c", "nvmlDeviceGetTemperature", handle, 0),
    }


def of_board(asking: Asking, board: dict[str, Any]) -> None:
    """Puts read_board's answer into `board`, asked once per board unless a call failed; its reasons
    are noted for each GPU."""
    if "rows" not in board:
        alone = asking.about("", asking.label, Unread())
        board.update(read_board(alone))
        board["rows"] = alone.unread.rows
    for row in board["rows"]:
        asking.unread.add(asking.prefix + row["field"], row["status"], row["reason"])
    if any(row["status"] not in ("absent", "denied") for row in board["rows"]):
        del board["rows"]  # this GPU failed, not the board: the next one is asked itself


def read_board(asking: Asking) -> dict[str, Any]:
    """Values that the board and its VBIOS fix: {limits, clocks}."""
    handle = asking.handle
    default = asking.ask(
        "power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", handle
    )
    bounds = asking.ask("power_limit_max_w", "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    return {
        "limits": {
            "power_limit_default_w": default and default / 1000.0,
            "power_limit_max_w": bounds and bounds[1] / 1000.0,
            **{
                name: asking.ask(name, "nvmlDeviceGetTemperatureThreshold", handle, threshold)
                for name, threshold in THRESHOLDS
            },
        },
        "clocks": {
            name: asking.ask(f"clocks.{name}", call, handle, clock)
            for name, call, clock in CLOCKS_OF_BOARD
        },
    }


def read_ecc(asking: Asking) -> dict[str, Any] | None:
    """ECC mode and totals, or None where the GPU has no ECC."""
    handle = asking.handle
    mode = asking.ask("ecc", "nvmlDeviceGetEccMode", handle)
    if mode is None:
        return None
    ecc: dict[str, Any] = {"enabled": bool(mode[0]), "pending": bool(mode[1])}
    for name, kind, counter in (
        ("corrected_volatile", 0, 0),
        ("uncorrected_volatile", 1, 0),
        ("corrected_aggregate", 0, 1),
        ("uncorrected_aggregate", 1, 1),
    ):
        ecc[name] = (
            asking.ask("ecc." + name, "nvmlDeviceGetTotalEccErrors", handle, kind, counter)
            if mode[0]
            else None
        )
    sram = (
        asking.ask("ecc.sram_threshold_exceeded", "nvmlDeviceGetSramEccErrorStatus", handle)
        if mode[0]
        else None
    )
    ecc["sram_threshold_exceeded"] = None if sram is None else bool(sram.bThresholdExceeded)
    return ecc


def read_row_remap(asking: Asking, fields: FieldAnswers) -> dict[str, Any] | None:
    """Remapped rows (from Ampere on), or None."""
    codes = [fields.get(number, (2, None))[0] for number in REMAPPED]
    if not any(codes):
        rows = [fields[number][1] for number in REMAPPED]
    elif NOT_SUPPORTED in codes:
        asking.note("row_remap", NOT_SUPPORTED, "NVML_FI_DEV_REMAPPED_COR")
        return None
    else:
        rows = asking.ask("row_remap", "nvmlDeviceGetRemappedRows", asking.handle)
        if rows is None:
            return None
    spare = asking.ask(
        "row_remap.banks_without_spare", "nvmlDeviceGetRowRemapperHistogram", asking.handle
    )
    return {
        "corrected": rows[0],
        "uncorrected": rows[1],
        "pending": bool(rows[2]),
        "failed": bool(rows[3]),
        "banks_without_spare": None if spare is None else spare.none,
    }


def read_retired_pages(
    asking: Asking, fields: FieldAnswers, board: dict[str, Any]
) -> dict[str, Any] | None:
    """Retired pages (before Ampere), or None. If a board model does not support them, only its
    first GPU is asked."""
    code = board.get("no_retired_pages") or next(
        (fields[number][0] for number in RETIRED if number in fields and fields[number][0]),
        0 if fields else 13,
    )
    if code == NOT_SUPPORTED:  # any other code is this GPU's own failure
        board["no_retired_pages"] = code
    if code:
        asking.note("retired_pages", code, "NVML_FI_DEV_RETIRED_SBE")
        return None
    single, double, pending = (fields[number][1] for number in RETIRED)
    return {"single_bit": single, "double_bit": double, "pending": bool(pending)}
