"""Sets one kernel parameter (sysctl) now and for every boot, and restores its former value."""

from __future__ import annotations

import os
import re

from ...base.root import Root
from ...facts.sections.reading import drop_ins, there
from ...facts.sections.virtualization import container_kind
from ..atomic_files import place_of, read_text_or_none, shown
from ..config.disabled_lines import ManualStep
from ..config.own_files import FilePlan, plan_gone, plan_own
from ..journal.running_values import Change
from .setting import Setting, original_value, same
from .tuned import read_overriding

FOLDER, CONF = "/etc/sysctl.d", "/etc/sysctl.conf"
_LINE = re.compile(r"^\s*-?\s*([a-zA-Z0-9_./*-]+)\s*=\s*(.*?)\s*$")


def dotted(name: str) -> str:
    """The dotted spelling of a name, such as kernel.numa_balancing. If dots separate the name, a
    slash means a dot, and vice versa: sysctl(8)."""
    slash, dot = name.find("/"), name.find(".")
    return (
        "".join({"/": ".", ".": "/"}.get(character, character) for character in name)
        if slash >= 0 and not 0 <= dot < slash
        else name
    )


def own_path(name: str) -> str:
    """Path of unhang's file: its name sorts after those of others, because the last value wins."""
    return f"{FOLDER}/zz-unhang-{name.replace('/', '-')}.conf"


def proc_path(name: str) -> str:
    """Path of the parameter in /proc/sys."""
    return "/proc/sys/" + "/".join(part.replace("/", ".") for part in name.split("."))


def others_lines(rootfs: str, name: str, value: str) -> list[tuple[str, int, str]]:
    """[(path, number, line)] of others' lines that set this parameter to something else. Raises
    OSError, ValueError."""
    root, rows, seen = Root([rootfs]), [], set()
    for path in [*drop_ins(root, [FOLDER]), CONF]:
        real = root.resolve(path) if there(root, path) else None
        if real is None or path == own_path(name) or real in seen or not real.startswith("/etc/"):
            continue  # packages' files under /usr are read before unhang's, so unhang's value wins
        seen.add(real)
        for number, line in enumerate(root.text(real, 1 << 20).split("\n"), 1):
            found = _LINE.match(line)
            if (
                found
                and not line.lstrip().startswith(("#", ";"))
                and dotted(found.group(1)) == name
                and found.group(2).split() != value.split()
            ):
                rows.append((real, number, line))
    return rows


def running_value(rootfs: str, name: str) -> str | None:
    """The running kernel's value, with single blanks; None if it has no such parameter. Raises
    OSError."""
    text = read_text_or_none(place_of(rootfs, proc_path(name)))
    return None if text is None else " ".join(shown(text).split())


def why_not(name: str) -> str | None:
    """The reason why this parameter cannot be set on this machine, or None."""
    if not os.path.exists(proc_path(name)):
        return f"this kernel has no {name}"
    if not os.access(proc_path(name), os.W_OK):
        kind = container_kind(Root(), None)
        where = f"a {kind} container" if kind else "this machine"
        return (
            f"{name} cannot be set in {where}: /proc/sys is read-only here, so set it on the host"
        )
    return None


def plan_parameter(rootfs: str, name: str, value: str | None) -> Setting:
    """value: None to undo it. Raises OSError, ValueError."""
    name, live = dotted(name), rootfs == "/"
    now, owner = running_value(rootfs, name), "host_tuning_" + name.replace("/", "-")
    if value is None:
        plan, wanted = (
            plan_gone(rootfs, owner, [own_path(name)]),
            original_value(rootfs, owner, now),
        )
    else:
        why, wanted = why_not(name) if live else None, " ".join(value.split())
        if why:
            return Setting(owner, FilePlan(manual=[why]))
        lines = [f"{name} = {value}"]
        plan = plan_own(rootfs, {own_path(name): lines}, others=others_lines(rootfs, name, value))
        manual = [
            ManualStep(file=path, name=name, why=why)
            for path, found, why in read_overriding(rootfs, name)
            if not same(found, value)
        ]
        plan = plan._replace(manual=[*plan.manual, *manual])
    is_due = live and None not in (now, wanted) and not same(now, wanted)
    return Setting(
        owner=owner,
        plan=plan,
        changes=[Change(kind="sysctl", name=name, value=now, wanted=wanted)] if is_due else [],
        write=lambda name, value: set_running(rootfs, name, value),
        keeps_original=True,
    )


def set_running(rootfs: str, name: str, value: str) -> None:
    """Sets the running value. Raises OSError naming the file, and ValueError if the kernel then has
    another value."""
    with open(place_of(rootfs, proc_path(name)), "w", encoding="ascii") as target:
        target.write(value + "\n")
    now = running_value(rootfs, name)
    if not same(now, value):
        raise ValueError(f"{proc_path(name)} is {now} after {value} was written")
