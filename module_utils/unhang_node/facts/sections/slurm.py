"""Slurm on the node: slurmd, and what its configuration says of this node. Part of section `node`.

Files on a network file system are not touched by read_slurm: its server may be gone.
read_shared_slurm reads them, and its caller gives it up after a while. Of a node without a
slurm.conf of its own, the copy that slurmd fetched is read.
"""

from __future__ import annotations

from ...base.parse.mounts import is_network, mount_of
from ...base.parse.values import clean, clean_or_none, integer_or_none, parse_cpu_list
from ...base.untrusted_files import NOT_NAMED, read_text, resolve_local
from ..parse.slurm_conf import (
    count_gpus,
    expand,
    included,
    parse_cgroup_conf,
    parse_gres_conf,
    row_of_node,
    settings,
    slurm_lines,
    words,
)
from .host_state import read_cgroup
from .reading import first_there, line_if_there, names_if_there, text_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

PLUGIN_FOLDERS = (
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
)
SLURMD_PATHS = (
    "/usr/sbin/slurmd",
    "/usr/local/sbin/slurmd",
    "/opt/slurm/sbin/slurmd",
    "/cm/shared/apps/slurm/current/sbin/slurmd",
)
FOLDERS = (
    "/etc/slurm",
    "/etc/slurm-llnl",
    "/usr/local/etc",
    "/opt/slurm/etc",
    "/run/slurm/conf",
    "/var/spool/slurmd/conf-cache",
)
# The unit while it runs: a slurmd on a network file system is not looked for there.
SLURMD_RUNS = (
    "/sys/fs/cgroup/system.slice/slurmd.service",
    "/sys/fs/cgroup/systemd/system.slice/slurmd.service",
)
PAM_FILES = (
    "/etc/pam.d/sshd",
    "/etc/pam.d/password-auth",
    "/etc/pam.d/common-account",
    "/etc/pam.d/system-auth",
)
BESIDE = ("cgroup", "gres", "plugins_missing")
BYTES = 1 << 20
INCLUDES = 16
NO_CORE = -1  # no core is named


def read_slurm(root: Root, unread: Unread, mounts: Sequence[Mount]) -> dict[str, Any]:
    """{slurmd, version, config, cgroup, gres, plugins_missing, ssh_adopted}; all but slurmd null
    without slurmd. Raises OSError."""
    paths = [path for path in SLURMD_PATHS if not is_network(mount_of(mounts, path))]
    slurmd = first_there(root, [*paths, *SLURMD_RUNS]) is not None
    found: dict[str, Any] = {
        "slurmd": slurmd,
        "version": None,
        "config": None,
        "cgroup": None,
        "gres": None,
        "plugins_missing": None,
        "ssh_adopted": None,
    }
    if not slurmd:
        return found
    found["version"] = find_slurm_version(root)
    if found["version"] is None:
        unread.add("slurm.version", "absent", "no libslurmfull-<version>.so beside Slurm's plugins")
    found["ssh_adopted"] = any(
        "pam_slurm_adopt.so" in line for path in PAM_FILES for line in pam_lines(root, path)
    )
    path = unread.attempt("slurm.config", find_configuration, root, mounts)
    lines = unread.attempt("slurm.config", read_lines, root, mounts, path) if path else None
    if path is None or lines is None:
        for field in BESIDE:
            unread.add("slurm." + field, "absent", "slurm.conf was not read")
        return found
    return {**found, **read_configuration(root, unread, mounts, path, lines)}


