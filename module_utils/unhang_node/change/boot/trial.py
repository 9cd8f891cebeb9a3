"""The trial of a kernel: the old kernel stays the default until the new one is confirmed, whatever
happens in between. Each function returns the remaining steps, in an order in which the node can
boot after a power cut at any of them.

A distribution's kernel package makes its kernel the default, so `prepared` comes before the
packages: it makes the running kernel the default by the entry's own id. A newer kernel that
somebody installs by hand therefore does not boot by itself afterwards. On confirmation the guard is
removed before the default changes. systemd-boot's boot counting is not used: only newer
kernel-install writes such names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..atomic_files import FELL_BACK, place_of, read_state, read_text_or_none, write_state
from ..journal.node_lock import utc_text
from . import kernels
from . import loader as loaders
from . import steps as steps_of
from .entries import GRUB_DROP_IN, with_options, without_options
from .loader import Loader, NotPossible
from .steps import Step

STATE = "boot_trial"


class Trial(NamedTuple):
    """A kernel on trial."""

    release: str
    trial_options: str  # kernel parameters while it is on trial
    confirm_within_s: int  # deadline of the confirmation, in seconds after its start
    gpus: Sequence[str]  # identities of the GPUs that the old kernel has
    modules: Sequence[str]


def read_record(rootfs: str) -> dict[str, Any]:
    """The record of the last trial, {} if there was none."""
    return {key: value for key, value in read_state(rootfs, STATE).items() if key != "schema"}


def read_standing(rootfs: str) -> str:
    """State of the last trial. Raises OSError.

    none, prepared, armed (waits for the reboot), on_trial (runs, not confirmed), confirmed,
    cancelled, fell_back.
    """
    record = read_record(rootfs)
    status = record.get("status", "none")
    if status != "armed":
        return str(status)
    if kernels.running_release(rootfs) == record["release"]:
        return "on_trial"
    return "armed" if kernels.boot_id(rootfs) == record["boot_id"] else "fell_back"


def why_fell_back(rootfs: str) -> str:
    """The reason why the kernel fell back, in one line. Raises OSError."""
    record = read_record(rootfs)
    if record.get("why"):
        return str(record["why"])
    text = read_text_or_none(place_of(rootfs, FELL_BACK))
    if text and record.get("release") and record["release"] in text:
        return text.strip()
    running, tried, old = (
        kernels.running_release(rootfs),
        record.get("release"),
        record.get("old_release"),
    )
    if tried and old and running not in (tried, old):
        return (
            f"the node came back on {running}, which is neither {tried} nor {old}: somebody or"
            f" something else chose it; the next boot takes {old}"
        )
    return (
        f"{record.get('release')} did not come up, or not long enough to say anything; read its"
        " console"
    )


def prepare_steps(rootfs: str, trial_options: str) -> list[Step]:
    """Make the running kernel the default by name, so that a newer kernel is not started as soon as
    it is installed. Raises NotPossible, OSError."""
    loader = loaders.read_loader(rootfs)
    loaders.check_can_try(loader)
    standing, running, record = (
        read_standing(rootfs),
        kernels.running_release(rootfs),
        read_record(rootfs),
    )
    if standing == "on_trial":
        raise NotPossible(
            f"a trial is under way: {running} is on trial; confirm or cancel it first"
        )
    if loader.one_shot and standing != "armed":
        raise NotPossible(
            f"somebody else set the one-shot boot entry {loader.one_shot!r}; clear it or reboot"
            " into it first"
        )
    entry = loaders.entry_for(rootfs, loader, running)
    loaders.check_name_stays(loader, entry)
    steps = steps_of.default_steps(rootfs, loader, entry) + steps_of.config_steps(
        rootfs, loader, steps_of.our_drop_in(loader, trial_options)
    )
    if not steps or standing in ("prepared", "armed"):
        return steps
    # After a trial that fell back or was cancelled, unhang's file may remain. The original
    # configuration is then in the record, not in the file.
    known = (
        record.get("before")
        if standing in ("cancelled", "fell_back") and _is_ours(rootfs, loader)
        else None
    )
    begun = {
        "status": "prepared",
        "old_release": running,
        "before": known or before_of(rootfs, loader),
        "at": utc_text(time.time()),
    }
    return [_record_step(rootfs, begun), *steps]


def arm_steps(rootfs: str, trial: Trial) -> list[Step]:
    """Let the next boot, and only that, start the kernel on trial. Raises NotPossible with the
    reasons against it, OSError."""
    loader = loaders.read_loader(rootfs)
    loaders.check_can_try(loader)
    running = kernels.running_release(rootfs)
    if running == trial.release:
        return []
    loaders.check_boots_by_loader(rootfs)
    check_kernel(rootfs, trial, running)
    entry, old_entry = (
        loaders.entry_for(rootfs, loader, trial.release),
        loaders.entry_for(rootfs, loader, running),
    )
    for name in (entry, old_entry):
        loaders.check_name_stays(loader, name)
    if loader.saved != old_entry or (loader.way != "systemd-boot" and loader.default != "saved"):
        raise NotPossible(
            f"the default boot entry is {loader.default}, not {running}, to which a trial falls"
            " back; state: prepared first"
        )
    record = read_record(rootfs)
    wanted = {
        "status": "armed", "release": trial.release, "entry": entry, "old_release": running,
        "old_entry": old_entry, "boot_id": kernels.boot_id(rootfs),
        "gpus": sorted(trial.gpus), "modules": sorted(trial.modules),
        "confirm_within_s": trial.confirm_within_s, "trial_options": trial.trial_options,
        "before": record.get("before") or before_of(rootfs, loader),
    }  # fmt: skip
    steps = steps_of.option_steps(rootfs, loader, entry, trial.trial_options, with_options)
    steps += steps_of.config_steps(
        rootfs, loader, steps_of.our_drop_in(loader, trial.trial_options), trial.trial_options
    )
    steps += steps_of.guard_steps(rootfs, loader, trial, running)
    if {key: record.get(key) for key in wanted} != wanted:
        steps.append(_record_step(rootfs, dict(wanted, at=utc_text(time.time()))))
    if loader.one_shot != entry:
        steps.append(steps_of.one_shot_step(rootfs, loader, entry))
    return steps


def check_kernel(rootfs: str, trial: Trial, running: str) -> None:
    """Raises NotPossible naming everything that the kernel lacks."""
    faults = kernels.kernel_faults(rootfs, trial.release, running)
    # if a module does not build, the package's script makes no initrd: both are reported
    if kernels.has_modules(rootfs, trial.release):
        faults += [
            why for _name, why in kernels.missing_modules(rootfs, trial.release, trial.modules)
        ]
    if faults:
        raise NotPossible(f"{trial.release} may not boot: {'; '.join(faults)}")


def confirm_steps(rootfs: str, release: str, gpus: Sequence[str]) -> list[Step]:
    """Make the kernel on trial the default. gpus: identities of the GPUs that it has. Raises
    NotPossible, OSError."""
    record, running, standing = (
        read_record(rootfs),
        kernels.running_release(rootfs),
        read_standing(rootfs),
    )
    if running != release or record.get("release") != release:
        raise NotPossible(
            f"{running} runs, not {release}, which was on trial: {why_fell_back(rootfs)}"
        )
    if standing not in ("on_trial", "confirmed"):
        raise NotPossible(f"{release} is not on trial: it is {standing}")
    lost = sorted(set(record["gpus"]) - set(gpus))
    if lost:
        expected = f"the {len(record['gpus'])} GPUs that {record['old_release']} had"
        raise NotPossible(f"{release} lost {', '.join(lost)} of {expected}")
    loader = loaders.read_loader(rootfs)
    entry = loaders.entry_for(rootfs, loader, release)
    # The guard is removed first: otherwise it would reboot into the default, now the new kernel,
    # again and again.
    steps = (
        steps_of.no_guard_steps(rootfs)
        + steps_of.no_one_shot_steps(rootfs, loader)
        + steps_of.default_steps(rootfs, loader, entry)
    )
    steps += steps_of.option_steps(rootfs, loader, entry, record["trial_options"], without_options)
    steps += steps_of.config_steps(
        rootfs, loader, steps_of.our_drop_in(loader, "")
    ) + steps_of.keep_steps(rootfs, [record["old_release"], release])
    if standing != "confirmed":
        steps.append(
            _record_step(rootfs, dict(record, status="confirmed", at=utc_text(time.time())))
        )
    return steps


def cancel_steps(rootfs: str, why: str) -> list[Step]:
    """Make the old kernel the default and end the trial. While the kernel on trial runs, its guard
    stays, to reboot the node. Raises NotPossible, OSError."""
    record, standing = read_record(rootfs), read_standing(rootfs)
    if standing not in ("prepared", "armed", "on_trial") and record.get("status") != "armed":
        return []
    steps = back_steps(rootfs, record["old_release"], record["before"])
    if standing == "on_trial":
        after = dict(record, why=why or record.get("why"))
    else:
        steps += steps_of.no_guard_steps(rootfs)
        message = why_fell_back(rootfs) if standing == "fell_back" else why
        after = dict(
            record,
            status="fell_back" if standing == "fell_back" else "cancelled",
            why=message or None,
            at=utc_text(time.time()),
        )
    return steps + ([_record_step(rootfs, after)] if after != record else [])


def back_steps(rootfs: str, release: str, before: dict[str, Any]) -> list[Step]:
    """Make `release` the default again. before: the result of before_of() at that time, restored
    exactly once all newer and tried kernels are removed."""
    loader, record = loaders.read_loader(rootfs), read_record(rootfs)
    tried = (
        {record["release"]} if record.get("release") and record["status"] != "confirmed" else set()
    )
    installed = set(kernels.installed_releases(rootfs))
    newer = (installed - set(before["releases"])) | (installed & tried)
    steps = steps_of.no_one_shot_steps(rootfs, loader)
    if newer:
        steps += steps_of.default_steps(rootfs, loader, loaders.entry_for(rootfs, loader, release))
        return steps + steps_of.config_steps(rootfs, loader, steps_of.our_drop_in(loader, ""))
    return (
        steps
        + steps_of.config_steps(rootfs, loader, before["drop_in"])
        + steps_of.default_steps(rootfs, loader, before["saved"])
    )


def before_of(rootfs: str, loader: Loader) -> dict[str, Any]:
    """The boot loader's configuration for a rollback: {way, default, saved, drop_in, release,
    releases}."""
    drop_in = read_text_or_none(place_of(rootfs, GRUB_DROP_IN))
    known = {
        "way": loader.way,
        "default": loader.default,
        "saved": loader.saved,
        "drop_in": drop_in,
    }
    return dict(
        known, release=kernels.running_release(rootfs), releases=kernels.installed_releases(rootfs)
    )


def _is_ours(rootfs: str, loader: Loader) -> bool:
    return loader.way != "menu" or read_text_or_none(place_of(rootfs, GRUB_DROP_IN)) is not None


def _record_step(rootfs: str, record: dict[str, Any]) -> Step:
    before = read_record(rootfs).get("status")
    return steps_of.Step(
        what="trial",
        before=before,
        after=record["status"],
        act=lambda: write_state(rootfs, STATE, record),
    )
