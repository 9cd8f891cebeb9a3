"""Installed packages, from dpkg's files or through rpm: read once, used by several sections."""

from __future__ import annotations

import fnmatch

from ...base.parse.dpkg import STATUS_LIMIT_BYTES, Database, Package, parse_status
from ...base.section import Unread
from ...base.untrusted_files import names_or_none, read_file
from .rpm_locks import read_rpm_locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

STATUS = "/var/lib/dpkg/status"
UPDATES = "/var/lib/dpkg/updates"
RPM_FOLDERS = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
RPM_FILES = ("rpmdb.sqlite", "Packages.db", "Packages")
RPM_PROGRAM = "/usr/bin/rpm"
RPM_DEADLINE_S = 10.0
RPM_QUERY = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"

DRIVER: tuple[str, ...] = (
    "nvidia-",
    "libnvidia-",
    "cuda-drivers",
    "libcuda1",
    "libcuda-",
    "kmod-nvidia",
    "kmod-open-nvidia",
    "xserver-xorg-video-nvidia",
)
DRIVER += (
    "linux-modules-nvidia",
    "linux-objects-nvidia",
    "linux-signatures-nvidia",
    "firmware-nvidia",
    "nvlsm",
    "libnvsdm",
    "akmod-nvidia",
)
NOT_DRIVER: tuple[str, ...] = (
    "nvidia-container",
    "libnvidia-container",
    "nvidia-cuda",
    "nvidia-docker",
    "nvidia-cudnn",
    "nvidia-gds",
    "nvidia-fs",
    "libnvidia-egl-wayland",
)
NOT_DRIVER += (
    "nvidia-detect",
    "nvidia-installer-cleanup",
    "nvidia-visual-profiler",
    "nvidia-nsight",
    "nvidia-mlnx",
)
KERNEL: tuple[str, ...] = (
    "linux-image",
    "linux-headers",
    "linux-modules",
    "linux-generic",
    "linux-hwe",
    "linux-aws",
    "linux-azure",
    "linux-gcp",
    "linux-gke",
    "linux-oracle",
)
KERNEL += (
    "linux-nvidia",
    "linux-virtual",
    "linux-lowlatency",
    "kernel-core",
    "kernel-modules",
    "kernel-devel",
    "kernel-default",
    "kernel-uek",
    "dkms",
)
NCCL = ("libnccl", "nccl", "aws-ofi-nccl", "libaws-ofi")
# Packages in the section `packages`: those that decide whether collectives run.
LISTED: tuple[str, ...] = DRIVER + KERNEL + NCCL
LISTED += (
    "nvidia",
    "libnvidia",
    "cuda",
    "libcudnn",
    "cudnn",
    "datacenter-gpu-manager",
    "dcgm",
    "gdrcopy",
    "gdrdrv",
    "libgdrapi",
)
LISTED += (
    "mlnx",
    "mlx",
    "kmod-mlnx",
    "ofed",
    "doca",
    "rdma-core",
    "libibverbs",
    "ibverbs",
    "librdmacm",
    "infiniband",
    "ucx",
    "libucx",
    "libfabric",
    "efa",
)
LISTED += (
    "slurm",
    "munge",
    "libpmix",
    "openmpi-bin",
    "docker",
    "moby-",
    "containerd",
    "podman",
    "cri-o",
    "enroot",
    "apptainer",
    "singularity",
    "kubelet",
)
LISTED += ("unattended-upgrades", "needrestart", "dnf-automatic")
# Packages of which other sections need only the version.
TOOLS = (
    "gcc",
    "g++",
    "ninja",
    "make",
    "python3-dev",
    "python3-devel",
    "python3.",
    "cpp",
    "clang",
    "linux-perf",
)


def read_database(
    root: Root, unread: Unread, field: str, rpm_program: str = RPM_PROGRAM
) -> tuple[str | None, Database | None]:
    """(manager, Database): manager is dpkg, rpm, none, or None when its database could not be read
    (noted under `field`)."""
    try:
        return "dpkg", parse_status(read_status_bytes(root), LISTED + TOOLS)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as problem:
        unread.of_error(field, problem)
        return None, None
    for folder in RPM_FOLDERS:
        if any(_is_there(root, folder + "/" + name) for name in RPM_FILES):
            database = unread.attempt(field, read_rpm, root, folder, rpm_program)
            return (
                (None, None)
                if database is None
                else ("rpm", with_locks(database, read_rpm_locks(root, Unread())))
            )
    return "none", Database()


