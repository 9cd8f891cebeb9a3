"""Section `limits`: limits of processes (locked memory, files, shared memory), and how much memory
and scratch space there is."""

from __future__ import annotations

import re

from ...base.mount_table import read_mounts
from ...base.parse.mounts import is_network, mount_of
from ...base.parse.resource_limits import (
    KEYS,
    parse_limits_conf,
    parse_proc_limits,
    parse_systemd_limit,
)
from ...base.parse.values import (
    clean,
    integer_or_none,
    parse_assignments,
    parse_flag_word,
    parse_meminfo,
    parse_systemd_settings,
)
from .daemons import CGROUPS
from .filesystems import read_filesystems, read_not_mounted
from .host_state import read_huge_pages
from .in_use import read_in_use
from .reading import (
    drop_ins,
    first_there,
    integer_if_there,
    line_if_there,
    read_integer,
    text_if_there,
    there,
)
from .virtualization import container_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

# Services that start users' jobs, each with its units and pid files. Control groups list the pids,
# so /proc is not searched.
SERVICES = (
    ("sshd", ("ssh.service", "sshd.service"), ("/run/sshd.pid", "/var/run/sshd.pid")),
    (
        "slurmd",
        ("slurmd.service",),
        ("/run/slurmd.pid", "/run/slurm/slurmd.pid", "/var/run/slurmd.pid"),
    ),
    ("containerd", ("containerd.service",), ("/run/containerd/containerd.pid",)),
    ("docker", ("docker.service",), ("/run/docker.pid", "/var/run/docker.pid")),
    ("crio", ("crio.service",), ()),
    ("kubelet", ("kubelet.service",), ()),
)
CONFIG_FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
LOGIND = ("/usr/lib/systemd/systemd-logind", "/lib/systemd/systemd-logind")
TEMP_PATHS = ("/tmp", "/var/tmp")  # noqa: S108 - looked at, never written to
SHM = "/dev/shm"  # noqa: S108 - looked at, never written to
SYSTEMD_LIMITS = (
    ("DefaultLimitMEMLOCK", "memlock_soft_bytes", "memlock_hard_bytes"),
    ("DefaultLimitNOFILE", "nofile_soft", "nofile_hard"),
    ("DefaultLimitSTACK", "stack_soft_bytes", "stack_hard_bytes"),
    ("DefaultLimitNPROC", "nproc_soft", "nproc_hard"),
)
# Red Hat builds systemd with the opposite default: systemd.spec of RHEL 7 to 9.
KEEPS_IPC_BY_DEFAULT = frozenset(["rhel", "centos", "rocky", "almalinux", "ol"])
SCOPES = 64
# Of the two generations of control groups. An older one without a limit has the largest number.
GROUP_LIMITS = (
    ("memory_max_bytes", "memory", ("memory.max", "memory.limit_in_bytes")),
    ("tasks_max", "pids", ("pids.max",)),
)
NO_GROUP_LIMIT = 1 << 60
# Kernel settings that limit large jobs, route their packets, or end processes or the node. Expected
# values: table sysctl_norms.
SYSCTLS = (
    "fs.aio-max-nr",
    "fs.file-max",
    "fs.inotify.max_user_instances",
    "fs.inotify.max_user_watches",
    "fs.nr_open",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.hung_task_panic",
    "kernel.hung_task_timeout_secs",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.pid_max",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.softlockup_panic",
    "kernel.threads-max",
    "kernel.unprivileged_userns_clone",
    "kernel.yama.ptrace_scope",
    "net.bridge.bridge-nf-call-iptables",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.conf.all.arp_announce",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_retries2",
    "net.ipv4.tcp_syn_retries",
    "net.ipv6.conf.all.disable_ipv6",
    "net.netfilter.nf_conntrack_max",
    "user.max_user_namespaces",
    "vm.compaction_proactiveness",
    "vm.dirty_ratio",
    "vm.max_map_count",
    "vm.min_free_kbytes",
    "vm.panic_on_oom",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
MEMORY_FIELDS = (
    ("hugepages_total", "HugePages_Total"),
    ("swap_total_bytes", "SwapTotal"),
    ("swap_free_bytes", "SwapFree"),
    ("memory_available_bytes", "MemAvailable"),
)


def read_limits(root: Root, unread: Unread) -> dict[str, Any]:
    """The section's fields, except probe."""
    mounts = unread.attempt("temp", read_mounts, root)
    memory = read_memory(root, unread)
    return {
        "scopes": unread.attempt("scopes", read_scopes, root, unread),
        "shm": unread.attempt("shm", read_shm, root, mounts),
        "hugepages_total": memory["hugepages_total"],
        "numa_balancing": unread.attempt("numa_balancing", read_numa_balancing, root),
        "transparent_hugepages": unread.attempt("transparent_hugepages", read_huge_pages, root),
        "sysctls": unread.attempt("sysctls", read_sysctls, root),
        "swap_total_bytes": memory["swap_total_bytes"],
        "swap_free_bytes": memory["swap_free_bytes"],
        "memory_available_bytes": memory["memory_available_bytes"],
        "remove_ipc": unread.attempt("remove_ipc", read_remove_ipc, root, mounts),
        "overcommit_memory": unread.attempt(
            "overcommit_memory", read_integer, root, "/proc/sys/vm/overcommit_memory"
        ),
        "filesystems": read_filesystems(root, unread, mounts),
        "not_mounted": None
        if mounts is None
        else unread.attempt("not_mounted", read_not_mounted, root, mounts),
        "in_use": unread.attempt("in_use", read_in_use, root),
        "temp": None
        if mounts is None
        else [row for row in (read_temp(root, unread, mounts, path) for path in TEMP_PATHS) if row],
    }


def read_memory(root: Root, unread: Unread) -> dict[str, Any]:
    """{field: value} of the fields that /proc/meminfo gives; null with a reason for each that is
    not in it (an old kernel has no MemAvailable)."""
    values = unread.attempt("memory_available_bytes", read_meminfo, root)
    for field, name in MEMORY_FIELDS:
        if name not in (values or {}):
            unread.add(
                field,
                "absent",
                "/proc/meminfo has no " + name
                if values is not None
                else "/proc/meminfo was not read",
            )
    return {field: (values or {}).get(name) for field, name in MEMORY_FIELDS}


def read_meminfo(root: Root) -> dict[str, int]:
    """{name: bytes or count}. Raises OSError."""
    return parse_meminfo(root.text("/proc/meminfo", 65536))


def read_scopes(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{scope, evidence, memlock, nofile, stack and nproc}] of the collector, of the services that
    start jobs, and of the configuration."""
    scopes = []
    own = unread.attempt("scopes[collector]", read_process_limits, root, "self")
    if own:
        scopes.append(dict(own, scope="collector", **read_own_groups(root)))
    for service, units, pid_files in SERVICES:
        pid = find_pid(root, service, units, pid_files)
        values = (
            unread.attempt(f"scopes[{service}]", read_process_limits, root, pid) if pid else None
        )
        if values:
            scopes.append(dict(values, scope=service, evidence=f"/proc/{pid}/limits"))
    default = read_systemd_default(root)
    if default:
        scopes.append(default)
    scopes = (scopes + read_limits_conf(root, unread))[:SCOPES]
    for key in KEYS:
        if any(scope[key] is None for scope in scopes):
            unread.add(f"scopes[*].{key}", "absent", "this scope sets no such limit")
    return scopes


def read_process_limits(root: Root, pid: str) -> dict[str, int | None]:
    """The limits of one process. Raises OSError and ValueError."""
    values = parse_proc_limits(root.text(f"/proc/{pid}/limits", 16384))
    if all(value is None for value in values.values()):
        raise ValueError(f"/proc/{pid}/limits has none of the limits looked for")
    return values


def read_own_groups(root: Root) -> dict[str, Any]:
    """The memory and the number of tasks that the control groups of this process allow it, None
    for no limit: the lowest of its group and those above; in a container that of the container is
    the root, and the path may be one of the host. evidence: with the service or session that
    started it, whose limits are those of no other one."""
    text = text_if_there(root, "/proc/self/cgroup")
    started = re.search(r"(?m)^\d+:(?:name=systemd)?:/([^/\n]+(?:/[^/\n]+)?)", text)
    place = f" of {re.sub('[0-9]+', 'N', started[1])}" if started else ""
    found: dict[str, Any] = {"evidence": f"/proc/self/limits{place[:100]}"}
    rows = [line.split(":", 2) for line in text.splitlines()]
    for field, controller, names in GROUP_LIMITS:
        values = []
        for kinds, path in (row[1:] for row in rows if len(row) == 3):
            if kinds and controller not in kinds.split(","):
                continue
            folder = f"/sys/fs/cgroup/{controller}" if kinds else "/sys/fs/cgroup"
            parts = path.strip("/").split("/")
            for end in range(len(parts) + 1):
                place = "/".join([folder, *parts[:end]])
                values += [integer_if_there(root, f"{place}/{name}") for name in names]
        limits = [one for one in values if one is not None and one < NO_GROUP_LIMIT]
        found[field] = min(limits) if limits else None
    return found


def find_pid(
    root: Root, service: str, units: Iterable[str], pid_files: Iterable[str]
) -> str | None:
    """The main process of a service by its control group or its pid file, or None. A pid that
    another program has meanwhile is not taken."""
    for folder in CGROUPS:
        for unit in units:
            for word in (line_if_there(root, f"{folder}/{unit}/cgroup.procs") or "").split()[:16]:
                if is_process_of(root, word, service):
                    return word
    for path in pid_files:
        word = line_if_there(root, path) or ""
        if is_process_of(root, word, service):
            return word
    return None


def is_process_of(root: Root, word: str, service: str) -> bool:
    """True when `word` is the pid of a process of that name (the kernel keeps 15 characters;
    dockerd serves docker)."""
    if integer_or_none(word) is None:
        return False
    return (line_if_there(root, f"/proc/{word}/comm") or "").startswith(service[:15])


def read_systemd_default(root: Root) -> dict[str, Any] | None:
    """The scope of DefaultLimit*, or None when no file sets one."""
    values, evidence = dict.fromkeys(KEYS), None
    for path in config_files(root, "system.conf"):
        for name, value in settings_of(root, path, "Manager"):
            for setting, soft, hard in SYSTEMD_LIMITS:
                if name == setting:
                    values[soft], values[hard] = parse_systemd_limit(value)
                    evidence = path
    return dict(values, scope="systemd_default", evidence=evidence) if evidence else None


def config_files(root: Root, name: str) -> list[str]:
    """Paths of a systemd configuration in reading order: the main file first, then drop-ins by
    name, /etc before /run before /usr."""
    main = next(
        (folder + "/" + name for folder in CONFIG_FOLDERS if there(root, folder + "/" + name)), None
    )
    return ([main] if main else []) + drop_ins(
        root, [folder + "/" + name + ".d" for folder in CONFIG_FOLDERS]
    )


def settings_of(root: Root, path: str, section: str) -> list[tuple[str, str]]:
    """[(name, value)] of one systemd file, [] when it cannot be read."""
    return parse_systemd_settings(text_if_there(root, path, 262144), section)


def read_limits_conf(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """Scopes "limits.conf" (domain *) and "limits.conf <domain>"; later files win, as pam_limits
    reads them."""
    merged: dict[str, dict[str, Any]] = {}
    for path in ["/etc/security/limits.conf"] + drop_ins(root, ["/etc/security/limits.d"]):
        if not there(root, path):
            continue
        text = unread.attempt("scopes[limits.conf]", root.text, path, 262144)
        for row in parse_limits_conf(text or "", path):
            domain = row.pop("domain")
            scope = "limits.conf" if domain == "*" else "limits.conf " + clean(domain, 64)
            merged.setdefault(scope, dict(dict.fromkeys(KEYS), scope=scope)).update(row)
    return list(merged.values())


def read_shm(root: Root, mounts: list[Mount] | None) -> dict[str, Any]:
    """{size_bytes, used_bytes} of /dev/shm. Raises OSError and ValueError."""
    mount = mount_of(mounts or [], SHM)
    if mount and is_network(mount):
        raise ValueError(f"{SHM} lies on {mount.fs_type}: not asked, its server may not answer")
    size, free = root.space(SHM)
    return {"size_bytes": size, "used_bytes": max(0, size - free)}


def read_numa_balancing(root: Root) -> bool:
    """True when the kernel moves pages between NUMA nodes by itself; False for a kernel without the
    setting. Raises OSError and ValueError."""
    try:
        return read_integer(root, "/proc/sys/kernel/numa_balancing") != 0
    except FileNotFoundError:
        if there(root, "/proc/sys/kernel/osrelease"):
            return False
        raise


def read_sysctls(root: Root) -> dict[str, str]:
    """{name: value} of the settings that this kernel has, the numbers of one setting are separated
    by single spaces. Raises OSError."""
    if not there(root, "/proc/sys"):
        raise FileNotFoundError(2, "no such folder", "/proc/sys")
    found = ((name, line_if_there(root, "/proc/sys/" + name.replace(".", "/"))) for name in SYSCTLS)
    return {name: clean(" ".join(line.split()), 256) for name, line in found if line}


def read_temp(root: Root, unread: Unread, mounts: list[Mount], path: str) -> dict[str, Any] | None:
    """{path, size_bytes, free_bytes, noexec} of one scratch folder; None when there is no such
    folder."""
    mount = mount_of(mounts, path)
    row: dict[str, Any] = {
        "path": path,
        "size_bytes": None,
        "free_bytes": None,
        "noexec": None if mount is None else "noexec" in mount.options,
    }
    field = f"temp[{path}].free_bytes"
    if mount and is_network(mount):
        unread.add(
            field, "absent", f"lies on {mount.fs_type}: not asked, its server may not answer"
        )
        return row
    if not there(root, path):
        return None
    space = unread.attempt(field, root.space, path)
    if space:
        row["size_bytes"], row["free_bytes"] = space
    return row


def read_remove_ipc(root: Root, mounts: list[Mount] | None) -> bool:
    """True when logind removes a user's shared memory when the user's last session ends. Raises
    OSError."""
    if first_there(root, LOGIND) is None:
        if container_kind(root, mounts):
            raise FileNotFoundError(2, "a container does not hold the node's logind", LOGIND[0])
        if not there(root, "/usr") and not there(root, "/lib"):
            raise FileNotFoundError(2, "no such folder", "/usr/lib/systemd")
        return False
    found = None
    for path in config_files(root, "logind.conf"):
        for name, value in settings_of(root, path, "Login"):
            if name == "RemoveIPC":
                found = parse_flag_word(value)
    if found is not None:
        return found
    release = first_there(root, ("/etc/os-release", "/usr/lib/os-release"))
    distribution = parse_assignments(root.text(release, 65536)).get("ID", "") if release else ""
    return distribution not in KEEPS_IPC_BY_DEFAULT
