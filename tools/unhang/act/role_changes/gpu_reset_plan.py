"""Plans what the role gpu_reset does on a node: the GPUs to reset, or the boot that they need, and
what refuses it. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.act.role_changes.driver_inputs import DriverInputs
from unhang.act.role_changes.driver_refusals import foreign_users, partitioned_gpus
from unhang.act.role_changes.node_refusals import Refusal, refusal
from unhang.core.catalogue.own_tables import table
from unhang.core.gpu_verbs import DONE_BY_ROLE, REBOOT, TABLES, GpuVerb, gpu_verbs

# From Ampere on a GPU with NVLinks can be reset alone, with NVSwitch only while fabric manager
# runs: https://docs.nvidia.com/deploy/nvidia-smi/index.html
RESET_TOGETHER = ("kepler", "maxwell", "pascal", "volta", "turing")


def plan_gpu_reset(inputs: DriverInputs, pending_reboot: str = "") -> dict[str, Any]:
    """{gpus, whole, reboot, refusals, notes}. gpus: rows for the module gpu_services; whole: all
    GPUs of the node together; reboot: why the node must boot, "" to reset the GPUs. pending_reboot:
    why it boots anyway."""
    verbs = gpu_verbs(inputs.sections, {name: table(name) for name in TABLES})
    asked = [one for one in verbs if one.verb in DONE_BY_ROLE]
    notes = [
        f"not done by this role: {_line(one)}"
        + ("; unhang report -o ticket writes the vendor's ticket" if one.verb == "replace" else "")
        for one in verbs
        if one not in asked
    ]
    if not asked:
        return _plan([], notes=notes)
    boots = [_line(one) for one in asked if one.verb == REBOOT]
    if boots or pending_reboot:
        why = "; ".join(boots) or "the boot that is due resets the GPUs too"
        return _plan(asked, reboot=why, notes=[*notes, f"the node must boot: {why}"])
    whole = needs_whole(inputs)
    refusals = list(_refusals(inputs, asked, whole))
    notes += [f"to do: {_line(one)}" for one in asked]
    notes += ["this board needs all GPUs reset together"] if whole else []
    if inputs.options.previews:  # jobs may have ended before the role acts
        notes += [f"refused as long as it is so: {one['text']}" for one in refusals]
        refusals = []
    return _plan(asked, whole=bool(whole), refusals=refusals, notes=notes)


def needs_whole(inputs: DriverInputs) -> bool | None:
    """Whether the GPUs can be reset only together; None where that was not read."""
    devices = inputs.fact("gpus.devices") or ()
    if len(devices) < 2:
        return False
    switched = inputs.fact("fabric_manager.nvswitch_present")
    links = inputs.fact("interconnect.by_gpu")
    if switched is None or links is None:
        return None
    if not any(one.get("nvlinks_active") for one in links):
        return False
    if any(one.get("architecture") in (None, "unknown", *RESET_TOGETHER) for one in devices):
        return True
    return bool(switched) and not inputs.fact("fabric_manager.running")


def _refusals(
    inputs: DriverInputs, asked: Sequence[GpuVerb], whole: bool | None
) -> Iterator[Refusal]:
    let_end = "drain the node and let them end"
    users = [*foreign_users(inputs), *_nvml_users(inputs)]
    if users:
        found = ", ".join(users[:8])
        yield refusal("in-use", "GPUs that nobody uses", found, inputs.host, let_end)
    if whole is None:
        found = "that NVSwitches or NVLinks could not be read"
        expected = "to see whether a GPU can be reset alone"
        yield refusal("links-unknown", expected, found, inputs.host, "apply the role as root")
    partitioned = partitioned_gpus(inputs)
    if partitioned:
        found = ", ".join(partitioned)
        next_step = "delete the instances, reset the GPU, and make them again"
        yield refusal("mig", "GPUs without instances", found, inputs.host, next_step)
    for one in asked:
        if one.uuid is None:
            found = f"none of {one.name}"
            yield refusal("no-uuid", "a UUID", found, inputs.host, "reboot the node")


def _nvml_users(inputs: DriverInputs) -> Iterator[str]:
    """Processes on a GPU by NVML that /proc did not show, as of a container whose processes are
    hidden."""
    known = {row["pid"] for row in inputs.users.get("processes") or ()}
    for device in inputs.fact("gpus.devices") or ():
        for process in device.get("processes") or ():
            if process.get("pid") not in known:
                yield f"process {process.get('pid')} on GPU {device.get('index')}, by NVML"


def _line(one: GpuVerb) -> str:
    return f"{one.verb}: {one.name}, for {', '.join(one.because)}"


def _plan(asked: Sequence[GpuVerb], **more: Any) -> dict[str, Any]:
    rows: list[Mapping[str, Any]] = [
        {
            "uuid": one.uuid,
            "pci_address": one.pci_address,
            "verb": one.verb,
            "because": list(one.because),
        }
        for one in asked
    ]
    empty = {"whole": False, "reboot": "", "refusals": [], "notes": []}
    return {"gpus": rows, **empty, **more}
