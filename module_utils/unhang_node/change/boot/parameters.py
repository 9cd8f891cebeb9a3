"""Sets parameters of the kernel's command line for the next boots: unhang's own file for GRUB's
generator, or grubby. Reboots nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ...base.parse.grub import release_of_image
from ...base.process import output_of
from ...base.root import Root
from ...facts.sections.reading import drop_ins, line_if_there, there
from ...facts.sections.virtualization import container_kind
from ..atomic_files import read_state, state_path, write_state, write_texts
from ..config.own_files import FilePlan, plan_gone, plan_own, write_plan
from ..journal.running_values import Change, keep_running
from ..journal.saved_states import keep_files

DEFAULTS, FOLDER = "/etc/default/grub", "/etc/default/grub.d"
MENUS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
UPDATE_GRUB, GRUBBY = (
    ("/usr/sbin/update-grub", "/sbin/update-grub"),
    ("/usr/sbin/grubby", "/sbin/grubby", "/usr/bin/grubby"),
)
# grubby writes parameters for future kernels here when it changes all entries
GRUBBY_FILES = (DEFAULTS, "/etc/kernel/cmdline")
DEADLINE_S = 300
_PARAMETER = re.compile(r"^[A-Za-z0-9_.,:=+/-]+$")
_SETS = re.compile(r"""^\s*(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(['"]?)(.*)\2\s*$""")


def check_parameters(parameters: Iterable[str]) -> None:
    """Raises ValueError for a parameter that needs quotes on a kernel command line."""
    for parameter in parameters:
        if not _PARAMETER.match(parameter):
            raise ValueError(
                f"{parameter!r} is not a parameter of a kernel command line such as iommu=pt"
            )


def own_path(name: str) -> str:
    """Path of unhang's file: its name sorts last, and _DEFAULT follows GRUB_CMDLINE_LINUX on the
    line, so that the kernel takes unhang's value."""
    return f"{FOLDER}/zz-unhang-{name}.cfg"


def owner_of(name: str) -> str:
    """Name of the saved state of the parameters that grubby set."""
    return "host_tuning_" + name


def method_of(rootfs: str) -> tuple[str | None, str | None]:
    """("grub.d" or "grubby", None), or (None, why neither can be used here)."""
    kind = container_kind(Root([rootfs]), None) if rootfs == "/" else None
    if kind:
        return (
            None,
            f"the kernel's command line cannot be set in a {kind} container: it is the host's",
        )
    if is_there(rootfs, *GRUBBY):
        return "grubby", None
    if is_there(rootfs, *UPDATE_GRUB) and there(Root([rootfs]), DEFAULTS):
        return "grub.d", None
    return (
        None,
        (
            "the node has neither update-grub nor grubby; add the parameters to the kernel's"
            " command line in the boot loader that this node has"
        ),
    )


def others_parameters(rootfs: str, name: str, parameters: Sequence[str]) -> list[str]:
    """A line for each place where others set the parameter to another value; unhang's value wins,
    but a person may want to remove theirs."""
    root, keys, overridden = (
        Root([rootfs]),
        {parameter.partition("=")[0] for parameter in parameters},
        [],
    )
    for path in [DEFAULTS, *drop_ins(root, [FOLDER], ".cfg")]:
        if path == own_path(name) or not there(root, path):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            found = _SETS.match(line)
            for parameter in found.group(3).split() if found else ():
                if parameter.partition("=")[0] in keys and parameter not in parameters:
                    ours = " ".join(parameters)
                    overridden.append(
                        f"{path}:{number}: {parameter} is on the command line before {ours},"
                        " which wins; take it out"
                    )
    return overridden


def missing_in_menu(rootfs: str, parameters: Sequence[str]) -> int | None:
    """Kernel lines of GRUB's menu that lack one of the parameters; None if there is no readable
    menu. Only entries that grub-mkconfig makes for this system's kernels, without recovery entries,
    are checked: memtest, other systems and the site's own entries never get a parameter."""
    root = Root([rootfs])
    menu = next((path for path in MENUS if there(root, path)), None)
    if menu is None:
        return None
    lines = [
        (head, words)
        for head, words in _kernel_lines(root.text(menu, 4 << 20))
        if not {"single", "recovery"} & set(words) and "osprober-" not in head
    ]
    own = [words for head, words in lines if "gnulinux-" in head] or [
        words for _head, words in lines
    ]
    return sum(1 for words in own if not set(parameters) <= set(words))


def _kernel_lines(text: str) -> list[tuple[str, list[str]]]:
    """[(first line of the entry, words of its kernel line)] of entries whose image is a kernel with
    a release."""
    rows, head = [], ""
    for line in text.split("\n"):
        words = line.split()
        if words[:1] == ["menuentry"]:
            head = line
        elif words[:1] in (["linux"], ["linuxefi"], ["linux16"]) and release_of_image(
            words[1] if len(words) > 1 else None
        ):
            rows.append((head, words))
    return rows


def is_running_with(parameters: Sequence[str]) -> bool:
    """True when the running kernel was booted with them."""
    return set(parameters) <= set((line_if_there(Root(), "/proc/cmdline") or "").split())


def plan_grub(rootfs: str, name: str, parameters: Sequence[str]) -> FilePlan:
    """FilePlan that writes unhang's file."""
    line = f'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {" ".join(parameters)}"'
    return plan_own(rootfs, {own_path(name): [line]})._replace(
        manual=others_parameters(rootfs, name, parameters)
    )


def plan_without_grub(rootfs: str, name: str) -> FilePlan:
    """FilePlan that removes unhang's file."""
    return plan_gone(rootfs, owner_of(name), [own_path(name)])


def write_grub(rootfs: str, name: str, plan: FilePlan, absent: bool, state_id: str) -> None:
    """Writes the plan and generates the menu again; if that fails, the file is restored. Raises
    OSError, ValueError."""
    write_plan(
        rootfs,
        owner_of(name),
        plan,
        absent,
        state_id,
        [path for path in MENUS if there(Root([rootfs]), path)],
    )
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
    """Kernels whose entries have the parameter; None without grubby. Raises OSError, ValueError."""
    return (
        sorted({kernel for kernel, parameters in read_entries() if parameter in parameters})
        if is_there("/", *GRUBBY)
        else None
    )


def write_parameter(parameter: str, kernels: Sequence[str]) -> None:
    """Adds the parameter to the entries of these kernels and removes it from all others. Raises
    OSError, ValueError."""
    if not kernels and any(parameter in parameters for _kernel, parameters in read_entries()):
        # Of all at once: only so does grubby take it from where entries to come get theirs too
        # (kernelopts of RHEL 8, /etc/kernel/cmdline).
        output_of(["grubby", "--update-kernel=ALL", "--remove-args=" + parameter], DEADLINE_S)
    for kernel in sorted(
        {
            kernel
            for kernel, parameters in read_entries()
            if (parameter in parameters) != (kernel in kernels)
        }
    ):
        output_of(
            [
                "grubby",
                "--update-kernel=" + kernel,
                ("--args=" if kernel in kernels else "--remove-args=") + parameter,
            ],
            DEADLINE_S,
        )
    found = sorted({kernel for kernel, parameters in read_entries() if parameter in parameters})
    if found != sorted(kernels):
        raise ValueError(
            f"grubby shows {parameter} on {', '.join(found) or 'no entry'}, not on"
            f" {', '.join(kernels) or 'no entry'}"
        )


def keep_parameters(
    rootfs: str, name: str, state_id: str, parameters: Sequence[str], present: bool
) -> None:
    """Before grubby runs, saves which entries have the parameters, and the files from which new
    entries take theirs."""
    entries = read_entries()
    # also those that are not there: grubby makes them
    keep_files(rootfs, state_id, [state_path(owner_of(name)), *GRUBBY_FILES])
    everywhere = sorted({kernel for kernel, _arguments in entries})
    changes = [
        Change(
            kind="boot_parameter",
            name=parameter,
            value=_kernels_with(entries, parameter),
            wanted=everywhere if present else [],
        )
        for parameter in parameters
    ]
    replaced = replaced_by_grubby(entries, parameters) if present else {}
    changes += [
        Change(kind="boot_parameter", name=parameter, value=kernels, wanted=[])
        for parameter, kernels in replaced.items()
    ]
    keep_running(rootfs, state_id, changes)


def _kernels_with(entries: Sequence[tuple[str, list[str]]], parameter: str) -> list[str]:
    return sorted({kernel for kernel, has in entries if parameter in has})


def replaced_by_grubby(
    entries: Sequence[tuple[str, list[str]]], parameters: Sequence[str]
) -> dict[str, list[str]]:
    """{parameter: its kernels} of parameters with another value, which grubby replaces: "the new
    value replaces the old values" (grubby(8))."""
    keys = {parameter.partition("=")[0] for parameter in parameters}
    others = {
        word
        for _kernel, has in entries
        for word in has
        if word not in parameters and "=" in word and word.partition("=")[0] in keys
    }
    return {word: _kernels_with(entries, word) for word in sorted(others)}


def missing_in_grubby(parameters: Sequence[str]) -> list[str]:
    """Parameters that at least one entry lacks."""
    entries = read_entries()
    return [
        parameter
        for parameter in parameters
        if not entries or any(parameter not in entry for _kernel, entry in entries)
    ]


def add_by_grubby(rootfs: str, name: str, parameters: Sequence[str], state_id: str) -> None:
    """Saves the names of the parameters, adds them, and reads them back. rootfs: the tree with the
    saved state; grubby changes the running system."""
    keep_parameters(rootfs, name, state_id, parameters, True)
    saved = read_state(rootfs, owner_of(name))
    replaced = {**replaced_by_grubby(read_entries(), parameters), **saved.get("replaced", {})}
    write_state(
        rootfs,
        owner_of(name),
        dict(
            saved, grubby=sorted(set(saved.get("grubby", [])) | set(parameters)), replaced=replaced
        ),
    )
    output_of(["grubby", "--update-kernel=ALL", "--args=" + " ".join(parameters)], DEADLINE_S)
    missing = missing_in_grubby(parameters)
    if missing:
        raise ValueError(
            f"grubby shows a boot entry without {' '.join(missing)} after it was added"
        )


def given_to_grubby(rootfs: str, name: str) -> list[str]:
    """Parameters that unhang added with grubby and that are still set."""
    return list(read_state(rootfs, owner_of(name)).get("grubby", []))


def remove_by_grubby(rootfs: str, name: str, parameters: Sequence[str], state_id: str) -> None:
    """Removes exactly these parameters, and restores the values that they replaced in the entries
    that still exist."""
    keep_parameters(rootfs, name, state_id, parameters, False)
    output_of(
        ["grubby", "--update-kernel=ALL", "--remove-args=" + " ".join(parameters)], DEADLINE_S
    )
    known = {kernel for kernel, _has in read_entries()}
    for parameter, kernels in read_state(rootfs, owner_of(name)).get("replaced", {}).items():
        write_parameter(parameter, sorted(known & set(kernels)))
    write_state(rootfs, owner_of(name), {})


def is_there(rootfs: str, *paths: str) -> bool:
    """True when one of these programs is on the node."""
    return any(os.path.exists((rootfs if rootfs != "/" else "") + path) for path in paths)
