"""apt pins for all packages of a source, in a file of their own, so that packages that must have the same version stay together, also in a downgrade."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from ...atomic_files import place_of, read_text_or_none
from ...config.setting_files import OWN
from .holds import PRIORITY


def pin_stanzas_text(stanzas: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """A preferences file, None without stanzas. stanzas: [{package: name, pattern or src:NAME, version: exact or a pattern}]. Raises ValueError.

    Priority 1001: above 1000 apt also downgrades to it (apt_preferences(5)).
    """
    parts = []
    for stanza in stanzas:
        package, version = str(stanza.get("package") or ""), str(stanza.get("version") or "")
        if not package.strip() or not version.strip() or "\n" in package + version:
            raise ValueError(f"expected a pin with package and version, each of one line, found {stanza!r}")
        parts.append(f"Package: {package}\nPin: version {version}\nPin-Priority: {PRIORITY}\n")
    return OWN + "\n\n" + "\n".join(parts) if parts else None


def plan_pin(rootfs: str, path: str, stanzas: Sequence[Mapping[str, Any]]) -> Tuple[Optional[str], Optional[str]]:
    """(before, after) of the file's text; None means no file. Raises OSError, and ValueError if somebody else wrote it."""
    if not path.startswith("/etc/apt/preferences.d/") or "." in path.rsplit("/", 1)[1]:
        raise ValueError(f"expected a file of /etc/apt/preferences.d without a dot in its name, which apt would pass over, found {path}")
    before: Optional[str] = read_text_or_none(place_of(rootfs, path))
    if before is not None and OWN[2:] not in before:
        raise ValueError(f"{path}: expected a file of unhang's own, found one that somebody else wrote; move it away after a look")
    return before, pin_stanzas_text(stanzas)
