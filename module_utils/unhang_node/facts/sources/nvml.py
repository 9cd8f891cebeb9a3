"""Source nvml: GPUs, NVLink and pairs through one NVML session, streamed as they are read, so that
a call that never returns costs only the facts after it.

Sections: gpus, interconnect (links, by_gpu, pairs, p2p_ok, fabric_state), and three fields of
driver (cuda_version, nvml_version, gsp_firmware).
"""

from __future__ import annotations

import itertools
import time

from ...base.nvml.calls import Asking, Lost
from ...base.nvml.devices import read_identity, read_state
from ...base.nvml.gpu_fields import read_fabric
from ...base.nvml.interconnect import (
    count_between,
    count_by_gpu,
    judge_all_read,
    read_links,
    read_pair,
    sum_up_fabric,
)
from ...base.nvml.names import DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH, NO_PERMISSION, error_name
from ...base.nvml.process_rows import read_processes
from ...base.section import Absent, Unread
from ..sections.pci import read_pci_device
from .nvml_session import gpus_on_bus, open_handles, open_live_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ...base.context import Context, MarkFunction
    from ...base.nvml.live import Warmth
    from ...base.section import SectionPiece, SourcePiece

MORE = "more of this section follows"


def read(ctx: Context, warmth: Warmth | Exception | None) -> Iterator[SourcePiece]:
    """Yields (section, fields, unread rows). Raises Absent on a node without GPU. warmth: the
    result of live.begin_warming."""
    session = open_session(ctx, warmth)
    places = read_places(ctx)
    begun = time.monotonic()
    ctx.mark("nvmlInitWithFlags")
    try:
        session.nvmlInit()
    except session.NVMLError as problem:
        yield from _explain_failed_init(ctx, problem.value)
        return
    unread = Unread()
    asking = Asking(session, ctx.mark, unread)
    handles, lost, first_s = open_handles(ctx, asking)
    first_handle_ms = round(session.first_handle_ms or (first_s - begun) * 1000, 1)
    if ctx.wanted("driver"):
        yield read_driver(session, ctx.mark, handles)
    devices = []
    if ctx.wanted("gpus") or ctx.wanted("interconnect"):
        handles.update(dict.fromkeys(lost))
        devices = [_identity(asking, index, handles, lost) for index in sorted(handles)]
    if ctx.wanted("gpus"):
        yield (
            "gpus",
            {
                "count": len(handles),
                "model": one_model(devices),
                "first_handle_ms": first_handle_ms,
                "devices": devices,
            },
            [],
            MORE,
        )
        yield from _states(ctx, asking, devices, handles, places)
        for device in devices:
            if device["error"]:
                unread.add(f"devices[{device['index']}]", "absent", device["error"])
        yield "gpus", {}, unread.rows
    if ctx.wanted("interconnect"):
        yield from _interconnect(ctx, Asking(session, ctx.mark, Unread()), devices, handles)


def open_session(ctx: Context, warmth: Warmth | Exception | None) -> Any:
    """A recorded or live session, not yet initialised. Raises Absent, OSError, ValueError."""
    recording = ctx.options.get("nvml_recording")
    if recording:
        # the import costs 2 ms, which a live session saves
        from ...base.nvml.recorded import RecordedSession
        from ...base.nvml.recording import load_recording

        ctx.mark(f"read {recording}")
        return RecordedSession(load_recording(recording))
    if warmth is None:
        raise Absent("a recorded root without a recording of NVML (option nvml_recording)")
    return open_live_session(ctx, warmth)


def read_places(ctx: Context) -> dict[str, dict[str, Any]]:
    """{PCI address: read_pci_device's answer} of the GPUs on the bus, read while the driver starts
    up."""
    return {address: read_pci_device(ctx.root, address) for address in gpus_on_bus(ctx)}


def _explain_failed_init(ctx: Context, code: int) -> Iterator[SourcePiece]:
    reason = f"{error_name(code)} from nvmlInitWithFlags"
    if code == LIB_RM_VERSION_MISMATCH and ctx.wanted("driver"):
        yield "driver", {"mismatch": True, "mismatch_text": reason}, []
    if code == DRIVER_NOT_LOADED and not gpus_on_bus(ctx):
        raise Absent(f"{reason}: no NVIDIA GPU on the PCI bus")
    if code == NO_PERMISSION:
        raise PermissionError(13, reason)
    raise OSError(reason)


