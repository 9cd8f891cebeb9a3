"""Section `kernel`: the running kernel, its modules, installed kernels and the next boot."""

from __future__ import annotations

from ...base.mount_table import read_mounts
from ...base.parse.command_line import without_secrets
from ...base.parse.values import clean, integer_or_none, release_key
from .boot import read_boot
from .installed_kernels import read_dkms, read_installed
from .modprobe import read_lockdown, read_modprobe
from .reading import (
    first_there,
    line_if_there,
    names_if_there,
    read_integer,
    read_line,
    text_if_there,
    there,
)
from .virtualization import container_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

    ModuleRow = tuple[str, int | None, str]

# Bits of /proc/sys/kernel/tainted, from bit 0 on: Documentation/admin-guide/tainted-kernels.rst
TAINT_LETTERS = "PFSRMBUDAWCIOELKXTNJ"
INTEREST_NAMES = frozenset(
    [
        "nouveau",
        "nv_peer_mem",
        "gdrdrv",
        "efa",
        "efa_nv_peermem",
        "knem",
        "xpmem",
        "lustre",
        "lnet",
        "ko2iblnd",
        "ksocklnd",
        "zfs",
        "spl",
        "mmfs26",
        "mmfslinux",
        "tracedev",
        "beegfs",
        "wekafsio",
        "wekafsgw",
        "vfio_pci",
        "nvme_rdma",
        "nvmet_rdma",
        "rpcrdma",
        "ksmbd",
        "rdmavt",
        "irdma",
        "bnxt_re",
        "amdgpu",
        "xe",
    ]
)
INTEREST_STEMS = ("nvidia", "nova", "ib_", "mlx", "rdma", "iw_", "hfi1")
PARAMETERS = 128
# modules with hundreds of parameters, which no rule reads
SILENT_PARAMETERS = ("zfs", "spl", "lustre", "lnet", "amdgpu", "xe")
MODULES = 256


def read_kernel(root: Root, unread: Unread) -> dict[str, Any]:
    """The section's fields, except probe."""
    release = unread.attempt("release", read_line, root, "/proc/sys/kernel/osrelease", 256)
    mounts = unread.attempt("boot.can_clear_one_shot", read_mounts, root)
    listed = unread.attempt("modules", read_module_list, root)
    if container_kind(root, mounts):
        installed = dkms = boot = required = reasons = None
        for field in ("installed", "dkms", "boot", "reboot_required"):
            unread.add(
                field, "absent", "a container's file system does not hold the node's kernels"
            )
    else:
        dkms = unread.attempt("dkms", read_dkms, root)
        installed = unread.attempt("installed", read_installed, root, unread, release, dkms)
        boot = unread.attempt("boot", read_boot, root, unread, mounts)
        required, reasons = read_reboot(root, unread, release, installed, boot)
    return {
        "release": release,
        "version": unread.attempt("version", read_line, root, "/proc/sys/kernel/version", 512),
        "cmdline": unread.attempt("cmdline", read_cmdline, root),
        "taints": unread.attempt("taints", read_taints, root),
        "modules": None
        if listed is None
        else [read_module(root, unread, row) for row in listed if is_of_interest(row[0])][:MODULES],
        "out_of_tree": None
        if listed is None
        else [name for name, _users, flags in listed if "O" in flags][:MODULES],
        "modprobe": unread.attempt("modprobe", read_modprobe, root, unread),
        "lockdown": unread.attempt("lockdown", read_lockdown, root),
        "installed": installed,
        "dkms": dkms,
        "boot": boot,
        "reboot_required": required,
        "reboot_reasons": reasons,
    }


def read_cmdline(root: Root) -> str:
    """The kernel command line without secrets. Raises OSError."""
    return without_secrets(read_line(root, "/proc/cmdline", 4096))


def read_taints(root: Root) -> dict[str, Any]:
    """{value, letters}. Raises OSError and ValueError."""
    value = read_integer(root, "/proc/sys/kernel/tainted")
    return {
        "value": value,
        "letters": [letter for bit, letter in enumerate(TAINT_LETTERS) if value >> bit & 1],
    }


