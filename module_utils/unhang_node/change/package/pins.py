"""Pins of whole sources for apt, in a file of their own: a set of packages that have to be of one version stays together, downwards too."""

from __future__ import annotations

from ..config.setting_files import OWN
from ..files import place_of, read_text_or_none, write_text
from .holds import PRIORITY


def pin_stanzas_text(stanzas):
    """A preferences file, None without stanzas. stanzas: [{package: name, glob or src:NAME, version: exact or a glob}]. Raises ValueError.

    Priority 1001: above 1000 apt goes back to it even downwards (apt_preferences(5)).
    """
    parts = []
    for stanza in stanzas:
        package, version = str(stanza.get("package") or ""), str(stanza.get("version") or "")
        if not package.strip() or not version.strip() or "\n" in package + version:
            raise ValueError("expected a pin with package and version, each of one line, found {!r}".format(stanza))
        parts.append("Package: {}\nPin: version {}\nPin-Priority: {}\n".format(package, version, PRIORITY))
    return OWN + "\n\n" + "\n".join(parts) if parts else None


def plan_pin(rootfs, path, stanzas):
    """(before, after) of the file's text; None is no file. Raises ValueError when somebody else wrote it, OSError."""
    if not path.startswith("/etc/apt/preferences.d/") or "." in path.rsplit("/", 1)[1]:
        raise ValueError("expected a file of /etc/apt/preferences.d without a dot in its name, which apt would pass over, found {}".format(path))
    before = read_text_or_none(place_of(rootfs, path))
    if before is not None and OWN[2:] not in before:
        raise ValueError("{}: expected a file of unhang's own, found one that somebody else wrote; move it away after a look".format(path))
    return before, pin_stanzas_text(stanzas)


def pin_set(rootfs, path, stanzas, check=False):
    """Writes the pins, or takes the file away without stanzas. Returns (before, after). Raises ValueError, OSError."""
    before, after = plan_pin(rootfs, path, stanzas)
    if before != after and not check:
        write_text(place_of(rootfs, path), after)
    return before, after
