"""Puts values of the running system back, each kind by those who set it. Nothing is changed under a job, and nothing that somebody else has changed since."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...process import output_of
from ..boot import parameters as boot_parameters
from ..gpu import modes
from ..host import kernel_module as kernel_module_run
from ..host import kernel_parameter as kernel_parameter_run
from ..host import limit as limit_run
from ..host import service as service_run
from ..host import shm_size as shm_size_run
from ..journal.node_lock import read_boot_id
from ..journal.running_values import GPU_MODES, read_running, value_before


class Row(NamedTuple):
    """One value to be put back."""

    kind: str
    name: str
    before: Any
    after: Any


class Kind(NamedTuple):
    """How values of one kind are put back."""

    read: Callable[[str], Any]  # None where there is nothing to put back into
    write: Callable[[str, Any], object]
    why_not: Callable[[str, Any], str | None]  # why the value stays as it is


LoadPynvml = Callable[[], Any]  # gives nvidia-ml-py, which is imported only where it is needed
LOGIND, LOGIND_UNIT = "/etc/systemd/logind.conf", "systemd-logind.service"


def plan_running(rootfs: str, state_ids: Iterable[str], load_pynvml: LoadPynvml) -> tuple[list[Row], list[str]]:
    """([Row], [line for a person]). state_ids: newest first. load_pynvml: () -> nvidia-ml-py, asked only where a GPU's mode was changed.

    Raises OSError, and ValueError where a job has a GPU whose compute mode would change.
    """
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
        raise ValueError("expected saved values of {}, found {}; was it saved by a newer unhang?".format(", ".join([*kinds, *GPU_MODES]), ", ".join(unknown)))
    gpu_rows, manual = _plan_gpus(chains, load_pynvml)
    rows = list(gpu_rows)
    for (kind, name), records in sorted((key, records) for key, records in chains.items() if key[0] in kinds):
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
    """[line] of what could not be put back, which never keeps the rest of a rollback from being done: the next boot brings it."""
    kinds, manual = kinds_of(rootfs), []
    gpu_rows = [row for row in rows if row.kind in GPU_MODES]
    for row in [row for row in rows if row.kind not in GPU_MODES]:
        try:
            kinds[row.kind].write(row.name, row.after)
        except (OSError, ValueError) as problem:
            manual.append(f"{shown_name(row.kind, row.name)}: could not be put back before the next boot: {problem}")
    if gpu_rows:
        nvml, why = modes.open_nvml(load_pynvml)
        try:
            if nvml:
                gpus = {gpu.uuid: gpu for gpu in modes.read_gpus(nvml)}
                modes.set_modes(nvml, [modes.ModeChange(gpu=gpus[row.name], mode=row.kind, wanted=row.after) for row in gpu_rows])
        except (ValueError, KeyError, nvml.NVMLError) as problem:
            why = str(problem)
        manual += [f"modes of GPUs: could not be put back before the next boot: {why}"] if why else []
    return manual


def rows_of_rereaders(rootfs: str, paths: Iterable[str]) -> list[Row]:
    """[Row] of services of this system that read their files only on a signal."""
    return [Row(kind="files", name=LOGIND_UNIT, before="read", after="read again")] if rootfs == "/" and any(path.startswith(LOGIND) for path in paths) else []


def reload_services(rows: Sequence[Row]) -> list[str]:
    """[line] of services that did not take their files again."""
    manual = []
    for row in rows:
        try:
            output_of(["systemctl", "kill", "--signal=HUP", row.name])
        except (OSError, ValueError) as problem:
            manual.append(f"{row.name}: reads its files at the next boot: {problem}")
    return manual


def shown_name(kind: str, name: str) -> str:
    """As a person reads it."""
    return f"{kind} of GPU {name}" if kind in GPU_MODES else "{} {}".format(kind.replace("_", " "), name)


def kinds_of(rootfs: str) -> dict[str, Kind]:
    """{kind: Kind} of what is put back without NVML. A tree that does not run has nothing but files; a planted /proc/sys counts as one."""
    live = rootfs == "/"

    def if_live(read: Callable[[str], Any]) -> Callable[[str], Any]:
        return read if live else lambda _name: None

    return {
        "sysctl": Kind(
            read=lambda name: one_blank(kernel_parameter_run.running_value(rootfs, name)),
            write=lambda name, value: kernel_parameter_run.set_running(rootfs, name, value),
            why_not=_always,
        ),
        "shm_size": Kind(
            read=if_live(lambda _name: _shm_size()),
            write=lambda _name, value: shm_size_run.remount(value),
            why_not=lambda _name, value: shm_size_run.why_no_less(value),
        ),
        "limit": Kind(read=if_live(limit_run.read_running), write=limit_run.write_running, why_not=_always),
        "service_at_boot": Kind(
            read=if_live(lambda name: service_run.read_state(name, "at boot")), write=service_run.undo_at_boot, why_not=service_run.why_not_undone
        ),
        "service_now": Kind(read=if_live(lambda name: service_run.read_state(name, "now")), write=service_run.undo_now, why_not=_always),
        "boot_parameter": Kind(read=if_live(boot_parameters.read_parameter), write=boot_parameters.write_parameter, why_not=_always),
        "kernel_module": Kind(
            read=if_live(lambda name: "loaded" if kernel_module_run.is_loaded(name) else "not loaded"), write=_never, why_not=_unloads_nothing
        ),
    }


def one_blank(text: str | None) -> str | None:
    """A value whose words stand apart by one blank, as the kernel shows them by tabs and takes them by any."""
    return text if text is None else " ".join(text.split())


def _plan_gpus(chains: dict[tuple[str, str], list[dict[str, Any]]], load_pynvml: LoadPynvml) -> tuple[list[Row], list[str]]:
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
    modes.refuse_in_use([modes.ModeChange(gpu=gpus[row.name], mode=row.kind, wanted=row.after) for row in rows])
    return sorted(rows, key=lambda row: (row.kind != "persistence", gpus[row.name].index)), manual


def _row(kind: str, name: str, now: Any, records: Sequence[dict[str, Any]]) -> tuple[Row | None, str | None]:
    """(Row or None, why it stays or None)."""
    before = value_before(now, records)
    if before is None:
        return None, "somebody changed it since, found {}, expected {}; it stays".format(now, records[0]["set"][-1])
    return (None if now == before else Row(kind=kind, name=name, before=now, after=before)), None


def _shm_size() -> int | None:
    return shm_size_run.size_now() if os.path.ismount(shm_size_run.SHM) else None


def _always(_name: str, _value: Any) -> None:
    return None


def _never(_name: str, _value: Any) -> None:
    raise ValueError("no module is unloaded")


def _unloads_nothing(_name: str, _value: Any) -> str:
    return "stays loaded until the node boots, for it may be in use without a sign of it"