def is_shared(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether read_slurm left slurm.conf out because it lies on a network file system. rows: its
    reasons."""
    return any(row["field"] == "slurm.config" and NOT_NAMED in row["reason"] for row in rows)


def read_shared_slurm(root: Root, unread: Unread) -> dict[str, Any]:
    """{slurm: {config, cgroup, gres, plugins_missing}} from slurm.conf on a network file system. A
    server that does not answer blocks this. Raises OSError."""
    path = find_configuration(root, ())
    return {"slurm": read_configuration(root, unread, (), path, read_lines(root, (), path))}


def find_configuration(root: Root, mounts: Sequence[Mount]) -> str:
    """Path of the node's slurm.conf. Raises FileNotFoundError without one, NotLocal for one on a
    network file system."""
    for folder in FOLDERS:
        try:
            resolve_local(root, mounts, folder + "/slurm.conf")
        except (FileNotFoundError, NotADirectoryError):
            continue
        return folder + "/slurm.conf"
    raise FileNotFoundError(2, "no slurm.conf in " + ", ".join(FOLDERS))


def read_configuration(
    root: Root, unread: Unread, mounts: Sequence[Mount], path: str, lines: list[str]
) -> dict[str, Any]:
    """{config, cgroup, gres, plugins_missing} of the node that slurm.conf at `path` and the files
    beside it describe."""
    folder = path.rpartition("/")[0]
    name = (
        line_if_there(root, "/proc/sys/kernel/hostname")
        or line_if_there(root, "/etc/hostname")
        or ""
    ).partition(".")[0]
    values = settings(lines)
    cgroup = unread.attempt("slurm.cgroup", read_beside, root, mounts, folder + "/cgroup.conf")
    gres = unread.attempt("slurm.gres", read_beside, root, mounts, folder + "/gres.conf")
    config = config_of(path, values, row_of_node(lines, name))
    found: dict[str, Any] = {
        "config": config,
        "cgroup": None if cgroup is None else dict(parse_cgroup_conf(cgroup[1]), path=cgroup[0]),
        "gres": None if gres is None else gres_of(root, unread, gres[0], gres[1], name),
    }
    note_unset(unread, config)
    found["plugins_missing"] = plugins_missing(root, mounts, values, found)
    if found["plugins_missing"] is None:
        unread.add("slurm.plugins_missing", "absent", "no folder with Slurm's plugins")
    return found


def read_lines(root: Root, mounts: Sequence[Mount], path: str) -> list[str]:
    """The lines of slurm.conf and of the files that it includes, one level deep. Raises OSError and
    ValueError."""
    lines = slurm_lines(read_text(root, resolve_local(root, mounts, path), BYTES))
    for name in included(lines)[:INCLUDES]:
        if "%" not in name:
            file = name if name.startswith("/") else path.rpartition("/")[0] + "/" + name
            lines = lines + slurm_lines(read_text(root, resolve_local(root, mounts, file), BYTES))
    return lines


def read_beside(root: Root, mounts: Sequence[Mount], path: str) -> tuple[str, str]:
    """(path, text) of a file that need not be there: ("", "") without it, as Slurm takes its
    defaults then. Raises OSError and ValueError."""
    try:
        return path, read_text(root, resolve_local(root, mounts, path), BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return "", ""


def in_full(kind: str, name: str) -> str:
    """task/cgroup of cgroup: Slurm accepts a plugin's name without its kind."""
    return name if not name or "/" in name else f"{kind}/{name}"


def config_of(path: str, values: dict[str, str], row: dict[str, str]) -> dict[str, Any]:
    """What decides about jobs on this node; "" and [] for what slurm.conf does not set, so that
    Slurm's default holds. Times are those in effect."""
    sockets, cores = (
        integer_or_none(row.get("sockets", row.get("socketsperboard", ""))),
        integer_or_none(row.get("corespersocket", "")),
    )
    parameters = words(values.get("slurmctldparameters", "")) + words(
        values.get("slurmdparameters", "")
    )
    message_s = integer_or_none(values.get("messagetimeout", "10"))
    kill_s = (
        integer_or_none(values["unkillablesteptimeout"])
        if "unkillablesteptimeout" in values
        else max(60, 5 * (message_s or 0))
    )
    return {
        "path": path,
        "task_plugins": sorted(
            in_full("task", word) for word in words(values.get("taskplugin", ""))
        ),
        "proctrack": in_full("proctrack", values.get("proctracktype", "").lower()[:128]),
        "propagate": words(values.get("propagateresourcelimits", "")),
        "propagate_except": words(values.get("propagateresourcelimitsexcept", "")),
        "prolog_flags": words(values.get("prologflags", "")),
        "select_parameters": words(values.get("selecttypeparameters", "")),
        "parameters": parameters,
        "mpi_default": values.get("mpidefault", "").lower()[:128],
        "gres_types": words(values.get("grestypes", "")),
        "unkillable_step_timeout_s": kill_s,
        "message_timeout_s": message_s,
        "slurmd_timeout_s": integer_or_none(values.get("slurmdtimeout", "300")),
        "node": bool(row),
        "gpus": count_gpus(row.get("gres", "")) if row else None,
        "memory_mib": integer_or_none(row.get("realmemory", "")),
        "cores": sockets * cores if sockets and cores else None,
        "threads_per_core": integer_or_none(row.get("threadspercore", "")),
    }


def note_unset(unread: Unread, config: dict[str, Any]) -> None:
    """Says of each number that is null why: the node's line does not set it, or a time is no
    number."""
    for field in ("gpus", "memory_mib", "cores", "threads_per_core"):
        if config[field] is None:
            unread.add(
                "slurm.config." + field, "absent", "no line of slurm.conf sets it for this node"
            )
    for field in ("unkillable_step_timeout_s", "message_timeout_s", "slurmd_timeout_s"):
        if config[field] is None:
            unread.add("slurm.config." + field, "error", "slurm.conf sets no number of seconds")


def gres_of(root: Root, unread: Unread, path: str, text: str, name: str) -> dict[str, Any]:
    """{path, autodetect, rows: [{type, files, files_missing, cores, highest_core,
    lowest_core}]} of gres.conf for this node's GPUs."""
    autodetect, lines = parse_gres_conf(text, name)
    return {
        "path": path,
        "autodetect": autodetect,
        "rows": [gres_row(root, unread, values) for values in lines],
    }


def gres_row(root: Root, unread: Unread, values: dict[str, str]) -> dict[str, Any]:
    """One line of gres.conf; files_missing: those of File= that /dev has not."""
    files = unread.attempt(
        "slurm.gres.rows[*].files", expand, values.get("file", values.get("multiplefiles", ""))
    )
    cores = values.get("cores", values.get("cpus", ""))
    numbers = (
        unread.attempt("slurm.gres.rows[*].highest_core", parse_cpu_list, cores) if cores else []
    )
    return {
        "type": clean(values.get("type", ""), 128),
        "files": files,
        "files_missing": None
        if files is None
        else [file for file in files if file.startswith("/dev/") and not there(root, file)],
        "cores": clean(cores, 1024),
        "highest_core": None if numbers is None else max(numbers, default=NO_CORE),
        "lowest_core": None if numbers is None else min(numbers, default=NO_CORE),
    }


def plugins_missing(
    root: Root, mounts: Sequence[Mount], values: dict[str, str], found: dict[str, Any]
) -> list[str] | None:
    """Plugins that the configuration asks for and Slurm's folder of plugins lacks; None when that
    folder is not found here."""
    own = [folder for folder in values.get("plugindir", "").split(":") if folder.startswith("/")]
    names = {
        name for folder in own or PLUGIN_FOLDERS for name in plugin_names(root, mounts, folder)
    }
    if not names:
        return None
    return [
        plugin
        for plugin in plugins_wanted(root, values, found)
        if plugin.replace("/", "_") + ".so" not in names
    ]


def plugin_names(root: Root, mounts: Sequence[Mount], folder: str) -> list[str]:
    """Names of the plugins in a local folder; [] for one that is not there or lies on a network
    file system."""
    try:
        return [
            name
            for name in names_if_there(root, resolve_local(root, mounts, folder))
            if name.endswith(".so")
        ]
    except OSError:
        return []


def plugins_wanted(root: Root, values: dict[str, str], found: dict[str, Any]) -> list[str]:
    """task/cgroup, mpi/pmix, gpu/nvml …: what these settings make slurmd or srun load."""
    wanted = [
        each
        for each in found["config"]["task_plugins"]
        if each.startswith("task/") and each != "task/none"
    ]
    wanted += [each for each in (found["config"]["proctrack"],) if each.startswith("proctrack/")]
    mpi = found["config"]["mpi_default"].rpartition("/")[2]
    wanted += ["mpi/" + mpi] if mpi not in ("", "none", "openmpi") else []
    wanted += (
        ["gpu/" + found["gres"]["autodetect"]]
        if found["gres"] and found["gres"]["autodetect"] in ("nvml", "nvidia")
        else []
    )
    if (
        any(each.endswith("/cgroup") for each in [*wanted, values.get("jobacctgathertype", "")])
        and found["cgroup"]
    ):
        wanted += cgroup_plugin(root, found["cgroup"]["plugin"])
    return sorted(set(wanted))


def cgroup_plugin(root: Root, chosen: str) -> list[str]:
    """["cgroup/v2"]: the plugin for control groups, named or by what the kernel has; [] where
    neither says it."""
    if chosen in ("cgroup/v1", "cgroup/v2"):
        return [chosen]
    try:
        return (
            ["cgroup/v2" if read_cgroup(root) == "v2" else "cgroup/v1"]
            if chosen == "autodetect"
            else []
        )
    except OSError:
        return []


def pam_lines(root: Root, path: str) -> list[str]:
    """Lines of a PAM file that hold; [] where it cannot be read."""
    return [
        line for line in text_if_there(root, path).splitlines() if not line.lstrip().startswith("#")
    ]


def find_slurm_version(root: Root) -> str | None:
    """22.05.8 from libslurmfull-22.05.8.so, or None."""
    for folder in PLUGIN_FOLDERS:
        for name in names_if_there(root, folder):
            if name.startswith("libslurmfull-") and name.endswith(".so"):
                return clean_or_none(name[len("libslurmfull-") : -len(".so")], 64)
    return None
