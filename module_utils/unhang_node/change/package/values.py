"""Values that describe a change of packages, for both package managers."""

# ruff: noqa: RUF012 -- no code changes the defaults of a NamedTuple in place

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from ...base.parse.dpkg import Package

Row = Dict[str, Any]
"""A row of packages.json, or of a module's result."""
Offers = Dict[str, List[Dict[str, str]]]
"""{package: [{version, origin}]}, newest first."""


class Refused(ValueError):
    """The package manager refused; the text is the reason in one line."""


class Locked(ValueError):
    """Another process held the package manager's lock for the whole time that the caller
    allowed."""


class Step(NamedTuple):
    """The change of one package. name: with :architecture if it is a foreign one; action: install,
    upgrade, downgrade, reinstall, remove."""

    name: str
    action: str
    before: Optional[str]
    after: Optional[str]


def action_of(
    before: Optional[str], after: Optional[str], version_key: Callable[[str], Any]
) -> str:
    """The action that takes a package from one version to another; None is not installed.
    version_key: the order of the package manager's versions."""
    if after is None:
        return "remove"
    if before is None:
        return "install"
    if before == after:
        return "reinstall"
    return "upgrade" if version_key(before) < version_key(after) else "downgrade"


class Installed(NamedTuple):
    """Every package of a node. packages: by name in the package manager's notation; unfinished:
    names of packages that are not configured; interrupted: dpkg was killed and must be run first;
    config_files: names of removed packages whose configuration files remain; ours: names that
    unhang's package_pin holds; sources: {name: source package}."""

    packages: Dict[str, Package]
    unfinished: List[str]
    interrupted: bool
    config_files: Set[str]
    ours: Set[str]
    architecture: str
    sources: Dict[str, str] = {}

    def version(self, name: str) -> Optional[str]:
        """Version of an installed package, configured or not; None if it is not installed."""
        package = self.packages.get(name)
        return package.version if package else None


class Request(NamedTuple):
    """The options of the module package_change, which documents them."""

    install: Dict[str, str] = {}
    remove: List[str] = []
    remove_sources: List[str] = []
    allow_remove: List[str] = []
    state_id: str = ""
    allow_no_rollback: bool = False
    allow_downgrade: bool = False
    change_held: bool = False
    repair: bool = False
    pin: Optional[Dict[str, Any]] = None
    modules: Dict[str, str] = {}
    expect: Dict[str, str] = {}
    update_cache: bool = True
    lock_timeout_s: float = 300
    fetch_timeout_s: float = 600
    deadline_s: float = 3600
    root_free_min_mib: int = 500
    boot_free_min_mib: int = 20
    rootfs: str = "/"

    @classmethod
    def of_options(cls, options: Dict[str, Any]) -> Request:
        """A request from a module's options; an option that is None or missing gets its default."""
        return cls(**{name: options[name] for name in cls._fields if options.get(name) is not None})


class View(NamedTuple):
    """The configuration with which apt runs. options: further options for every program of apt;
    folder: of the view, a path of the node."""

    rootfs: str
    options: List[str]
    folder: str


class PackagePlan(NamedTuple):
    """A change that the package manager has simulated. writes: False in check mode; refused: the
    reasons of a refusal, a line each; pin: (path, text before, text after); repairs: names of
    packages that are not configured; arguments: the request as arguments of the package manager;
    streams: {module of dnf: (stream before, stream after)}."""

    request: Request
    writes: bool
    installed: Installed
    steps: List[Step] = []
    refused: List[str] = []
    offers: Offers = {}
    pin: Optional[Tuple[str, Optional[str], Optional[str]]] = None
    repairs: List[str] = []
    view: Optional[View] = None
    arguments: List[str] = []
    warnings: List[str] = []
    waited: List[str] = []
    streams: Dict[str, Tuple[Optional[str], str]] = {}

    def changes(self) -> List[Row]:
        """[{name, action, before, after}], including packages that are only configured."""
        rows = [dict(step._asdict()) for step in self.steps]
        known = {step.name for step in self.steps}
        for name in self.repairs if self.request.repair else ():
            if name not in known:
                version = self.installed.version(name)
                rows.append(
                    {"name": name, "action": "configure", "before": version, "after": version}
                )
        return sorted(rows, key=lambda row: str(row["name"]))

    def writes_pin(self) -> bool:
        """True when the file of pins changes."""
        return self.pin is not None and self.pin[1] != self.pin[2]

    def is_change(self) -> bool:
        """True when there is something to do."""
        return bool(self.changes()) or bool(self.streams) or self.writes_pin()


class ChangeResult(NamedTuple):
    """The result of a change. stopped_at: "", or the step that failed: fetching, applying; message:
    why; log: the last lines of the package manager's output."""

    fetched: List[str] = []
    repacked: List[str] = []
    after: Dict[str, Optional[str]] = {}
    stopped_at: str = ""
    message: str = ""
    log: List[str] = []
    audit: List[str] = []


class HoldPlan(NamedTuple):
    """hold, unhold: names in dpkg's notation; texts: {path: (before, after)}; state: the data to
    save; needs_manual_action: lines for a person."""

    hold: List[str]
    unhold: List[str]
    texts: Dict[str, Tuple[Optional[str], Optional[str]]]
    state: Dict[str, Any]
    needs_manual_action: List[str]


class Listing(NamedTuple):
    """The offered and the installed packages, as the module package_offers returns them."""

    offers: Offers
    installed: Dict[str, Row]
    warnings_of_update: List[str]
    manager: str
    streams: Dict[str, Any]
