"""Parameters of a kernel module (modprobe.d) and modules loaded at boot (modules-load.d), in files
of unhang's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ...base.parse.nvidia_driver import parse_params
from ...base.process import output_of
from ...base.root import Root
from ...facts.sections.installed_kernels import find_nvidia_module
from ...facts.sections.reading import drop_ins, line_if_there, there
from ...facts.sections.virtualization import container_kind, has_capability
from ..config.disabled_lines import ManualStep
from ..config.own_files import FilePlan, plan_gone, plan_own
from ..journal.running_values import Change
from .setting import Setting

MODPROBE, MODULES_LOAD, OPENED, CMDLINE = (
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/proc/driver/nvidia/params",
    "/proc/cmdline",
)
# libkmod's and the kernel's own word on its command line
BLACKLISTS = ("modprobe.blacklist", "module_blacklist")
EARLY = ("/etc/initramfs-tools/modules", "/etc/dracut.conf", "/etc/mkinitcpio.conf")
EARLY_FOLDERS = ("/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d")
CAP_SYS_MODULE = 16
_NAME, _VALUE = re.compile(r"^[A-Za-z0-9_-]+$"), re.compile(r"^[^\s\"'#\\]+$")


def options_path(name: str) -> str:
    """Path of unhang's file of parameters: its name sorts last, because the last of two values
    counts."""
    return f"{MODPROBE}/zz-unhang-{name}.conf"


def load_path(name: str) -> str:
    """Path of unhang's file that loads the module at boot."""
    return f"{MODULES_LOAD}/unhang-{name}.conf"


def check(name: str, parameters: Mapping[str, str]) -> None:
    """Raises ValueError for a name or a value that modprobe.d cannot contain."""
    if not _NAME.match(name):
        raise ValueError(f"{name!r} is not the name of a kernel module")
    for key, value in parameters.items():
        if not _NAME.match(key) or not _VALUE.match(value):
            raise ValueError(
                f"a parameter and its value must be without blanks and quotes, and are {key!r} and"
                f" {value!r}"
            )


def same(one: str, other: str) -> bool:
    """True if both are spellings of one module's name."""
    return one.replace("-", "_") == other.replace("-", "_")


def names_of(rootfs: str, name: str) -> list[str]:
    """The module's names: Debian's packages load nvidia by the name of its file, nvidia-current."""
    names = [name]
    if name == "nvidia":
        root = Root([rootfs])
        release = line_if_there(root, "/proc/sys/kernel/osrelease")
        path = find_nvidia_module(root, release) if release else None
        stem = path.rpartition("/")[2].split(".ko")[0] if path else name
        names += [] if same(stem, name) else [stem]
    return names


def read_others(
    rootfs: str, names: Sequence[str], parameters: Mapping[str, str], at_boot: bool
) -> tuple[list[tuple[str, int, str]], list[ManualStep]]:
    """([(path, number, line)] to disable, [ManualStep]): others' lines that set a parameter to
    another value, or prevent the module from being loaded."""
    root, rows, manual = Root([rootfs]), [], []
    for path in drop_ins(root, [MODPROBE]):
        if path in (options_path(names[0]),):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            fields = line.partition("#")[0].split()
            if len(fields) < 2 or not any(same(fields[1], name) for name in names):
                continue
            if at_boot and fields[0] == "blacklist":
                rows.append((path, number, line))
            pairs = [word.partition("=") for word in fields[2:]] if fields[0] == "options" else []
            wrong = [
                key
                for key, _equals, value in pairs
                if key in parameters and value != parameters[key]
            ]
            if wrong and len(pairs) == 1 and not line.rstrip().endswith("\\"):
                rows.append((path, number, line))
            elif wrong:
                why = (
                    f"sets {', '.join(wrong)} to another value, beside other parameters; unhang's"
                    " file is read later and wins, but remove it there"
                )
                manual.append(ManualStep(file=path, line=number, name=wrong[0], why=why))
    return rows, manual


