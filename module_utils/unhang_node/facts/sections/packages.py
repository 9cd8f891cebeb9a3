"""Section packages: installed packages, holds and pins, and the packages that an unattended upgrade
would change."""

from __future__ import annotations

import re

from ...base.untrusted_files import names_or_none, read_text
from ..parse.apt import (
    is_conf_name,
    parse_apt_conf,
    parse_preferences,
    setting_values,
    setting_word,
)
from .package_database import driver_packages, listed_packages
from .pending_upgrades import read_pending
from .rpm_locks import read_rpm_locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ...base.parse.dpkg import Database
    from ...base.root import Root
    from ...base.section import Unread
    from ..parse.apt import AptSettings

APT = "/etc/apt"
TIMER = "/etc/systemd/system/apt-daily-upgrade.timer"
MAX_ROWS = 512


def read_packages(
    root: Root, unread: Unread, manager: str | None, database: Database | None
) -> dict[str, Any]:
    """Section packages. manager, database: of package_database.read_database."""
    section: dict[str, Any] = {
        "manager": manager,
        "installed": None,
        "holds": None,
        "pins": None,
        "half_configured": None,
        "unattended_upgrades": None,
        "pending": None,
    }
    if database is None:
        return section
    section["installed"] = [package.row() for package in listed_packages(database)][:MAX_ROWS]
    section["half_configured"] = list(database.unfinished)
    if manager == "rpm":
        section["holds"] = list(database.holds)[:MAX_ROWS]
        section["pins"] = read_rpm_locks(root, unread)[:MAX_ROWS]
        for field in ("unattended_upgrades", "pending"):
            unread.add(field, "absent", "known for dpkg and apt alone")
        return section
    section["holds"] = list(database.holds)
    section["pins"] = read_pins(root, unread)[:MAX_ROWS]
    section["unattended_upgrades"] = read_unattended(root, unread, database)
    section["pending"] = read_pending(root, unread, database, section["pins"])
    return section


def read_pins(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """The pins of /etc/apt/preferences and preferences.d, in apt's order."""
    rows = []
    for path in _conf_files(
        root,
        unread,
        "pins",
        APT + "/preferences.d",
        ("", ".pref"),
        APT + "/preferences",
        main_first=True,
    ):
        text = unread.attempt("pins", read_text, root, path)
        for row in parse_preferences(text or ""):
            rows.append(dict(row, file=path))
    return rows


def _conf_files(
    root: Root,
    unread: Unread,
    field: str,
    folder: str,
    endings: tuple[str, ...],
    main: str,
    main_first: bool = False,
) -> list[str]:
    """Paths of the existing files of one apt configuration."""
    try:
        names = [name for name in names_or_none(root, folder) if is_conf_name(name, endings)]
        mains = [main] if root.exists(main) else []
    except OSError as problem:
        unread.of_error(field, problem)
        return []
    parts = [folder + "/" + name for name in names][:MAX_ROWS]
    return mains + parts if main_first else parts + mains


def read_unattended(root: Root, unread: Unread, database: Database) -> dict[str, Any]:
    """The configuration of unattended-upgrades, and the packages that it would upgrade."""
    settings: AptSettings = {}
    for path in _conf_files(
        root, unread, "unattended_upgrades", APT + "/apt.conf.d", ("", ".conf"), APT + "/apt.conf"
    ):
        text = unread.attempt("unattended_upgrades", read_text, root, path)
        parse_apt_conf(text or "", settings)
    installed = database.version("unattended-upgrades") is not None
    every = setting_word(settings, "APT::Periodic::Unattended-Upgrade", "0")
    periodic = setting_word(settings, "APT::Periodic::Enable", "1")
    blacklist = setting_values(settings, "Unattended-Upgrade::Package-Blacklist")
    origins = setting_values(settings, "Unattended-Upgrade::Allowed-Origins") + setting_values(
        settings, "Unattended-Upgrade::Origins-Pattern"
    )
    return {
        "installed": installed,
        "enabled": installed
        and every not in ("", "0")
        and periodic != "0"
        and not is_masked(root, TIMER),
        "blacklist": blacklist,
        "origins": origins,
        "automatic_reboot": setting_word(
            settings, "Unattended-Upgrade::Automatic-Reboot", "false"
        ).lower()
        in ("1", "true", "yes", "on"),
        "covers_driver": any(
            not package.held and not is_blacklisted(package.name, blacklist)
            for package in driver_packages(database)
        ),
    }


def is_blacklisted(name: str, blacklist: Iterable[str]) -> bool:
    """As unattended-upgrades matches: each entry is a regular expression that must match at the
    beginning of the name."""
    for pattern in blacklist:
        try:
            if re.match(pattern, name):
                return True
        except re.error:
            continue
    return False


def is_masked(root: Root, unit: str) -> bool:
    """True when a unit file is a link to /dev/null."""
    try:
        return root.link(unit) == "/dev/null"
    except OSError:
        return False
