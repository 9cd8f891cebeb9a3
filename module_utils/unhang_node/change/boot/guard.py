"""A systemd unit that is on the node during the trial of a kernel: it reboots into the old kernel
unless the new one is confirmed in time.

It needs no network, no controller and no Python, and starts before file systems are mounted, so
that it works in emergency mode too. Its first step is to remove the one-shot entry: if the boot
loader could not do that, the next boot starts the old kernel all the same.
"""

from __future__ import annotations

import os

from ..atomic_files import FELL_BACK, STATE_FOLDER, Texts, place_of, read_text_or_none, write_text
from ..config.setting_files import OWN

UNIT = "unhang-boot-trial.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
SCRIPT = "/etc/unhang/boot-trial"
WATCHDOG_FILE = "/etc/systemd/system.conf.d/50-unhang-boot-trial.conf"
WANTED_BY = ("sysinit.target", "emergency.target", "rescue.target")
WATCHDOG_S = 60
# seconds for an orderly reboot; after them a forced reboot, after that an immediate reboot by the
# kernel
GIVES_UP_AFTER_S = 300
LOOKS_EVERY_S = 2

_UNIT_TEXT = """{own}
[Unit]
Description=Goes back to the old kernel unless this boot of a new one is confirmed
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=exec
ExecStart=/bin/sh {script}
Restart=no
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy={wanted}
"""

_SCRIPT_TEXT = """#!/bin/sh
{own}
[ "$(uname -r)" = '{release}' ] || exit 0
echo "unhang: {release} is on trial, and goes back to {old} in {within_s} s after its start unless it is confirmed"
# The root file system may still be read-only: it is tried again until it can be written.
forget() {{ {forget}; }}
forgotten=no
while read -r up rest </proc/uptime && [ "${{up%%.*}}" -lt {within_s} ]; do
    [ $forgotten = yes ] || {{ forget && forgotten=yes; }} 2>/dev/null
    sleep {pause_s}
done
[ $forgotten = yes ] || forget
echo "unhang: {release} was not confirmed within {within_s} s, back to {old}"
mkdir -p {state_folder} && echo "{release} was not confirmed within {within_s} s after its start" >{fell_back}
sync
# A kernel that somebody has loaded for kexec, or another root, is not what the node goes back to.
export SYSTEMCTL_SKIP_AUTO_KEXEC=1 SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1
systemctl reboot --no-block
sleep {gives_up_s}
systemctl --force reboot
sleep 60
echo b >/proc/sysrq-trigger
"""  # noqa: E501


def script_text(release: str, old: str, within_s: int, forget: str) -> str:
    """The guard's shell script. forget: the command that removes the one-shot entry."""
    return _SCRIPT_TEXT.format(
        own=OWN,
        release=release,
        old=old,
        within_s=within_s,
        forget=forget,
        fell_back=FELL_BACK,
        state_folder=STATE_FOLDER,
        gives_up_s=GIVES_UP_AFTER_S,
        pause_s=LOOKS_EVERY_S,
    )


def guard_texts(
    rootfs: str, release: str, old: str, within_s: int, forget: str, has_watchdog: bool
) -> Texts:
    """{path: (before, after)} of the files that make up the guard. has_watchdog: whether systemd
    should use the machine's watchdog."""
    wanted = {
        SCRIPT: script_text(release, old, within_s, forget),
        UNIT_FILE: _UNIT_TEXT.format(own=OWN, script=SCRIPT, wanted=" ".join(WANTED_BY)),
        WATCHDOG_FILE: f"{OWN}\n[Manager]\nRuntimeWatchdogSec={WATCHDOG_S}\n"
        if has_watchdog
        else None,
    }
    found = {
        path: (read_text_or_none(place_of(rootfs, path)), after) for path, after in wanted.items()
    }
    return {path: pair for path, pair in found.items() if pair[0] != pair[1]}


def no_guard_texts(rootfs: str) -> Texts:
    """{path: (before, None)} of those files of the guard that exist."""
    found = {
        path: (read_text_or_none(place_of(rootfs, path)), None)
        for path in (SCRIPT, UNIT_FILE, WATCHDOG_FILE)
    }
    return {path: pair for path, pair in found.items() if pair[0] is not None}


def set_guard(rootfs: str, texts: Texts) -> None:
    """Writes the files and enables the unit for every boot. The links are created here, because
    `systemctl enable` would reload every unit of the node."""
    for path, (_before, after) in sorted(texts.items()):
        write_text(place_of(rootfs, path), after)
    for target in WANTED_BY:
        link = place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.islink(link):
            os.symlink(UNIT_FILE, link)


def remove_guard(rootfs: str, texts: Texts) -> None:
    """Disables the unit and removes its files."""
    for target in WANTED_BY:
        link = place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT
        if os.path.islink(link):
            os.unlink(link)
    for path in sorted(texts):
        write_text(place_of(rootfs, path), None)
    folder = os.path.dirname(place_of(rootfs, SCRIPT))
    if os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


def is_guarded(rootfs: str) -> bool:
    """True when the unit starts at the next boot."""
    return all(
        os.path.islink(place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT)
        for target in WANTED_BY
    )