def read_module_list(root: Root) -> list[ModuleRow]:
    """[(name, users or None, taint letters)] of /proc/modules; [] for a kernel that cannot load
    any. Raises OSError."""
    try:
        text = root.text("/proc/modules")
    except FileNotFoundError:
        if there(root, "/proc/sys/kernel/osrelease") and not there(
            root, "/proc/sys/kernel/modprobe"
        ):
            return []  # built without CONFIG_MODULES
        raise
    return [row for row in map(parse_module_line, text.splitlines()) if row]


def parse_module_line(line: str) -> ModuleRow | None:
    """(name, users, taint letters) of "nvidia 56717312 42 nvidia_uvm, Live 0x0 (POE)", None for a
    line of another form."""
    fields = line.split()
    if len(fields) < 5:
        return None
    letters = fields[-1][1:-1] if fields[-1].startswith("(") and fields[-1].endswith(")") else ""
    return clean(fields[0], 64), integer_or_none(fields[2]), letters


def is_of_interest(name: str) -> bool:
    """True for modules that GPUs, their network and their file systems depend on."""
    return name in INTEREST_NAMES or name.startswith(INTEREST_STEMS)


def read_module(root: Root, unread: Unread, row: ModuleRow) -> dict[str, Any]:
    """One row of the facts of a loaded module."""
    name, users, letters = row
    folder = "/sys/module/" + name
    version = line_if_there(root, folder + "/version")
    if version is None:
        unread.add(
            f"modules[{name}].version", "absent", f"no {folder}/version: the module states none"
        )
    return {
        "name": name,
        "version": version,
        "srcversion": line_if_there(root, folder + "/srcversion"),
        "out_of_tree": "O" in letters,
        "users": users,
        "parameters": read_parameters(root, unread, name, folder + "/parameters"),
    }


def read_parameters(root: Root, unread: Unread, name: str, folder: str) -> dict[str, str] | None:
    """{parameter: value}, {} without any; parameters that cannot be read are omitted and noted."""
    field = f"modules[{name}].parameters"
    if name in SILENT_PARAMETERS:
        unread.add(field, "absent", "not read: hundreds of them, and no rule needs one")
        return None
    values, denied = {}, []
    for parameter in names_if_there(root, folder)[:PARAMETERS]:
        try:
            values[clean(parameter, 128)] = read_line(root, folder + "/" + parameter, 1024)
        except (OSError, ValueError):
            denied.append(parameter)
    if denied:
        unread.add(field, "denied", "not readable: " + clean(" ".join(denied), 512))
    return values


def read_reboot(
    root: Root,
    unread: Unread,
    release: str | None,
    installed: list[dict[str, Any]] | None,
    boot: dict[str, Any] | None,
) -> tuple[bool | None, list[str]]:
    """(reboot_required or None, [reasons]): why a reboot is required, and what the next reboot
    would change."""
    reasons = []
    mark = unread.attempt(
        "reboot_required", first_there, root, ("/run/reboot-required", "/var/run/reboot-required")
    )
    if mark:
        packages = line_list(root, mark + ".pkgs")
        reasons.append(mark + (": " + " ".join(packages) if packages else ""))
    following = (boot or {}).get("default_release")
    if release and following and following != release:
        reasons.append(f"running {release}, the default boot entry starts {following}")
    elif release and not following:
        newest = next((row["release"] for row in installed or [] if row["image"]), None)
        if newest and release_key(newest) > release_key(release):
            reasons.append(f"running {release}, the newest kernel on the disk is {newest}")
    if boot and boot.get("one_shot_pending"):
        reasons.append(f"a one-shot boot entry waits: {boot['one_shot_entry']}")
    known = there(root, "/run") or there(root, "/var/run") or installed is not None
    return (bool(reasons) if reasons or known else None), [
        clean(reason, 1024) for reason in reasons
    ]


def line_list(root: Root, path: str) -> list[str]:
    """Distinct lines of a small file, at most 64, [] if it does not exist."""
    return sorted(
        {clean(line, 256) for line in text_if_there(root, path).splitlines() if line.strip()}
    )[:64]
