"""Which packages must not move, and what that takes: holds and pins of apt, locks of dnf. Values in, values out.

apt needs three things, each of which fails alone: a hold is passed over by an explicit install, a pin does not stop a removal, and unattended-upgrades
reads its blacklist before either. dnf has its version lock.
"""

from __future__ import annotations

import re
from collections import namedtuple

from ...parse.rpm_locks import parse_versionlock, parse_versionlock_toml
from ...sections.package_database import KERNEL, NCCL, driver_packages
from ..config.setting_files import OWN

PIN_FILE = "/etc/apt/preferences.d/unhang-package-hold"
BLACKLIST_FILE = "/etc/apt/apt.conf.d/52unhang-package-hold"
DNF4_LOCKS = "/etc/dnf/plugins/versionlock.list"
DNF5_LOCKS = "/etc/dnf/versionlock.toml"
TOML_HEAD = 'version = "1.0"\n'
PRIORITY = 1001  # above 1000: apt goes back to it, even downwards (apt_preferences(5))
OFED = ("mlnx-", "ofed-", "doca-ofed", "doca-kernel", "kmod-mlnx", "mlnx-ofa_kernel", "rdma-core", "libibverbs", "ibverbs-", "librdmacm")
WHAT = ("driver", "kernel", "nccl", "ofed")
# New packages that would take the place of held ones: a new kernel comes under a new name.
PATTERNS = {
    "driver": ("nvidia-driver", "nvidia-kernel", "nvidia-dkms", "nvidia-open", "nvidia-fabricmanager", "linux-modules-nvidia-", "cuda-drivers"),
    "kernel": ("linux-image-", "linux-headers-", "linux-modules-"),
    "nccl": ("libnccl",),
    "ofed": ("mlnx-", "ofed-", "doca-ofed"),
}
_DRIVER_VERSION = re.compile(r"^(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)(?:[-+~]|$)")

# hold, unhold: names as dpkg takes them; texts: {path: (before, after)}; state: what is to be saved; left: what a person has to look at.
Plan = namedtuple("Plan", "hold unhold texts state left")


class NotPossible(ValueError):
    """Why nothing may be held: expected, found, what next, in one line."""


def chosen_packages(database, what):
    """Installed packages of the groups, sorted and once each. what: names of WHAT."""
    found = {}
    for group in what:
        rows = driver_packages(database) if group == "driver" else database.named({"kernel": KERNEL, "nccl": NCCL, "ofed": OFED}[group])
        for package in rows:
            if not package.name.startswith("dkms"):  # a build tool, no kernel
                found[(package.name, package.architecture, package.version)] = package
    return [found[key] for key in sorted(found)]


def check_driver(database, version):
    """Raises NotPossible when the installed driver is not `version`: to hold it would keep the wrong one."""
    found = set()
    for package in driver_packages(database):
        matched = _DRIVER_VERSION.match(package.version)
        if matched:
            found.add(matched.group(1))
    if version not in found:
        told = ", ".join(sorted(found)) or "no driver package"
        raise NotPossible("expected driver {}, found {} installed; bring the node to the policy's driver before it is held".format(version, told))


def dpkg_name(package):
    """As dpkg takes it: the architecture stands with it where there can be several."""
    return package.name if package.architecture in ("all", "") else "{}:{}".format(package.name, package.architecture)


def pin_text(packages):
    """apt preferences that keep each package at its version, None without packages."""
    stanzas = ["Package: {}\nPin: version {}\nPin-Priority: {}\n".format(name, version, PRIORITY) for name, version in _versions(packages)]
    return OWN + "\n\n" + "\n".join(stanzas) if stanzas else None


def _versions(packages):
    return sorted({(package.name, package.version) for package in packages})


def blacklist_text(packages, what):
    """apt configuration that keeps unattended-upgrades off, None without packages. Each entry is a regular expression that matches at a name's beginning."""
    if not packages:
        return None
    exact = sorted({re.escape(package.name).replace("\\-", "-") + "$" for package in packages})
    entries = exact + [pattern for group in WHAT if group in what for pattern in PATTERNS[group]]
    lines = ['  "{}";'.format(entry) for entry in entries]
    return "\n".join(["// " + OWN[2:], "Unattended-Upgrade::Package-Blacklist {"] + lines + ["};"]) + "\n"


def plan_apt(database, what, state, texts):
    """Plan for dpkg and apt. state: what was saved before; texts: {PIN_FILE, BLACKLIST_FILE: text or None} as they are."""
    packages = chosen_packages(database, what)
    wanted = {dpkg_name(package) for package in packages}
    held = {dpkg_name(package) for package in database.packages if package.held}
    ours = set(state.get("holds", ()))
    hold, unhold = sorted(wanted - held), sorted((ours - wanted) & held)
    after = {PIN_FILE: pin_text(packages), BLACKLIST_FILE: blacklist_text(packages, what)}
    changes, left = {}, []
    for path in sorted(after):
        if texts[path] is not None and OWN[2:] not in texts[path]:
            left.append("{}: expected a file of unhang's own, found one that somebody else wrote; it was left as it is".format(path))
        elif texts[path] != after[path]:
            changes[path] = (texts[path], after[path])
    kept = sorted((ours & wanted) | set(hold))
    return Plan(hold, unhold, changes, {"holds": kept} if wanted else {}, left)


def plan_dnf(database, what, state, path, text):
    """Plan for dnf. path: DNF4_LOCKS or DNF5_LOCKS; text: as it is, or None. Entries of others stay; only what was added is ever taken away."""
    packages = chosen_packages(database, what)
    entry = _list_entry if path == DNF4_LOCKS else _toml_entry
    known = parse_versionlock(text or "") if path == DNF4_LOCKS else parse_versionlock_toml(text or "")
    theirs = {(name, pin) for _line, name, pin in known}
    after = text or ""
    for old in state.get("locks", ()):
        after = after.replace(old, "", 1)
    added = [entry(package) for package in packages if entry(package) in state.get("locks", ()) or _pin(package, path) not in theirs]
    if added and path == DNF5_LOCKS and "version" not in after.split("[[", 1)[0]:
        after = TOML_HEAD + after
    if added and after and not after.endswith("\n"):
        after += "\n"
    after += "".join(added)
    if state.get("made") and path == DNF5_LOCKS and after.strip() in ("", TOML_HEAD.strip()):
        after = None  # the file was made for our entries; dnf 4 ends with an error where its list is missing, so that one stays
    changes = {} if after == text or (text is None and not after) else {path: (text, after)}
    return Plan([], [], changes, _lock_state(added, text, state), [])


def _lock_state(added, text, state):
    return {"locks": added, "made": state.get("made", text is None)} if added else {}


def _evr(package):
    """(epoch, version-release) of a package as the rpm reader gives it."""
    epoch, colon, rest = package.version.partition(":")
    return (epoch, rest) if colon else ("0", package.version)


def _list_entry(package):
    return "{}-{}:{}.*\n".format(package.name, *_evr(package))


def _toml_entry(package):
    head = '[[packages]]\nname = "{}"\n[[packages.conditions]]\n'.format(package.name)
    return head + 'key = "evr"\ncomparator = "="\nvalue = "{}:{}"\n'.format(*_evr(package))


def _pin(package, path):
    """What the reader of lock files gives for our own entry."""
    if path == DNF4_LOCKS:
        return package.name, "version " + _evr(package)[1]
    return package.name, "evr = {}:{}".format(*_evr(package))

