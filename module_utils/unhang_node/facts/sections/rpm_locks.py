"""Packages that dnf, yum or zypper are configured not to change."""

from __future__ import annotations

from ...base.parse.rpm_locks import (
    parse_exclude_lines,
    parse_versionlock,
    parse_versionlock_toml,
    parse_zypp_locks,
)
from ...base.untrusted_files import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

FILES = (
    ("/etc/dnf/plugins/versionlock.list", parse_versionlock),
    ("/etc/yum/pluginconf.d/versionlock.list", parse_versionlock),
    ("/etc/dnf/versionlock.toml", parse_versionlock_toml),
    ("/etc/zypp/locks", parse_zypp_locks),
    ("/etc/dnf/dnf.conf", parse_exclude_lines),
    ("/etc/yum.conf", parse_exclude_lines),
)


def read_rpm_locks(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{package, pin, priority: None, file, line}] of all lock files that are there."""
    rows: list[dict[str, Any]] = []
    for path, parse in FILES:
        try:
            text = read_text(root, path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as problem:
            unread.of_error("holds", problem)
            continue
        for line, package, pin in parse(text):
            row = {"package": package, "pin": pin, "priority": None, "file": path, "line": line}
            if not any(
                row["package"] == other["package"] and row["pin"] == other["pin"] for other in rows
            ):
                rows.append(row)
    return rows
