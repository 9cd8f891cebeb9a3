"""dnf's module streams: which a node has enabled, which its repositories have, and how another is chosen; a look does that in a copy of dnf's state.

dnf hides the packages of every stream but the enabled one. What is enabled lies in /etc/dnf/modules.d, which has no option to be elsewhere: so for a look
copies are mounted over it and over dnf's own state, in a mount namespace that ends with dnf (unshare(1)).
"""

from __future__ import annotations

import os
import re
import shutil

from ...files import names_or_none
from ...root import Root
from ..files import place_of
from .apt import Refused, run
from .dnf_output import parse_streams

MODULES = "/etc/dnf/modules.d"
DNF_STATE = "/var/lib/dnf"
ALL_STREAMS = "--setopt=*.module_hotfixes=1"  # what is hidden is seen
VIEW = 'mount --bind "$0/modules.d" ' + MODULES + ' && mount --bind "$0/dnf" ' + DNF_STATE + ' && exec "$@"'
_FIELD = re.compile(r"^(name|stream|state)\s*=\s*(\S*)\s*$", re.M)


def file_of(module):
    """Where dnf keeps what is enabled of a module."""
    return "{}/{}.module".format(MODULES, module)


def enabled_streams(rootfs):
    """{module: stream} of what is enabled. Raises OSError."""
    root, found = Root([rootfs]), {}
    for name in sorted(names_or_none(root, MODULES) or []):
        if name.endswith(".module"):
            fields = dict(_FIELD.findall(root.text(MODULES + "/" + name)))
            if fields.get("state") == "enabled" and fields.get("stream"):
                found[fields.get("name") or name[: -len(".module")]] = fields["stream"]
    return found


def switches(rootfs, wanted):
    """{module: (stream before or None, stream after)} of the streams that are not enabled yet. wanted: {module: stream}."""
    enabled = enabled_streams(rootfs) if wanted else {}
    return {module: (enabled.get(module), stream) for module, stream in sorted(wanted.items()) if enabled.get(module) != stream}


def offered_streams(rootfs, names, options, timeout_s):
    """{module: {streams, default, enabled}} of the modules that repositories have; one that none has is left out. options: of dnf."""
    if not names:
        return {}
    _code, said = run(rootfs, ["dnf", "-q"] + options + ["module", "list", "--all"] + sorted(names), timeout_s)
    enabled = enabled_streams(rootfs)
    found = {}
    for name, stream, is_default in parse_streams(said):
        row = found.setdefault(name, {"streams": [], "default": None, "enabled": enabled.get(name)})
        if stream not in row["streams"]:
            row["streams"].append(stream)
        row["default"] = stream if is_default else row["default"]
    return {name: row for name, row in found.items() if name in names}


def enabling(streams, options):
    """argvs that enable streams, {module: (before, after)}; dnf refuses to go from one to another, so that the old one is let go first."""
    argvs = []
    for module, (before, after) in sorted(streams.items()):
        if before is not None:
            argvs.append(["dnf", "-q", "-y"] + options + ["module", "reset", module])
        argvs.append(["dnf", "-q", "-y"] + options + ["module", "enable", "{}:{}".format(module, after)])
    return argvs


def viewed(folder, argv):
    """argv as it is run over the copies in `folder`."""
    return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", VIEW, folder] + argv


def open_view(rootfs, folder, streams, options, timeout_s):
    """A function that wraps an argv of dnf, so that it sees the streams as they will be and writes nothing of the node's. Raises Refused, OSError."""
    if not streams:
        return list
    for source, target in ((MODULES, "modules.d"), (DNF_STATE, "dnf")):
        place = place_of(rootfs, source)
        if not os.path.isdir(place):
            raise Refused("expected {}, where dnf keeps its module streams, found none; run dnf once, or make it".format(source))
        copy = place_of(rootfs, "{}/{}".format(folder, target))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
    for argv in enabling(streams, options):
        code, said = run(rootfs, viewed(folder, argv), timeout_s)
        if code:
            lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
            raise Refused("{}: {}".format(" ".join(argv[-3:]), " | ".join(lines[-4:])[:400]))
    return lambda argv: viewed(folder, argv)
