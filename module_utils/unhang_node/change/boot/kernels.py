"""What a kernel has to have on the disk before it may boot: image, initrd, the modules that the node needs, room in /boot."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...root import Root
from ...sections.installed_kernels import DEP_LIMIT_BYTES, MODULES
from ...sections.reading import names_if_there, there
from .dkms_builds import Build, read_builds, why_not_built

RELEASE_FILE = "/proc/sys/kernel/osrelease"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
PER_KERNEL = ("vmlinuz-{}", "initrd.img-{}", "initramfs-{}.img", "System.map-{}", "config-{}", "symvers-{}.gz", "initrd.img-{}.new")
GROWTH = 1.15  # a newer kernel and its initrd are rarely smaller
KEPT_FREE_BYTES = 20 * 1024 * 1024
_MIB = 1024 * 1024
# Where a module lies that is no part of the kernel: dkms, kmod packages, and Ubuntu's packages of prebuilt nvidia modules.
_FROM_OUTSIDE = re.compile(r"^(?:/lib/modules/[^/]+/)?(?:updates/|extra/|weak-updates/|kernel/nvidia-|misc/|dkms/)")
# Debian's files carry the branch: nvidia-current-uvm.ko is loaded as nvidia_uvm.
_NVIDIA_FILE = re.compile(r"^nvidia_(?:current|legacy_\w+?|tesla(?:_\d+)?)(?:_open)?(?=_|$)")


def running_release(rootfs: str) -> str:
    """The release of the kernel that runs. Raises OSError."""
    return str(Root([rootfs]).line(RELEASE_FILE))


def boot_id(rootfs: str) -> str:
    """Changes with each boot. Raises OSError."""
    return str(Root([rootfs]).line(BOOT_ID_FILE))


def installed_releases(rootfs: str) -> list[str]:
    """Releases with an image in /boot or, where loader entries name it there, below /lib/modules."""
    root = Root([rootfs])
    found = {name[len("vmlinuz-") :] for name in names_if_there(root, "/boot") if name.startswith("vmlinuz-") and "rescue" not in name}
    return sorted(found | {name for name in names_if_there(root, MODULES) if there(root, f"{MODULES}/{name}/vmlinuz")})


def kernel_faults(rootfs: str, release: str, old: str) -> list[str]:
    """Why `release` would not come up, [] when nothing speaks against it. old: the running release, whose files say what this node's kernels need."""
    root, faults = Root([rootfs]), []
    if release not in installed_releases(rootfs):
        return [f"expected the image of {release} on the disk, found none"]
    for form in ("initrd.img-{}", "initramfs-{}.img"):
        path = "/boot/" + form.format(release)
        if there(root, "/boot/" + form.format(old)) and not (there(root, path) and root.stat(path).st_size > 0):
            faults.append(f"expected {path}, found none or an empty one; `update-initramfs -c -k {release}` or `dracut` makes it")
    if not has_modules(rootfs, release):
        faults.append(f"expected {MODULES}/{release}/modules.dep, found none; `depmod {release}` makes it")
    return faults


def has_modules(rootfs: str, release: str) -> bool:
    """True where it is written down which modules a kernel has."""
    return bool(there(Root([rootfs]), f"{MODULES}/{release}/modules.dep"))


def missing_modules(rootfs: str, release: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """[(name, why)] of modules from outside the kernel that are not there for `release`. names: as /proc/modules has them. Raises OSError."""
    root = Root([rootfs])
    listing = root.data(f"{MODULES}/{release}/modules.dep", DEP_LIMIT_BYTES).decode("utf-8", "replace")
    outside: set[str] = set()
    inside: set[str] = set()
    for line in listing.splitlines():
        path = line.partition(":")[0]
        (outside if _FROM_OUTSIDE.match(path) else inside).add(module_of_file(path))
    missing = [name for name in sorted(set(names)) if name.replace("-", "_") not in outside]
    builds = read_builds(root) if missing else []
    return [(name, _why_missing(root, release, name, inside, builds)) for name in missing]


def module_of_file(path: str) -> str:
    """The name under which a module's file is loaded."""
    name = path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")
    return _NVIDIA_FILE.sub("nvidia", name)


def _why_missing(root: Root, release: str, name: str, inside: set[str], builds: list[Build]) -> str:
    if name.replace("-", "_") in inside:
        return f"only the kernel's own {name} is there for {release}, and the one that is loaded now comes from outside"
    failed = [build for build in builds if build.kernel == release and build.state == "failed"]
    # What a source builds is not written down where its build failed, so the one whose name fits is reported, else all.
    fitting = [build for build in failed if _stem(build.module) == _stem(name)] or failed
    for build in fitting:
        return f"no {name} was built for {release}: {why_not_built(builds, build.module, release, build.version)}"
    return f"no {name} was built for {release}; install its package for that kernel, or with DKMS that kernel's headers"


def _stem(name: str) -> str:
    return re.split(r"[-_]", name)[0]


def boot_space(rootfs: str, release: str) -> dict[str, int]:
    """{free_mib, need_mib} of /boot for one more kernel as large as `release`. Raises OSError, ValueError."""
    root = Root([rootfs])
    sizes = [root.stat("/boot/" + form.format(release)).st_size for form in PER_KERNEL if there(root, "/boot/" + form.format(release))]
    _size, free = root.space("/boot")
    return {"free_mib": free // _MIB, "need_mib": (int(sum(sizes) * GROWTH) + KEPT_FREE_BYTES) // _MIB + 1}
