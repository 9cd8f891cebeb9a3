"""The modules that DKMS has built for each kernel, and for a failed build the line of its log that
gives the reason. Only reads files.

Layout (dkms(8), seen with 3.0 and 3.2): /var/lib/dkms/MODULE/VERSION/KERNEL/ARCH/module/*.ko are
the builds, VERSION/build/make.log is the log of a failed build, and the kernel loads from
/lib/modules/KERNEL/updates/dkms (Red Hat: extra, weak-updates).
"""

from __future__ import annotations

import fnmatch
import re
import stat as stat_bits
from typing import NamedTuple

from ...base.root import Root
from ...base.untrusted_files import names_or_none

TREE = "/var/lib/dkms"
LOG_LIMIT_BYTES = 8 << 20
PLACES = ("updates/dkms", "updates", "extra", "weak-updates")
_HEAD = re.compile(r"^DKMS make\.log for (\S+) for kernel (\S+)(?: \((\S+)\))?", re.M)
# In the order of their value: compiler and linker name the cause, make only reports that there was
# an error.
_ERRORS = (
    re.compile(
        r":\d+: (?:fatal )?error: |: fatal error: |^ERROR: modpost: |^(?:FATAL|ERROR): |\bundefined"
        r" reference\b|^(?:cc1|ld|gcc)\S*: (?:fatal )?error"
    ),
    re.compile(
        r"^\*\*\* |^error: |^(?:Error|ERROR)[: !]|No such file or directory|Killed|No space left on"
        r" device"
    ),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* "),
)
KERNEL_OBJECT = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")


class MakeLog(NamedTuple):
    """The content of a build's make.log."""

    module: str | None  # from the first line, None if it names no kernel
    kernel: str | None
    architecture: str | None
    number: int  # number of the line with the first error, from 1
    line: str


class Build(NamedTuple):
    """A module in DKMS, built for one kernel or not at all."""

    module: str
    version: str
    kernel: str | None = None  # None where nothing was built yet
    architecture: str | None = None
    state: str = "added"  # added, built, installed, failed
    log: str | None = None  # make.log of the failed build
    number: int | None = None
    line: str | None = None


def read_builds(root: Root) -> list[Build]:
    """[Build] of all modules in DKMS, sorted; a module that is only added has one row without a
    kernel. Raises OSError for a file that cannot be read."""
    builds = []
    for module in _folders(root, TREE):
        for version in _folders(root, f"{TREE}/{module}"):
            builds.extend(_builds_of(root, module, version))
    return sorted(builds, key=lambda build: tuple(part or "" for part in build[:4]))


def _folders(root: Root, path: str) -> list[str]:
    # Beside the versions DKMS keeps kernel-RELEASE-ARCH, a link to the newest build for a kernel.
    return [
        name
        for name in names_or_none(root, path)
        if not name.startswith((".", "kernel-")) and _is_folder(root, f"{path}/{name}")
    ]


def _is_folder(root: Root, path: str) -> bool:
    try:
        return stat_bits.S_ISDIR(root.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _builds_of(root: Root, module: str, version: str) -> list[Build]:
    base = f"{TREE}/{module}/{version}"
    found = []
    for kernel in _folders(root, base):
        if kernel in ("build", "source"):
            continue
        for architecture in _folders(root, f"{base}/{kernel}"):
            objects = [
                name
                for name in names_or_none(root, f"{base}/{kernel}/{architecture}/module")
                if name.endswith(KERNEL_OBJECT)
            ]
            if objects:
                state = "installed" if _is_installed(root, kernel, objects) else "built"
                found.append(
                    Build(
                        module=module,
                        version=version,
                        kernel=kernel,
                        architecture=architecture,
                        state=state,
                    )
                )
    failed = _failed_build(root, module, version, base)
    if failed and not any(build.kernel == failed.kernel for build in found):
        found.append(failed)
    return found or [Build(module=module, version=version, state="added")]


def _is_installed(root: Root, kernel: str, objects: list[str]) -> bool:
    present = {
        name for place in PLACES for name in names_or_none(root, f"/lib/modules/{kernel}/{place}")
    }
    stems = {name.split(".ko")[0] for name in present}
    return all(name.split(".ko")[0] in stems for name in objects)


def _failed_build(root: Root, module: str, version: str, base: str) -> Build | None:
    path = base + "/build/make.log"
    try:
        failure = parse_make_log(root.text(path, LOG_LIMIT_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Build(
        module=module,
        version=version,
        kernel=failure.kernel,
        architecture=failure.architecture,
        state="failed",
        log=path,
        number=failure.number,
        line=failure.line,
    )


def builds_for(builds: list[Build], pattern: str, kernel: str) -> list[Build]:
    """Builds for one kernel of the modules that match a pattern (nvidia*)."""
    return [
        build
        for build in builds
        if fnmatch.fnmatchcase(build.module, pattern) and build.kernel == kernel
    ]


def why_not_built(
    builds: list[Build], pattern: str, kernel: str, version: str | None = None
) -> str:
    """ "" when DKMS has installed a module of that name (and version) for the kernel, else why not,
    in one line with the line of the log."""
    found = [
        build
        for build in builds_for(builds, pattern, kernel)
        if version is None or build.version == version
    ]
    if any(build.state == "installed" for build in found):
        return ""
    what = f"{pattern}{' ' + version if version else ''}"
    failed = next((build for build in found if build.state == "failed"), None)
    if failed:
        return (
            f"{failed.module} {failed.version} does not build for kernel {kernel}: {failed.line}"
            f" ({failed.log} line {failed.number})"
        )
    if found:
        return f"{what} is built for kernel {kernel} and not installed; run dkms install"
    known = sorted(
        {
            f"{build.module} {build.version}"
            for build in builds
            if fnmatch.fnmatchcase(build.module, pattern)
        }
    )
    others = f"{', '.join(known)} is known" if known else "DKMS knows no such module"
    return (
        f"DKMS has not built {what} for kernel {kernel} ({others}); are the kernel's headers"
        " installed?"
    )


def parse_make_log(text: str) -> MakeLog:
    """MakeLog of a log; number 0 and an empty line if the log is empty."""
    head = _HEAD.search(text)
    lines = text.splitlines()
    number, line = _first_error(lines)
    return MakeLog(
        module=head and head.group(1),
        kernel=head and head.group(2),
        architecture=head and head.group(3),
        number=number,
        line=line[:300],
    )


def _first_error(lines: list[str]) -> tuple[int, str]:
    for pattern in _ERRORS:
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                return number, " ".join(line.split())
    for number in range(len(lines), 0, -1):
        if lines[number - 1].strip():
            return number, " ".join(lines[number - 1].split())
    return 0, ""
