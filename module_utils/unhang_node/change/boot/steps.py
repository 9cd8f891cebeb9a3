"""Single steps of choosing what a node boots, each with what it changes, for boot_trial and boot_restore to put in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...root import Root
from ...sections.reading import names_if_there
from ..config.setting_files import OWN
from ..files import place_of, read_text_or_none, write_text
from . import guard
from . import loader as loaders
from .entries import GRUB_DROP_IN, drop_in_text
from .loader import Loader, NotPossible

if TYPE_CHECKING:
    from .trial import Trial

KEEP_FILE = "/etc/apt/apt.conf.d/52unhang-kernel"


class Step(NamedTuple):
    """One step of choosing what a node boots."""

    what: str
    before: str | None
    after: str | None
    act: Callable[[], object]


def reads_watchdog(rootfs: str) -> bool:
    """True where the machine has a watchdog that nobody else's configuration feeds."""
    root = Root([rootfs])
    if not names_if_there(root, "/sys/class/watchdog"):
        return False
    folders = ("/etc/systemd/system.conf.d", "/usr/lib/systemd/system.conf.d", "/run/systemd/system.conf.d")
    files = ["/etc/systemd/system.conf"] + [folder + "/" + name for folder in folders for name in names_if_there(root, folder)]
    texts = [read_text_or_none(place_of(rootfs, path)) or "" for path in files if path != guard.WATCHDOG_FILE]
    return not any(line.startswith("RuntimeWatchdogSec=") for text in texts for line in text.splitlines())


def our_drop_in(loader: Loader, trial_options: str) -> str | None:
    """Our file's text where grub.cfg is made of such files, else None."""
    return drop_in_text(trial_options) if loader.way == "menu" else None


def default_steps(rootfs: str, loader: Loader, entry: str | None) -> list[Step]:
    """What the loader starts when nothing else is said."""
    if loader.saved == entry:
        return []
    return [Step(what="default boot entry", before=loader.saved, after=entry, act=lambda: loaders.set_default(rootfs, loader, entry))]


def config_steps(rootfs: str, loader: Loader, text: str | None, needs: str = "") -> list[Step]:
    """Our part of GRUB's configuration, and grub.cfg made of it. text: None for no such part; needs: kernel parameters that grub.cfg has to hold."""
    if loader.way == "bls" and loader.default != "saved":
        found = f"found that grub.cfg starts entry {loader.default}; set it and run grub2-mkconfig"
        raise NotPossible(f"expected GRUB_DEFAULT=saved in /etc/default/grub, {found}")
    if loader.way != "menu":
        return []
    before = read_text_or_none(place_of(rootfs, GRUB_DROP_IN))
    if before is not None and OWN not in before:
        raise NotPossible(f"{GRUB_DROP_IN}: expected a file of unhang's own, found one that somebody else wrote; move it away after a look")
    if not os.path.isdir(place_of(rootfs, os.path.dirname(GRUB_DROP_IN))) and loader.default != "saved":
        raise NotPossible("expected GRUB_DEFAULT=saved in /etc/default/grub, or a grub-mkconfig that reads /etc/default/grub.d; found neither")
    steps = []
    if before != text:
        steps.append(Step(what=GRUB_DROP_IN, before=before, after=text, act=lambda: write_text(place_of(rootfs, GRUB_DROP_IN), text)))
    if steps or (text is not None and loader.default != "saved") or needs not in loader.cfg:
        steps.append(Step(what="grub.cfg", before="as it was", after="made anew", act=lambda: loaders.make_config(rootfs, loader)))
    return steps


def option_steps(rootfs: str, loader: Loader, entry: str, options: str, change: Callable[[str, str], str]) -> list[Step]:
    """Kernel parameters of one loader entry, where entries are files."""
    path = loaders.entry_file(loader, entry)
    text = read_text_or_none(place_of(rootfs, path)) if path else None
    if path is None or text is None or change(text, options) == text:
        return []
    return [Step(what=path, before=text, after=change(text, options), act=lambda: write_text(place_of(rootfs, path), change(text, options)))]


def guard_steps(rootfs: str, loader: Loader, trial: Trial, running: str) -> list[Step]:
    """The unit that goes back to `running` unless the trial is confirmed. trial: a boot_trial.Trial."""
    forget = loaders.forget_command(rootfs, loader)
    texts = guard.guard_texts(rootfs, trial.release, running, trial.confirm_within_s, forget, reads_watchdog(rootfs))
    if not texts and guard.is_guarded(rootfs):
        return []
    steps = [Step(what=path, before=before, after=after, act=_nothing) for path, (before, after) in sorted(texts.items())]
    return [*steps, Step(what="guard of the trial", before="off", after="on", act=lambda: guard.set_guard(rootfs, texts))]


def no_guard_steps(rootfs: str) -> list[Step]:
    """Nothing goes back any more."""
    texts = guard.no_guard_texts(rootfs)
    if not texts:
        return []

    def remove() -> None:
        if rootfs == "/":
            loaders.run_command(rootfs, ["systemctl", "stop", guard.UNIT])
        guard.remove_guard(rootfs, texts)

    return [Step(what="guard of the trial", before="on", after="off", act=remove)]


def one_shot_step(rootfs: str, loader: Loader, entry: str | None) -> Step:
    """The entry of the next boot alone; None for none."""
    return Step(what="entry of the next boot, once", before=loader.one_shot, after=entry, act=lambda: loaders.set_one_shot(rootfs, loader, entry))


def no_one_shot_steps(rootfs: str, loader: Loader) -> list[Step]:
    """None waits."""
    return [one_shot_step(rootfs, loader, None)] if loader.one_shot else []


def keep_steps(rootfs: str, releases: Sequence[str]) -> list[Step]:
    """apt's autoremove leaves the last good kernel and the new one."""
    if not os.path.isdir(place_of(rootfs, os.path.dirname(KEEP_FILE))):
        return []
    lines = ['  "^linux-.*-{}$";'.format(release.replace(".", "\\.")) for release in releases]
    text = "\n".join(["//" + OWN[1:], "APT::NeverAutoRemove {", *lines, "};"]) + "\n"
    before = read_text_or_none(place_of(rootfs, KEEP_FILE))
    if before == text:
        return []
    return [Step(what=KEEP_FILE, before=before, after=text, act=lambda: write_text(place_of(rootfs, KEEP_FILE), text))]


def _nothing() -> None:
    """Shown with the step that does it."""