def plan_module(
    rootfs: str, name: str, parameters: Mapping[str, str] | None, at_boot: bool
) -> Setting:
    """parameters: {name: text}, None to undo it. Raises OSError, ValueError."""
    check(name, parameters or {})
    owner = "host_tuning_" + name
    if parameters is None:
        return Setting(owner, plan_gone(rootfs, owner, [options_path(name), load_path(name)]))
    to_load = at_boot and rootfs == "/" and not is_loaded(name)
    why = why_not_load() if to_load else None
    if why:
        return Setting(owner, FilePlan(manual=[why]))
    names = names_of(rootfs, name)
    others, manual = read_others(rootfs, names, parameters, at_boot)
    lines = [
        f"options {one} {key}={value}" for one in names for key, value in sorted(parameters.items())
    ]
    plan = plan_own(
        rootfs,
        {options_path(name): lines, load_path(name): [name] if at_boot else []},
        others=others,
    )
    early = [
        ManualStep(file=path, why=why) for path, why in early_loads(rootfs, name) if parameters
    ]
    manual += [*read_command_line(rootfs, names, parameters, at_boot), *early]
    load_now = Change(kind="kernel_module", name=name, value="not loaded", wanted="loaded")
    return Setting(
        owner=owner,
        plan=plan._replace(manual=[*plan.manual, *manual]),
        changes=[load_now] if to_load else [],
        write=lambda name, _loaded: load(name),
    )


def read_command_line(
    rootfs: str, names: Sequence[str], parameters: Mapping[str, str], at_boot: bool
) -> list[ManualStep]:
    """ManualSteps about words of the kernel's command line that set a parameter otherwise, or keep
    the module from being loaded.

    modprobe reads the command line behind all of modprobe.d (kmod_config_new of libkmod), so that a
    value there wins over unhang's file.
    """
    found = []
    for word in (line_if_there(Root([rootfs]), CMDLINE) or "").split():
        key, _equals, value = word.partition("=")
        module, _dot, parameter = key.partition(".")
        if (
            any(same(module, name) for name in names)
            and parameter in parameters
            and value != parameters[parameter]
        ):
            ours = f"{parameters[parameter]} of modprobe.d"
            found.append(
                ManualStep(
                    file=CMDLINE,
                    name=parameter,
                    why=(
                        f"{word} on the kernel's command line wins over {ours}; take it out of the"
                        " boot loader"
                    ),
                )
            )
        elif (
            at_boot
            and key in BLACKLISTS
            and any(same(one, name) for one in value.split(",") for name in names)
        ):
            found.append(
                ManualStep(
                    file=CMDLINE,
                    name=names[0],
                    why=(
                        f"{word} keeps {names[0]} from being loaded at boot; take it out of the"
                        " boot loader"
                    ),
                )
            )
    return found


def early_loads(rootfs: str, name: str) -> list[tuple[str, str]]:
    """[(path, why)] of files because of which the initial file system loads the module, with its
    own copy of modprobe.d."""
    root, rows = Root([rootfs]), []
    for path in [*EARLY, *drop_ins(root, EARLY_FOLDERS)]:
        text = root.text(path, 1 << 20) if there(root, path) else ""
        # NVIDIA's configuration for dracut omits the driver from the initial file system.
        if any(
            name in line.partition("#")[0] and not line.lstrip().startswith("omit_")
            for line in text.split("\n")
        ):
            rows.append(
                (
                    path,
                    (
                        f"loads {name} from the initial file system; run update-initramfs -u or"
                        " dracut --force, for it has a copy of its own"
                    ),
                )
            )
    return rows


def is_loaded(name: str) -> bool:
    """True when the running kernel has the module; Debian's nvidia-current-peermem registers itself
    as nvidia_peermem."""
    return os.path.isdir("/sys/module/" + name.replace("-", "_"))


def why_not_load() -> str | None:
    """The reason why no module can be loaded here, or None."""
    kind = container_kind(Root(), None)
    if kind or not has_capability(Root(), CAP_SYS_MODULE):
        return (
            "no kernel module can be loaded"
            f" {f'in a {kind} container' if kind else 'without CAP_SYS_MODULE'}: load it on the"
            " host"
        )
    return None


def load(name: str) -> None:
    """Loads the module. Raises ValueError with modprobe's message."""
    output_of(["modprobe", name])
    if not is_loaded(name):
        raise ValueError(
            f"modprobe ended without a fault, but {name} is not among the loaded modules"
        )


def not_running_with(name: str, parameters: Mapping[str, str]) -> list[str]:
    """Names of parameters that differ in the loaded driver; [] if it is not loaded or they cannot
    be read."""
    if name != "nvidia" or not os.path.exists(OPENED):
        return []
    loaded = parse_params(Root().text(OPENED, 1 << 20))
    return [
        key
        for key, value in sorted(parameters.items())
        if key.startswith("NVreg_") and loaded.get(key[6:], value) != value
    ]
