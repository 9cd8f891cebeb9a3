"""Puts parameters on the kernel's command line for the next boots: a file of ours for GRUB's generator, or grubby. Nothing is rebooted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ...process import output_of
from ...root import Root
from ...sections.reading import drop_ins, line_if_there, there
from ...sections.virtualization import container_kind
from ..config.disabled_setting import write_texts
from ..config.own_files import FilePlan, plan_gone, plan_own, write_plan
from ..files import read_state, state_path, write_state
from ..journal.running_values import Change, keep_running
from ..journal.saved_states import keep_files

DEFAULTS, FOLDER = "/etc/default/grub", "/etc/default/grub.d"
MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
UPDATE_GRUB, GRUBBY = ("/usr/sbin/update-grub", "/sbin/update-grub"), ("/usr/sbin/grubby", "/sbin/grubby", "/usr/bin/grubby")
GRUBBY_FILES = (DEFAULTS, "/etc/kernel/cmdline")  # where grubby puts parameters for kernels to come, when all entries are changed
DEADLINE_S = 300
_PARAMETER = re.compile(r"^[A-Za-z0-9_.,:=+/-]+$")
_SETS = re.compile(r"""^\s*(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(['"]?)(.*)\2\s*$""")


def check_parameters(parameters: Iterable[str]) -> None:
    """Raises ValueError for what cannot stand on a kernel command line unquoted."""
    for parameter in parameters:
        if not _PARAMETER.match(parameter):
            raise ValueError(f"expected parameters of a kernel command line such as iommu=pt, found {parameter!r}")


def own_path(name: str) -> str:
    """Our file: its name sorts last, and _DEFAULT stands behind GRUB_CMDLINE_LINUX on the line, so that ours is what the kernel takes."""
    return f"{FOLDER}/zz-unhang-{name}.cfg"


def owner_of(name: str) -> str:
    """Under which name it is saved what grubby was given."""
    return "host_tuning_" + name


def method_of(rootfs: str) -> tuple[str | None, str | None]:
    """("grub.d" or "grubby", None), or (None, why neither can be used here)."""
    kind = container_kind(Root([rootfs]), None) if rootfs == "/" else None
    if kind:
        return None, f"the kernel's command line cannot be set in a {kind} container: it is the host's"
    if is_there(rootfs, *GRUBBY):
        return "grubby", None
    if is_there(rootfs, *UPDATE_GRUB) and there(Root([rootfs]), DEFAULTS):
        return "grub.d", None
    return None, "expected update-grub or grubby, found neither; add the parameters to the kernel's command line in the boot loader that this node has"


def others_parameters(rootfs: str, name: str, parameters: Sequence[str]) -> list[str]:
    """Lines that say where others put another value of the same parameter: ours wins, a person may want to take theirs out."""
    root, keys, overridden = Root([rootfs]), {parameter.partition("=")[0] for parameter in parameters}, []
    for path in [DEFAULTS, *drop_ins(root, [FOLDER], ".cfg")]:
        if path == own_path(name) or not there(root, path):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            found = _SETS.match(line)
            for parameter in found.group(3).split() if found else ():
                if parameter.partition("=")[0] in keys and parameter not in parameters:
                    ours = " ".join(parameters)
                    overridden.append(f"{path}:{number}: {parameter} stands on the command line before {ours}, which wins; take it out")
    return overridden


def missing_in_menu(rootfs: str, parameters: Sequence[str]) -> int | None:
    """Kernel lines of GRUB's menu, recovery entries left out, without one of the parameters; None where there is no menu to be read."""
    root = Root([rootfs])
    menu = next((path for path in MENUS if there(root, path)), None)
    if menu is None:
        return None
    lines = [line.split() for line in root.text(menu, 4 << 20).split("\n") if line.split()[:1] in (["linux"], ["linuxefi"], ["linux16"])]
    return sum(1 for line in lines if not {"single", "recovery"} & set(line) and not set(parameters) <= set(line))


def is_running_with(parameters: Sequence[str]) -> bool:
    """True when this boot has them already."""
    return set(parameters) <= set((line_if_there(Root(), "/proc/cmdline") or "").split())


def plan_grub(rootfs: str, name: str, parameters: Sequence[str]) -> FilePlan:
    """FilePlan of our file."""
    line = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {}"'.format(" ".join(parameters))
    return plan_own(rootfs, {own_path(name): [line]})._replace(manual=others_parameters(rootfs, name, parameters))


def plan_without_grub(rootfs: str, name: str) -> FilePlan:
    """FilePlan that takes our file away."""
    return plan_gone(rootfs, owner_of(name), [own_path(name)])


def write_grub(rootfs: str, name: str, plan: FilePlan, absent: bool, state_id: str) -> None:
    """Writes the plan and has the menu made anew; when that fails the file is put back. Raises OSError, ValueError."""
    write_plan(rootfs, owner_of(name), plan, absent, state_id, [path for path in MENUS if there(Root([rootfs]), path)])
    if rootfs != "/":
        return
    try:
        output_of(["update-grub"], DEADLINE_S)
    except (OSError, ValueError):
        write_texts(rootfs, {path: (after, before) for path, (before, after) in plan.texts.items()})
        raise


def read_entries() -> list[tuple[str, list[str]]]:
    """[(kernel, its parameters)] of each boot entry. Raises OSError, ValueError."""
    entries, kernel = [], ""
    for line in output_of(["grubby", "--info=ALL"]).split("\n"):
        key, _, value = line.partition("=")
        if key == "kernel":
            kernel = value.strip().strip("\"'")
        elif key == "args":
            entries.append((kernel, value.strip().strip("\"'").split()))
    return entries


def read_parameter(parameter: str) -> list[str] | None:
    """Kernels whose entries have the parameter; None where there is no grubby. Raises OSError, ValueError."""
    return sorted({kernel for kernel, parameters in read_entries() if parameter in parameters}) if is_there("/", *GRUBBY) else None


def write_parameter(parameter: str, kernels: Sequence[str]) -> None:
    """Has exactly the entries of these kernels carry the parameter. Raises OSError, ValueError."""
    for kernel in sorted({kernel for kernel, parameters in read_entries() if (parameter in parameters) != (kernel in kernels)}):
        output_of(["grubby", "--update-kernel=" + kernel, ("--args=" if kernel in kernels else "--remove-args=") + parameter], DEADLINE_S)
    found = sorted({kernel for kernel, parameters in read_entries() if parameter in parameters})
    if found != sorted(kernels):
        raise ValueError("grubby: expected {} on {}, found it on {}".format(parameter, ", ".join(kernels) or "no entry", ", ".join(found) or "no entry"))


def keep_parameters(rootfs: str, name: str, state_id: str, parameters: Sequence[str], present: bool) -> None:
    """Saves which entries have the parameters, and the files from which new entries take theirs, before grubby runs."""
    root, entries = Root([rootfs]), read_entries()
    keep_files(rootfs, state_id, [state_path(owner_of(name)), *(path for path in GRUBBY_FILES if there(root, path))])
    everywhere = sorted({kernel for kernel, _arguments in entries})
    changes = [
        Change(
            kind="boot_parameter", name=parameter, value=sorted({kernel for kernel, has in entries if parameter in has}), wanted=everywhere if present else []
        )
        for parameter in parameters
    ]
    keep_running(rootfs, state_id, changes)


def missing_in_grubby(parameters: Sequence[str]) -> list[str]:
    """Parameters that some entry has not."""
    entries = read_entries()
    return [parameter for parameter in parameters if not entries or any(parameter not in entry for _kernel, entry in entries)]


def add_by_grubby(rootfs: str, name: str, parameters: Sequence[str], state_id: str) -> None:
    """Saves what is added, adds it, and reads it back. rootfs: where it is saved; grubby is the running system's."""
    keep_parameters(rootfs, name, state_id, parameters, True)
    saved = read_state(rootfs, owner_of(name))
    write_state(rootfs, owner_of(name), dict(saved, grubby=sorted(set(saved.get("grubby", [])) | set(parameters))))
    output_of(["grubby", "--update-kernel=ALL", "--args=" + " ".join(parameters)], DEADLINE_S)
    missing = missing_in_grubby(parameters)
    if missing:
        raise ValueError("grubby: expected {} on every boot entry, found an entry without after it was added".format(" ".join(missing)))


def given_to_grubby(rootfs: str, name: str) -> list[str]:
    """Parameters that we added, for as long as they are there."""
    return list(read_state(rootfs, owner_of(name)).get("grubby", []))


def remove_by_grubby(rootfs: str, name: str, parameters: Sequence[str], state_id: str) -> None:
    """Takes exactly those away."""
    keep_parameters(rootfs, name, state_id, parameters, False)
    output_of(["grubby", "--update-kernel=ALL", "--remove-args=" + " ".join(parameters)], DEADLINE_S)
    write_state(rootfs, owner_of(name), {})


def is_there(rootfs: str, *paths: str) -> bool:
    """True when one of these programs is on the node."""
    return any(os.path.exists((rootfs if rootfs != "/" else "") + path) for path in paths)
