"""What runs on the node while a kernel is on trial: a unit that goes back to the old kernel unless somebody confirms in time.

It needs no network, no controller and no Python, and starts before file systems are mounted, so that it works in emergency mode too. First of all it takes
the one-shot entry away itself: then a boot loader that could not do so starts the old kernel the next time all the same.
"""

from __future__ import annotations

import os

from ..config.setting_files import OWN
from ..files import FELL_BACK, STATE_FOLDER, Texts, place_of, read_text_or_none, write_text

UNIT = "unhang-boot-trial.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
SCRIPT = "/etc/unhang/boot-trial"
WATCHDOG_FILE = "/etc/systemd/system.conf.d/50-unhang-boot-trial.conf"
WANTED_BY = ("sysinit.target", "emergency.target", "rescue.target")
WATCHDOG_S = 60
GIVES_UP_AFTER_S = 300  # of an orderly reboot; then it is forced, and then the kernel reboots at once
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
systemctl reboot --no-block
sleep {gives_up_s}
systemctl --force reboot
sleep 60
echo b >/proc/sysrq-trigger
"""


def script_text(release: str, old: str, within_s: int, forget: str) -> str:
    """The shell script. forget: the command that takes the one-shot entry away."""
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


def guard_texts(rootfs: str, release: str, old: str, within_s: int, forget: str, has_watchdog: bool) -> Texts:
    """{path: (before, after)} of the files that make up the guard. has_watchdog: systemd is to feed the machine's watchdog."""
    wanted = {
        SCRIPT: script_text(release, old, within_s, forget),
        UNIT_FILE: _UNIT_TEXT.format(own=OWN, script=SCRIPT, wanted=" ".join(WANTED_BY)),
        WATCHDOG_FILE: f"{OWN}\n[Manager]\nRuntimeWatchdogSec={WATCHDOG_S}\n" if has_watchdog else None,
    }
    found = {path: (read_text_or_none(place_of(rootfs, path)), after) for path, after in wanted.items()}
    return {path: pair for path, pair in found.items() if pair[0] != pair[1]}


def no_guard_texts(rootfs: str) -> Texts:
    """{path: (before, None)} of what is there of it."""
    found = {path: (read_text_or_none(place_of(rootfs, path)), None) for path in (SCRIPT, UNIT_FILE, WATCHDOG_FILE)}
    return {path: pair for path, pair in found.items() if pair[0] is not None}


def set_guard(rootfs: str, texts: Texts) -> None:
    """Writes the files and has the unit started at every boot. Its links are made by hand: `systemctl enable` would reload every unit of the node."""
    for path, (_before, after) in sorted(texts.items()):
        write_text(place_of(rootfs, path), after)
    for target in WANTED_BY:
        link = place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.islink(link):
            os.symlink(UNIT_FILE, link)


def remove_guard(rootfs: str, texts: Texts) -> None:
    """The other way round."""
    for target in WANTED_BY:
        link = place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT
        if os.path.islink(link):
            os.unlink(link)
    for path in sorted(texts):
        write_text(place_of(rootfs, path), None)
    if not os.listdir(os.path.dirname(place_of(rootfs, SCRIPT))) if os.path.isdir(os.path.dirname(place_of(rootfs, SCRIPT))) else False:
        os.rmdir(os.path.dirname(place_of(rootfs, SCRIPT)))


def is_guarded(rootfs: str) -> bool:
    """True when the unit starts at the next boot."""
    return all(os.path.islink(place_of(rootfs, f"/etc/systemd/system/{target}.wants") + "/" + UNIT) for target in WANTED_BY)