def read_driver(session: Any, mark: MarkFunction, handles: dict[int, Any]) -> SectionPiece:
    """The piece of section driver: NVML's versions, and the GSP firmware of the first GPU."""
    unread = Unread()
    asking = Asking(session, mark, unread)
    cuda = asking.ask_first(
        "cuda_version", ("nvmlSystemGetCudaDriverVersion_v2",), ("nvmlSystemGetCudaDriverVersion",)
    )
    fields = {
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "nvml_version": asking.ask("nvml_version", "nvmlSystemGetNVMLVersion"),
        "gsp_firmware": None,
    }
    first = next((handle for handle in handles.values() if handle is not None), None)
    if first is not None:
        try:
            mode = asking.about("", "GPU 0").ask(
                "gsp_firmware", "nvmlDeviceGetGspFirmwareMode", first
            )
            version = (
                asking.about("", "GPU 0").ask(
                    "gsp_firmware.version", "nvmlDeviceGetGspFirmwareVersion", first
                )
                if mode and mode[0]
                else None
            )
            fields["gsp_firmware"] = mode and {"enabled": bool(mode[0]), "version": version}
        except Lost as problem:
            unread.add("gsp_firmware", "error", problem)
    return "driver", fields, unread.rows


def one_model(devices: list[dict[str, Any]]) -> str | None:
    """The model, if all devices that answer have the same, else None."""
    models = {device.get("model") for device in devices if not device.get("error")}
    return models.pop() if len(models) == 1 else None


def _about(asking: Asking, prefix: str, device: dict[str, Any], handles: dict[int, Any]) -> Asking:
    """Its calls are marked with the GPU, as nvmlDeviceGetMigMode(GPU 4 0000:5a:00.0)."""
    index, address = device["index"], device.get("pci_address")
    label = f"GPU {index} {address}" if address else f"GPU {index}"
    return asking.about(prefix, label, handle=handles[index])


def _identity(
    asking: Asking, index: int, handles: dict[int, Any], lost: dict[int, str]
) -> dict[str, Any]:
    device = {"index": index, "error": lost.get(index)}
    if handles[index] is not None:
        try:
            about = _about(asking, f"devices[{index}].", device, handles)
            device.update(read_identity(about))
        except Lost as problem:
            device["error"], handles[index] = str(problem), None
    return device


def _states(
    ctx: Context,
    asking: Asking,
    devices: list[dict[str, Any]],
    handles: dict[int, Any],
    places: dict[str, dict[str, Any]],
) -> Iterator[SourcePiece]:
    boards: dict[Any, dict[str, Any]] = {}
    owners: dict[int, dict[str, str | None]] = {}
    for device in devices:
        index = device["index"]
        address = device.get("pci_address")
        if address:
            place = places.get(address) or read_pci_device(ctx.root, address)
            device.update(numa_node=place["numa_node"], cpus=place["cpus"])
        if handles[index] is not None:
            board = boards.setdefault(
                (device["model"], device["board_part_number"], device["vbios"]), {}
            )
            about = _about(asking, f"devices[{index}].", device, handles)
            try:
                device.update(read_state(about, board))
                if address and device.get("pcie"):
                    device["pcie"].update(
                        errors_fatal=place["errors_fatal"], errors_nonfatal=place["errors_nonfatal"]
                    )
                device["processes"] = read_processes(about, ctx.root, owners)
            except Lost as problem:
                device["error"], handles[index] = str(problem), None
        yield "gpus", {"devices": [device]}, [], MORE


def _interconnect(
    ctx: Context, asking: Asking, devices: list[dict[str, Any]], handles: dict[int, Any]
) -> Iterator[SourcePiece]:
    links, by_gpu, states = {}, [], []
    for device in devices:
        index = device["index"]
        if handles[index] is None:
            continue
        about = _about(asking, "", device, handles)
        try:
            links[index] = read_links(about, index)
            fabric = device["fabric"] if "fabric" in device else read_fabric(about)
        except Lost as problem:
            asking.unread.add(f"links[gpu={index}]", "error", str(problem))
            handles[index] = None
            continue
        by_gpu.append(count_by_gpu(index, device.get("uuid"), links[index]))
        states.append((fabric or {}).get("state"))
    rows = [row for index in sorted(links) for row in links[index]]
    yield (
        "interconnect",
        {"links": rows, "by_gpu": by_gpu, "fabric_state": sum_up_fabric(states)},
        [],
        MORE,
    )
    addresses = {device["index"]: device.get("pci_address") for device in devices}
    pairs = _read_pairs(asking, handles, ctx.options.get("p2p_matrix") == "full")
    for row in pairs:
        row["nvlinks"] = count_between(links, addresses, row["a"], row["b"])
    all_read = judge_all_read(pairs)
    if all_read is None and None in handles.values():
        asking.unread.add("p2p_ok", "absent", "not every GPU answers")
    yield "interconnect", {"pairs": pairs, "p2p_ok": all_read}, asking.unread.rows


def _read_pairs(asking: Asking, handles: dict[int, Any], in_full: bool) -> list[dict[str, Any]]:
    """One row for each pair of GPUs."""
    pairs: list[dict[str, Any]] = []
    for a, b in itertools.combinations(sorted(handles), 2):
        name = f"pairs[{len(pairs)}]"
        pairs.append(read_pair(asking, name, (a, handles[a]), (b, handles[b]), in_full))
        gone = [gpu for gpu in (a, b) if handles[gpu] is None]
        if gone:
            asking.unread.add(name, "absent", f"GPU {gone[0]} does not answer")
    return pairs
