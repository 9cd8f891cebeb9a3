"""Restores values of the running system, each kind with the code that sets it. Skips values that a
job uses or somebody else has changed since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...base.process import output_of
from ..boot import parameters as boot_parameters
from ..config.unit_links import read_starters
from ..gpu import modes
from ..host import apply_limit, kernel_module, kernel_parameter, service, shm_size
from ..journal.as_written import why_it_stays
from ..journal.node_lock import read_boot_id
from ..journal.running_values import GPU_MODES, read_running, value_before


class Row(NamedTuple):
    """One value to restore."""

    kind: str
    name: str
    before: Any
    after: Any


class Kind(NamedTuple):
    """How values of one kind are restored."""

    read: Callable[[str], Any]  # None if the value does not exist any more
    write: Callable[[str, Any], object]
    why_not: Callable[[str, Any], str | None]  # the reason why the value is not restored


LoadPynvml = Callable[[], Any]  # returns nvidia-ml-py, which is imported only if it is needed
LOGIND, LOGIND_UNIT = "/etc/systemd/logind.conf", "systemd-logind.service"


def plan_running(
    rootfs: str, state_ids: Iterable[str], load_pynvml: LoadPynvml
) -> tuple[list[Row], list[str]]:
    """([Row], [line for a person]). state_ids: newest first. load_pynvml: () -> nvidia-ml-py,
    called only if a GPU's mode was changed. Raises OSError, and ValueError if a job uses a GPU
    whose compute mode would change."""
    chains: dict[tuple[str, str], list[dict[str, Any]]] = {}
    boot_id = read_boot_id(rootfs)
    for state_id in state_ids:
        for record in read_running(rootfs, state_id):
            if record["kind"] in GPU_MODES and record.get("boot_id") != boot_id:
                continue
            chains.setdefault((record["kind"], record["name"]), []).append(record)
    kinds = kinds_of(rootfs)
    unknown = sorted({kind for kind, _name in chains} - set(kinds) - set(GPU_MODES))
    if unknown:
        raise ValueError(
            f"the saved state has values of {', '.join(unknown)}, and this unhang knows"
            f" {', '.join([*kinds, *GPU_MODES])}; was it saved by a newer unhang?"
        )
    gpu_rows, manual = _plan_gpus(chains, load_pynvml)
    rows = list(gpu_rows)
    for (kind, name), records in sorted(
        (key, records) for key, records in chains.items() if key[0] in kinds
    ):
        now = kinds[kind].read(name)
        if now is None:
            continue
        row, why = _row(kind, name, now, records)
        why = why or (row and kinds[kind].why_not(name, row.after))
        if why:
            manual.append(f"{shown_name(kind, name)}: {why}")
        elif row:
            rows.append(row)
    return rows, manual


def put_back(rootfs: str, rows: Sequence[Row], load_pynvml: LoadPynvml) -> list[str]:
    """[line] of values that could not be restored, which does not stop a rollback: the next boot
    sets them."""
    kinds, manual = kinds_of(rootfs), []
    gpu_rows = [row for row in rows if row.kind in GPU_MODES]
    for row in [row for row in rows if row.kind not in GPU_MODES]:
        try:
            kinds[row.kind].write(row.name, row.after)
        except (OSError, ValueError) as problem:
            manual.append(
                f"{shown_name(row.kind, row.name)}: could not be put back before the next boot:"
                f" {problem}"
            )
    if gpu_rows:
        nvml, why = modes.open_nvml(load_pynvml)
        try:
            if nvml:
                gpus = {gpu.uuid: gpu for gpu in modes.read_gpus(nvml)}
                modes.set_modes(
                    nvml,
                    [
                        modes.ModeChange(gpu=gpus[row.name], mode=row.kind, wanted=row.after)
                        for row in gpu_rows
                    ],
                )
        except (ValueError, KeyError, nvml.NVMLError) as problem:
            why = str(problem)
        manual += (
            [f"modes of GPUs: could not be put back before the next boot: {why}"] if why else []
        )
    return manual


def rows_of_rereaders(rootfs: str, paths: Iterable[str]) -> list[Row]:
    """[Row] of services of this system that read their files only on a signal."""
    return (
        [Row(kind="files", name=LOGIND_UNIT, before="read", after="read again")]
        if rootfs == "/" and any(path.startswith(LOGIND) for path in paths)
        else []
    )


def reload_services(rows: Sequence[Row]) -> list[str]:
    """Reloads services; returns a line for each that did not reload its files."""
    manual = []
    for row in rows:
        try:
            output_of(["systemctl", "kill", "--signal=HUP", row.name])
        except (OSError, ValueError) as problem:
            manual.append(f"{row.name}: reads its files at the next boot: {problem}")
    return manual


def shown_name(kind: str, name: str) -> str:
    """The name of a value for people."""
    return f"{kind} of GPU {name}" if kind in GPU_MODES else f"{kind.replace('_', ' ')} {name}"


def kinds_of(rootfs: str) -> dict[str, Kind]:
    """{kind: Kind} of the values that are restored without NVML. A tree that is not the running
    system has only files, which a prepared /proc/sys is too."""
    live = rootfs == "/"

    def if_live(read: Callable[[str], Any]) -> Callable[[str], Any]:
        return read if live else lambda _name: None

    return {
        "sysctl": Kind(
            read=lambda name: kernel_parameter.running_value(rootfs, name),
            write=lambda name, value: kernel_parameter.set_running(rootfs, name, value),
            why_not=_always,
        ),
        "shm_size": Kind(
            read=if_live(lambda _name: _shm_size()),
            write=lambda _name, value: shm_size.remount(value),
            why_not=lambda _name, value: shm_size.why_no_less(value),
        ),
        "limit": Kind(
            read=if_live(apply_limit.read_running), write=apply_limit.write_running, why_not=_always
        ),
        "service_at_boot": Kind(
            read=if_live(lambda name: service.read_state(name, "at boot")),
            write=service.undo_at_boot,
            why_not=service.why_not_undone,
        ),
        "started_by": Kind(
            read=lambda name: read_starters(rootfs, name),
            write=lambda name, targets: service.write_starters(rootfs, name, targets),
            why_not=lambda name, targets: service.why_not_started(rootfs, name, targets),
        ),
        "service_now": Kind(
            read=if_live(lambda name: service.read_state(name, "now")),
            write=service.undo_now,
            why_not=_always,
        ),
        "boot_parameter": Kind(
            read=if_live(boot_parameters.read_parameter),
            write=boot_parameters.write_parameter,
            why_not=_always,
        ),
        "kernel_module": Kind(
            read=if_live(lambda name: "loaded" if kernel_module.is_loaded(name) else "not loaded"),
            write=_never,
            why_not=_unloads_nothing,
        ),
    }


def _plan_gpus(
    chains: dict[tuple[str, str], list[dict[str, Any]]], load_pynvml: LoadPynvml
) -> tuple[list[Row], list[str]]:
    chains = {key: records for key, records in chains.items() if key[0] in GPU_MODES}
    if not chains:
        return [], []
    nvml, why = modes.open_nvml(load_pynvml)
    if nvml is None:
        return [], [f"modes of GPUs stay as they are until the driver is loaded again: {why}"]
    try:
        gpus = {gpu.uuid: gpu for gpu in modes.read_gpus(nvml)}
    except nvml.NVMLError as problem:
        return [], [f"modes of GPUs stay as they are until the driver is loaded again: {problem}"]
    rows, manual = [], []
    for (kind, uuid), records in sorted(chains.items(), key=lambda item: item[0]):
        now = getattr(gpus[uuid], kind) if uuid in gpus else None
        row, why = (None, None) if now is None else _row(kind, uuid, now, records)
        manual += [f"{shown_name(kind, uuid)}: {why}"] if why else []
        rows += [row] if row else []
    modes.refuse_in_use(
        [modes.ModeChange(gpu=gpus[row.name], mode=row.kind, wanted=row.after) for row in rows]
    )
    return sorted(rows, key=lambda row: (row.kind != "persistence", gpus[row.name].index)), manual


def _row(
    kind: str, name: str, now: Any, records: Sequence[dict[str, Any]]
) -> tuple[Row | None, str | None]:
    """(Row or None, the reason why the value is not restored or None)."""
    before = value_before(now, records)
    if before is None:
        return (
            None,
            why_it_stays(records[0]["set"][-1], now),
        )
    return (None if now == before else Row(kind=kind, name=name, before=now, after=before)), None


def _shm_size() -> int | None:
    return shm_size.size_now() if os.path.ismount(shm_size.SHM) else None


def _always(_name: str, _value: Any) -> None:
    return None


def _never(_name: str, _value: Any) -> None:
    raise ValueError("no module is unloaded")


def _unloads_nothing(_name: str, _value: Any) -> str:
    return "stays loaded until the node boots, for it may be in use without a sign of it"
