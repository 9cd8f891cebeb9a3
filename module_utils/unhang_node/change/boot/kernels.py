"""Checks what a kernel needs on disk before it may boot: image, initrd, the modules that the node
needs, space in /boot."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...base.root import Root
from ...facts.sections.installed_kernels import DEP_LIMIT_BYTES, MODULES
from ...facts.sections.reading import names_if_there, there
from .dkms_builds import Build, read_builds, why_not_built

RELEASE_FILE = "/proc/sys/kernel/osrelease"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
PER_KERNEL = (
    "vmlinuz-{}",
    "initrd.img-{}",
    "initramfs-{}.img",
    "System.map-{}",
    "config-{}",
    "symvers-{}.gz",
    "initrd.img-{}.new",
)
GROWTH = 1.15  # factor for a newer kernel and its initrd, which are rarely smaller
KEPT_FREE_BYTES = 20 * 1024 * 1024
_MIB = 1024 * 1024
# Folders of out-of-tree modules: dkms, kmod packages, and Ubuntu's packages of prebuilt nvidia
# modules.
_FROM_OUTSIDE = re.compile(
    r"^(?:/lib/modules/[^/]+/)?(?:updates/|extra/|weak-updates/|kernel/nvidia-|misc/|dkms/)"
)
# Debian adds the branch to the file name: nvidia-current-uvm.ko is loaded as nvidia_uvm.
_NVIDIA_FILE = re.compile(r"^nvidia_(?:current|legacy_\w+?|tesla(?:_\d+)?)(?:_open)?(?=_|$)")


def running_release(rootfs: str) -> str:
    """The release of the kernel that runs. Raises OSError."""
    return str(Root([rootfs]).line(RELEASE_FILE))


def boot_id(rootfs: str) -> str:
    """The id of this boot; each boot has a new one. Raises OSError."""
    return str(Root([rootfs]).line(BOOT_ID_FILE))


def installed_releases(rootfs: str) -> list[str]:
    """Releases with an image in /boot or, where loader entries name it there, below
    /lib/modules."""
    root = Root([rootfs])
    found = {
        name[len("vmlinuz-") :]
        for name in names_if_there(root, "/boot")
        if name.startswith("vmlinuz-") and "rescue" not in name
    }
    return sorted(
        found
        | {
            name
            for name in names_if_there(root, MODULES)
            if there(root, f"{MODULES}/{name}/vmlinuz")
        }
    )


def kernel_faults(rootfs: str, release: str, old: str) -> list[str]:
    """Reasons why `release` would not boot, [] if there are none. old: the running release, whose
    files show what a kernel needs on this node."""
    root, faults = Root([rootfs]), []
    if release not in installed_releases(rootfs):
        return [f"the image of {release} is not on the disk"]
    for form in ("initrd.img-{}", "initramfs-{}.img"):
        path = "/boot/" + form.format(release)
        if there(root, "/boot/" + form.format(old)) and not (
            there(root, path) and root.stat(path).st_size > 0
        ):
            faults.append(
                f"{path} is missing or empty; `update-initramfs -c -k {release}` or `dracut` makes"
                " it"
            )
    if not has_modules(rootfs, release):
        faults.append(f"{MODULES}/{release}/modules.dep is missing; `depmod {release}` makes it")
    return faults


def has_modules(rootfs: str, release: str) -> bool:
    """True if the kernel has a modules.dep, the list of its modules."""
    return bool(there(Root([rootfs]), f"{MODULES}/{release}/modules.dep"))


def missing_modules(rootfs: str, release: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """[(name, reason)] of out-of-tree modules that `release` lacks. names: as in /proc/modules.
    Raises OSError."""
    root = Root([rootfs])
    listing = root.data(f"{MODULES}/{release}/modules.dep", DEP_LIMIT_BYTES).decode(
        "utf-8", "replace"
    )
    outside: set[str] = set()
    inside: set[str] = set()
    for line in listing.splitlines():
        path = line.partition(":")[0]
        (outside if _FROM_OUTSIDE.match(path) else inside).add(module_of_file(path))
    missing = [name for name in sorted(set(names)) if name.replace("-", "_") not in outside]
    builds = read_builds(root) if missing else []
    return [(name, _why_missing(release, name, inside, builds)) for name in missing]


def module_of_file(path: str) -> str:
    """The name under which a module's file is loaded."""
    name = path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")
    return _NVIDIA_FILE.sub("nvidia", name)


def _why_missing(release: str, name: str, inside: set[str], builds: list[Build]) -> str:
    if name.replace("-", "_") in inside:
        return (
            f"only the kernel's own {name} is there for {release}, and the one that is loaded now"
            " comes from outside"
        )
    failed = [build for build in builds if build.kernel == release and build.state == "failed"]
    # The modules of a failed build are not listed anywhere, so the failed build with a similar name
    # is reported, else all failed builds.
    fitting = [build for build in failed if _stem(build.module) == _stem(name)] or failed
    for build in fitting:
        return (
            f"no {name} was built for {release}:"
            f" {why_not_built(builds, build.module, release, build.version)}"
        )
    return (
        f"no {name} was built for {release}; install its package for that kernel, or with DKMS that"
        " kernel's headers"
    )


def _stem(name: str) -> str:
    return re.split(r"[-_]", name)[0]


def boot_space(rootfs: str, release: str) -> dict[str, int]:
    """{free_mib, need_mib} of /boot for another kernel of the size of `release`. Raises OSError,
    ValueError."""
    root = Root([rootfs])
    sizes = [
        root.stat("/boot/" + form.format(release)).st_size
        for form in PER_KERNEL
        if there(root, "/boot/" + form.format(release))
    ]
    _size, free = root.space("/boot")
    return {
        "free_mib": free // _MIB,
        "need_mib": (int(sum(sizes) * GROWTH) + KEPT_FREE_BYTES) // _MIB + 1,
    }