def read_status_bytes(root: Root) -> bytes:
    """The status file, merged with the newer stanzas that a running (or interrupted) dpkg has
    written beside it."""
    content = read_file(root, STATUS, STATUS_LIMIT_BYTES)
    try:
        newer = [
            read_file(root, UPDATES + "/" + name)
            for name in names_or_none(root, UPDATES)
            if name.isdigit()
        ][:250]
    except (OSError, ValueError):
        newer = []  # a running dpkg may remove these files at any moment
    return content if not newer else _with_updates(content, newer)


def _with_updates(content: bytes, newer: list[bytes]) -> bytes:
    stanzas = {}
    for stanza in content.split(b"\n\n"):
        stanzas[_head(stanza)] = stanza
    for update in newer:
        for stanza in update.split(b"\n\n"):
            if stanza.strip():
                stanzas[_head(stanza)] = stanza.strip(b"\n")
    return b"\n\n".join(stanzas.values())


def _head(stanza: bytes) -> tuple[bytes, bytes]:
    """The identity of a package: its name and architecture."""
    lines = stanza.strip(b"\n").split(b"\n")
    return lines[0], next((line for line in lines if line.startswith(b"Architecture: ")), b"")


def _is_there(root: Root, path: str) -> bool:
    try:
        return root.exists(path)
    except OSError:
        return True


def read_rpm(root: Root, folder: str, program: str) -> Database:
    """Database from `rpm -qa`, the only program that the collector runs: rpm's own file has three
    formats. Raises OSError, ValueError."""
    # subprocess costs 10 ms, and no node of dpkg needs it
    from ...base.process import demand_success, run_process

    root.watch(f"{program} -qa")
    try:
        done = run_process(
            [program, "--dbpath", root.place(folder), "-qa", "--qf", RPM_QUERY], RPM_DEADLINE_S
        )
    except PermissionError:
        raise FileNotFoundError(2, "needed to read " + folder, program) from None
    if done.is_missing:
        raise FileNotFoundError(2, "needed to read " + folder, program)
    return parse_rpm(demand_success(done, RPM_DEADLINE_S))


def parse_rpm(text: str) -> Database:
    """Database from lines `name<TAB>epoch:version-release<TAB>architecture`; an epoch of 0 is
    omitted, as people write versions."""
    packages = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[0].startswith(LISTED + TOOLS):
            version = fields[1][2:] if fields[1].startswith("0:") else fields[1]
            packages.append(
                Package(
                    name=fields[0],
                    version=version,
                    architecture=fields[2],
                    held=False,
                    state="installed",
                )
            )
    packages.sort(key=lambda package: (package.name, package.version, package.architecture))
    return Database(packages=tuple(packages))


def with_locks(database: Database, locks: list[dict[str, Any]]) -> Database:
    """The Database with `held` set on packages that a lock file names: by name, or as
    name-version*. "!" entries exclude versions and hold nothing."""
    patterns = [lock["package"] for lock in locks if not lock["pin"].startswith("not ")]

    def is_held(package: Package) -> bool:
        full = f"{package.name}-{package.version.split(':')[-1]}"
        return any(
            fnmatch.fnmatchcase(package.name, pattern) or fnmatch.fnmatchcase(full, pattern)
            for pattern in patterns
        )

    return Database(
        packages=tuple(package._replace(held=is_held(package)) for package in database.packages),
        holds=tuple(patterns),
        unfinished=database.unfinished,
    )


def driver_packages(database: Database) -> list[Package]:
    """The driver's own packages (not the container toolkit, not the CUDA toolkit), sorted by
    name."""
    return [
        package for package in database.named(DRIVER) if not package.name.startswith(NOT_DRIVER)
    ]


def listed_packages(database: Database) -> list[Package]:
    """The rows of the section `packages`."""
    return database.named(LISTED)
