"""dnf's module streams: reads the enabled and available ones, and switches to another; a simulation
switches in a copy of dnf's state.

dnf hides the packages of every stream but the enabled one. The enabled streams are in
/etc/dnf/modules.d, and no option of dnf changes that path: so for a simulation, copies are mounted
over it and over dnf's own state, in a mount namespace that ends with dnf (unshare(1)).
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ....base.root import Root
from ....base.untrusted_files import names_or_none
from ...atomic_files import place_of
from ..programs import run
from ..values import Refused
from .output import parse_streams

Streams = Mapping[str, Tuple[Optional[str], str]]
"""{module: (stream before or None, stream after)}."""
Wrap = Callable[[Sequence[str]], List[str]]
MODULES = "/etc/dnf/modules.d"
DNF_STATE = "/var/lib/dnf"
ALL_STREAMS = "--setopt=*.module_hotfixes=1"  # shows packages of hidden streams too
VIEW = (
    'mount --bind "$0/modules.d" '
    + MODULES
    + ' && mount --bind "$0/dnf" '
    + DNF_STATE
    + ' && exec "$@"'
)
_FIELD = re.compile(r"^(name|stream|state)\s*=\s*(\S*)\s*$", re.M)


def file_of(module: str) -> str:
    """Path of the file in which dnf keeps the enabled stream of a module."""
    return f"{MODULES}/{module}.module"


def enabled_streams(rootfs: str) -> Dict[str, str]:
    """{module: enabled stream}. Raises OSError."""
    root, found = Root([rootfs]), {}
    for name in sorted(names_or_none(root, MODULES) or []):
        if name.endswith(".module"):
            fields = dict(_FIELD.findall(root.text(MODULES + "/" + name)))
            if fields.get("state") == "enabled" and fields.get("stream"):
                found[fields.get("name") or name[: -len(".module")]] = fields["stream"]
    return found


def switches(rootfs: str, wanted: Mapping[str, str]) -> Dict[str, Tuple[Optional[str], str]]:
    """Streams of the streams that are not enabled yet. wanted: {module: stream}."""
    enabled = enabled_streams(rootfs) if wanted else {}
    return {
        module: (enabled.get(module), stream)
        for module, stream in sorted(wanted.items())
        if enabled.get(module) != stream
    }


def offered_streams(
    rootfs: str, names: Sequence[str], options: Sequence[str], timeout_s: float
) -> Dict[str, Dict[str, Any]]:
    """{module: {streams, default, enabled}} of those modules that repositories offer. options: of
    dnf."""
    if not names:
        return {}
    _code, output = run(
        rootfs, ["dnf", "-q", *options, "module", "list", "--all", *sorted(names)], timeout_s
    )
    enabled = enabled_streams(rootfs)
    found: Dict[str, Dict[str, Any]] = {}
    for name, stream, is_default in parse_streams(output):
        row = found.setdefault(name, {"streams": [], "default": None, "enabled": enabled.get(name)})
        if stream not in row["streams"]:
            row["streams"].append(stream)
        row["default"] = stream if is_default else row["default"]
    return {name: row for name, row in found.items() if name in names}


def enabling(streams: Streams, options: Sequence[str]) -> List[List[str]]:
    """argvs that enable streams; dnf refuses to switch from one stream to another, so the old one
    is reset first."""
    argvs = []
    for module, (before, after) in sorted(streams.items()):
        if before is not None:
            argvs.append(["dnf", "-q", "-y", *options, "module", "reset", module])
        argvs.append(["dnf", "-q", "-y", *options, "module", "enable", f"{module}:{after}"])
    return argvs


def viewed(folder: str, argv: Sequence[str]) -> List[str]:
    """argv that runs `argv` with the copies in `folder` mounted."""
    return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", VIEW, folder, *argv]


def open_view(
    rootfs: str, folder: str, streams: Streams, options: Sequence[str], timeout_s: float
) -> Wrap:
    """A function that wraps an argv of dnf, so that dnf has the new streams enabled and writes
    nothing on the node. Raises Refused, OSError."""
    if not streams:
        return list
    for source, target in ((MODULES, "modules.d"), (DNF_STATE, "dnf")):
        place = place_of(rootfs, source)
        if not os.path.isdir(place):
            raise Refused(
                f"{source}, where dnf keeps its module streams, is missing; run dnf once, or make"
                " it"
            )
        copy = place_of(rootfs, f"{folder}/{target}")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
    for argv in enabling(streams, options):
        code, output = run(rootfs, viewed(folder, argv), timeout_s)
        if code:
            lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
            raise Refused(f"{' '.join(argv[-3:])}: {' | '.join(lines[-4:])[:400]}")
    return lambda argv: viewed(folder, argv)
