"""Kernel parameters that tuned sets after sysctl.d: what unhang writes there does not last then."""

from __future__ import annotations

from ...base.root import Root
from ...facts.sections.reading import there

MAIN = "/etc/tuned/tuned-main.conf"
ACTIVE = ("/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile")
PROFILES = ("/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles")
UNIT = "/etc/systemd/system/multi-user.target.wants/tuned.service"
OFF = ("0", "false", "no", "off")
DEPTH = 8  # of profiles that include each other


def read_overriding(rootfs: str, name: str) -> list[tuple[str, str, str]]:
    """[(path of a profile, its value, why it wins)] of the active profiles that set this kernel
    parameter; [] where sysctl.d wins. Raises OSError.

    After its own settings tuned applies /run/sysctl.d, /etc/sysctl.d and /etc/sysctl.conf again,
    unless reapply_sysctl is off (tuned-main.conf(5)).
    """
    root = Root([rootfs])
    if (
        not there(root, UNIT)
        or dict(_settings(root, MAIN, "")).get("reapply_sysctl", "1").lower() not in OFF
    ):
        return []
    words = [word for path in ACTIVE if there(root, path) for word in root.text(path, 4096).split()]
    rows = [(path, value) for word in words for path, value in _of_profile(root, word, name, DEPTH)]
    why = (
        f"tuned sets it after sysctl.d, because {MAIN} has reapply_sysctl off; change it in a"
        " profile of your own"
    )
    return [
        (path, value, f"{name} = {value} of the profile wins at each boot: {why}")
        for path, value in rows[-1:]
    ]


def _of_profile(root: Root, profile: str, name: str, depth: int) -> list[tuple[str, str]]:
    """[(path, value)] of a profile and of those that it includes, in the order in which they
    count."""
    path = next(
        (
            place
            for place in (f"{folder}/{profile}/tuned.conf" for folder in PROFILES)
            if there(root, place)
        ),
        None,
    )
    if path is None or not depth:
        return []
    included = dict(_settings(root, path, "main")).get("include", "").replace(",", " ").split()
    below = [row for word in included for row in _of_profile(root, word, name, depth - 1)]
    return below + [
        (path, value)
        for key, value in _settings(root, path, "sysctl")
        if key.replace("/", ".") == name
    ]


def _settings(root: Root, path: str, section: str) -> list[tuple[str, str]]:
    """[(key, value)] of a section of a file of tuned's, "" for what comes before the first."""
    rows, inside = [], ""
    for line in (root.text(path, 1 << 18) if there(root, path) else "").split("\n"):
        text = line.strip()
        if text.startswith("[") and text.endswith("]"):
            inside = text[1:-1]
        elif inside == section and "=" in text and not text.startswith(("#", ";")):
            key, _equals, value = text.partition("=")
            rows.append((key.strip(), value.partition("#")[0].strip().strip('"')))
    return rows
