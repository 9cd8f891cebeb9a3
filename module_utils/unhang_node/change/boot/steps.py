"""Single steps that set what a node boots next, each with its changes. trial.py and
rollback/boot.py call them in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...base.root import Root
from ...facts.sections.reading import names_if_there
from ..atomic_files import place_of, read_text_or_none, write_text
from ..config.setting_files import OWN
from . import guard
from . import loader as loaders
from .entries import GRUB_DROP_IN, drop_in_text
from .loader import Loader, NotPossible

if TYPE_CHECKING:
    from .trial import Trial

KEEP_FILE = "/etc/apt/apt.conf.d/52unhang-kernel"


class Step(NamedTuple):
    """One step that changes what a node boots."""

    what: str
    before: str | None
    after: str | None
    act: Callable[[], object]


def reads_watchdog(rootfs: str) -> bool:
    """True if the machine has a watchdog that no other configuration uses."""
    root = Root([rootfs])
    if not names_if_there(root, "/sys/class/watchdog"):
        return False
    folders = (
        "/etc/systemd/system.conf.d",
        "/usr/lib/systemd/system.conf.d",
        "/run/systemd/system.conf.d",
    )
    files = ["/etc/systemd/system.conf"] + [
        folder + "/" + name for folder in folders for name in names_if_there(root, folder)
    ]
    texts = [
        read_text_or_none(place_of(rootfs, path)) or ""
        for path in files
        if path != guard.WATCHDOG_FILE
    ]
    return not any(
        line.startswith("RuntimeWatchdogSec=") for text in texts for line in text.splitlines()
    )


def our_drop_in(loader: Loader, trial_options: str) -> str | None:
    """The text of unhang's file if grub.cfg is generated from such files, else None."""
    return drop_in_text(trial_options) if loader.way == "menu" else None


def default_steps(rootfs: str, loader: Loader, entry: str | None) -> list[Step]:
    """Sets the loader's default entry."""
    if loader.saved == entry:
        return []
    return [
        Step(
            what="default boot entry",
            before=loader.saved,
            after=entry,
            act=lambda: loaders.set_default(rootfs, loader, entry),
        )
    ]


def config_steps(rootfs: str, loader: Loader, text: str | None, needs: str = "") -> list[Step]:
    """Writes unhang's part of GRUB's configuration and generates grub.cfg. text: None removes that
    part; needs: kernel parameters that grub.cfg must contain."""
    if loader.way == "bls" and loader.default != "saved":
        found = f"grub.cfg starts entry {loader.default}; set it and run grub2-mkconfig"
        raise NotPossible(f"/etc/default/grub lacks GRUB_DEFAULT=saved: {found}")
    if loader.way != "menu":
        return []
    before = read_text_or_none(place_of(rootfs, GRUB_DROP_IN))
    if before is not None and OWN not in before:
        raise NotPossible(
            f"somebody else wrote {GRUB_DROP_IN}, which is not unhang's own file; move it away"
            " after a look"
        )
    if (
        not os.path.isdir(place_of(rootfs, os.path.dirname(GRUB_DROP_IN)))
        and loader.default != "saved"
    ):
        raise NotPossible(
            "/etc/default/grub lacks GRUB_DEFAULT=saved, and grub-mkconfig does not read"
            " /etc/default/grub.d"
        )
    steps = []
    if before != text:
        steps.append(
            Step(
                what=GRUB_DROP_IN,
                before=before,
                after=text,
                act=lambda: write_text(place_of(rootfs, GRUB_DROP_IN), text),
            )
        )
    if steps or (text is not None and loader.default != "saved") or needs not in loader.cfg:
        steps.append(
            Step(
                what="grub.cfg",
                before="as it was",
                after="made anew",
                act=lambda: loaders.make_config(rootfs, loader, needs),
            )
        )
    return steps


def option_steps(
    rootfs: str, loader: Loader, entry: str, options: str, change: Callable[[str, str], str]
) -> list[Step]:
    """Changes the kernel parameters of one loader entry, if entries are files."""
    path = loaders.entry_file(loader, entry)
    text = read_text_or_none(place_of(rootfs, path)) if path else None
    if path is None or text is None or change(text, options) == text:
        return []
    return [
        Step(
            what=path,
            before=text,
            after=change(text, options),
            act=lambda: write_text(place_of(rootfs, path), change(text, options)),
        )
    ]


def guard_steps(rootfs: str, loader: Loader, trial: Trial, running: str) -> list[Step]:
    """Adds the guard, the unit that reboots into `running` unless the trial is confirmed. trial: a
    trial.Trial."""
    forget = loaders.forget_command(rootfs, loader)
    texts = guard.guard_texts(
        rootfs, trial.release, running, trial.confirm_within_s, forget, reads_watchdog(rootfs)
    )
    if not texts and guard.is_guarded(rootfs):
        return []
    steps = [
        Step(what=path, before=before, after=after, act=_nothing)
        for path, (before, after) in sorted(texts.items())
    ]
    return [
        *steps,
        Step(
            what="guard of the trial",
            before="off",
            after="on",
            act=lambda: guard.set_guard(rootfs, texts),
        ),
    ]


def no_guard_steps(rootfs: str) -> list[Step]:
    """Removes the guard."""
    texts = guard.no_guard_texts(rootfs)
    if not texts:
        return []

    def remove() -> None:
        if rootfs == "/":
            loaders.run_command(rootfs, ["systemctl", "stop", guard.UNIT])
        guard.remove_guard(rootfs, texts)

    return [Step(what="guard of the trial", before="on", after="off", act=remove)]


def one_shot_step(rootfs: str, loader: Loader, entry: str | None) -> Step:
    """Sets the entry of the next boot only; None removes it."""
    return Step(
        what="entry of the next boot, once",
        before=loader.one_shot,
        after=entry,
        act=lambda: loaders.set_one_shot(rootfs, loader, entry),
    )


def no_one_shot_steps(rootfs: str, loader: Loader) -> list[Step]:
    """Removes the one-shot entry, if one is set."""
    return [one_shot_step(rootfs, loader, None)] if loader.one_shot else []


def keep_steps(rootfs: str, releases: Sequence[str]) -> list[Step]:
    """Keeps apt's autoremove from removing the last good kernel and the new one."""
    if not os.path.isdir(place_of(rootfs, os.path.dirname(KEEP_FILE))):
        return []
    escaped = [release.replace(".", "\\.") for release in releases]
    lines = [f'  "^linux-.*-{release}$";' for release in escaped]
    text = "\n".join(["//" + OWN[1:], "APT::NeverAutoRemove {", *lines, "};"]) + "\n"
    before = read_text_or_none(place_of(rootfs, KEEP_FILE))
    if before == text:
        return []
    return [
        Step(
            what=KEEP_FILE,
            before=before,
            after=text,
            act=lambda: write_text(place_of(rootfs, KEEP_FILE), text),
        )
    ]


def _nothing() -> None:
    """Does nothing: another step makes this change, which is listed only to be shown."""
