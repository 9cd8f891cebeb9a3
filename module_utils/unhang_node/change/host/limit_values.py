"""Limits of processes (memlock, nofile, stack): the lines for limits.d and for the units that start
jobs. Only the readers do I/O.

For memlock and nofile the policy's number is the minimum for a job: a higher limit is never
lowered. For the stack it is the soft limit and the maximum, because an unlimited stack does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Optional, Tuple

from ...base.parse.resource_limits import UNLIMITED, parse_limit, parse_systemd_limit
from ...base.root import Root
from ...facts.sections.limits import SERVICES, config_files, find_pid
from ...facts.sections.reading import drop_ins, names_if_there, there
from .later_lines import LaterLines, find_later_lines, values_without

# path, line number, line, domain, type, value in bytes or a count
ConfLine = Tuple[str, int, str, str, str, Optional[int]]
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
LIMITS_CONF, LIMITS_FOLDER = "/etc/security/limits.conf", "/etc/security/limits.d"


class Limit(NamedTuple):
    """How a limit is written in each place."""

    keyword: str  # in limits.conf
    unit: int  # bytes in one unit of its number in limits.conf
    setting: str  # systemd's name: Limit<setting>=
    kinds: tuple[str, ...]  # the parts (soft, hard) that unhang may raise
    # systemd's default for a service (systemd-system.conf(5)), below which unhang must not go
    usual_hard: int


LIMITS = {
    "memlock": Limit(
        keyword="memlock", unit=1024, setting="MEMLOCK", kinds=("soft", "hard"), usual_hard=8 << 20
    ),
    "nofile": Limit(
        keyword="nofile", unit=1, setting="NOFILE", kinds=("soft", "hard"), usual_hard=524288
    ),
    "stack": Limit(
        keyword="stack", unit=1024, setting="STACK", kinds=("soft",), usual_hard=UNLIMITED
    ),
}


class Unit(NamedTuple):
    """A systemd unit that starts jobs."""

    name: str
    soft: int | None = None
    hard: int | None = None
    pid: int | None = None
    # lines that are read after unhang's drop-in and set a lower limit
    later: LaterLines = LaterLines()


def at_least(value: int | None, wanted: int) -> bool:
    """True if a limit is at least as high as wanted. An unknown limit (None) is not."""
    return value == UNLIMITED or (value is not None and wanted != UNLIMITED and value >= wanted)


def acceptable(limit: str, value: int | None, wanted: int) -> bool:
    """True if this value, set by somebody else, may stay."""
    if limit == "stack":
        return value is not None and value != UNLIMITED and value <= wanted
    return at_least(value, wanted)


def at_most(value: int, most: int | None) -> int:
    """The limit, or the highest that can be set if that is lower; most None: any limit can be
    set."""
    return most if most not in (None, UNLIMITED) and (value == UNLIMITED or value > most) else value


def higher(*values: int | None) -> int:
    """The highest of several limits, without None."""
    known = [value for value in values if value is not None]
    return UNLIMITED if UNLIMITED in known else max(known)


def conf_path(limit: str) -> str:
    """Path of unhang's file for pam_limits. Its name sorts first, so that others' higher values
    win; their lower values are disabled."""
    return f"{LIMITS_FOLDER}/00-unhang-{limit}.conf"


def drop_in_path(limit: str, unit: str) -> str:
    """Path of unhang's drop-in of a unit."""
    return f"/etc/systemd/system/{unit}.d/90-unhang-{limit}.conf"


def default_path(limit: str) -> str:
    """Path of unhang's drop-in of systemd's own configuration, for nodes where another file gives
    all units less."""
    return f"/etc/systemd/system.conf.d/90-unhang-{limit}.conf"


def read_conf_lines(rootfs: str, limit: str) -> list[ConfLine]:
    """[(path, line number, line, domain, type, value)] of others' lines for this limit in
    limits.conf and limits.d; value in bytes or a count."""
    root, found, row = Root([rootfs]), [], LIMITS[limit]
    for path in [LIMITS_CONF, *drop_ins(root, [LIMITS_FOLDER])]:
        if path == conf_path(limit) or not there(root, path):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            fields = line.partition("#")[0].split()
            if len(fields) == 4 and fields[2] == row.keyword and fields[1] in ("soft", "hard", "-"):
                value = parse_limit(fields[3])
                found.append(
                    (
                        path,
                        number,
                        line,
                        fields[0],
                        fields[1],
                        value * row.unit if value is not None and value >= 0 else value,
                    )
                )
    return found


def contradicting(limit: str, lines: Iterable[ConfLine], wanted: int) -> list[tuple[str, int, str]]:
    """[(path, line number, line)] of others' lines to disable. A hard limit of the stack does no
    harm, so it stays."""
    return [
        line[:3]
        for line in lines
        if line[5] is not None
        and (limit != "stack" or line[4] != "hard")
        and not acceptable(limit, line[5], wanted)
    ]


def wanted_conf(
    limit: str, wanted: int, lines: Sequence[ConfLine], most: int | None = None
) -> list[str]:
    """Lines of unhang's file for pam_limits: all users and root, which "*" excludes. lines: result
    of read_conf_lines. most: the highest limit that can be set; with a higher one some releases of
    pam_limits refuse every login."""
    row, rows = LIMITS[limit], []
    for domain in ("*", "root"):
        for kind in row.kinds:
            # limits.conf is read before limits.d: unhang's file must not lower a higher value
            # there.
            others = [
                line[5]
                for line in lines
                if line[0] == LIMITS_CONF and line[3] == domain and line[4] in (kind, "-")
            ]
            value = at_most(
                wanted_of(
                    limit,
                    kind,
                    wanted,
                    [other for other in others if acceptable(limit, other, wanted)],
                ),
                most,
            )
            rows.append(
                f"{domain} {kind} {row.keyword}"
                f" {'unlimited' if value == UNLIMITED else -(-value // row.unit)}"
            )
    return rows


def wanted_of(limit: str, kind: str, wanted: int, others: Sequence[int | None] = ()) -> int:
    """The value to write: the policy's; for memlock and nofile never less than without unhang."""
    if limit == "stack":
        return wanted if kind == "soft" else UNLIMITED
    return higher(wanted, *others, *([LIMITS[limit].usual_hard] if kind == "hard" else []))


def unit_path(root: Root, name: str) -> str | None:
    """A unit's file, or None."""
    return next(
        (folder + "/" + name for folder in UNIT_FOLDERS if there(root, folder + "/" + name)), None
    )


def known_units(rootfs: str, names: Iterable[str]) -> list[str]:
    """Units on this node that start jobs, and those of `names` that exist; an alias counts as the
    unit that it points to."""
    root, found = Root([rootfs]), []
    for name in [unit for _service, units, _pids in SERVICES for unit in units] + list(names):
        path = unit_path(root, name)
        if path is None:
            continue
        real = root.resolve(path).rpartition("/")[2]
        if real.endswith(".service") and real not in found:
            found.append(real)
    return found


def read_unit(rootfs: str, limit: str, name: str, live: bool, wanted: int | None = None) -> Unit:
    """Unit: the limit that others' files set (None if none does), and its main process if it runs.
    wanted: the limit that the unit should have; then `later` has the lines after unhang's drop-in
    that set a lower one, and only those that stay count."""
    root, setting, own = Root([rootfs]), "Limit" + LIMITS[limit].setting, drop_in_path(limit, name)
    main = unit_path(root, name)
    parts = [
        path
        for path in drop_ins(root, [folder + "/" + name + ".d" for folder in UNIT_FOLDERS])
        if path != own
    ]
    later = find_later_lines(root, own, parts, "Service", setting, enough_for(limit, wanted))
    soft = hard = None
    for value in values_without(
        root, ([main] if main else []) + parts, "Service", setting, later.to_disable
    ):
        soft, hard = parse_systemd_limit(value)
    service, units, pids = next(
        (row for row in SERVICES if name in row[1]), (name.rpartition(".")[0], (name,), ())
    )
    pid = find_pid(root, service, units, pids) if live else None
    return Unit(name=name, soft=soft, hard=hard, pid=int(pid) if pid else None, later=later)


def enough_for(limit: str, wanted: int | None) -> Callable[[str], bool]:
    """Whether a unit's limit, in systemd's notation, may stay beside the wanted one; any may if
    none is wanted."""

    def is_enough(value: str) -> bool:
        soft, hard = parse_systemd_limit(value)
        given = {"soft": soft, "hard": hard}
        return wanted is None or all(
            acceptable(limit, given[kind], wanted) for kind in LIMITS[limit].kinds
        )

    return is_enough


def wanted_drop_in(limit: str, wanted: int, unit: Unit, most: int | None = None) -> list[str]:
    """Lines of a unit's drop-in; [] if others' files set a limit that is high enough."""
    given = {"soft": unit.soft, "hard": unit.hard}
    if all(acceptable(limit, given[kind], wanted) for kind in LIMITS[limit].kinds):
        return []
    hard = (
        unit.hard
        if limit == "stack" and unit.hard is not None
        else at_most(wanted_of(limit, "hard", wanted, [unit.hard]), most)
    )
    soft = wanted_of(limit, "soft", wanted)
    return ["[Service]", f"Limit{LIMITS[limit].setting}={systemd_pair(soft, hard)}"]


def systemd_pair(soft: int, hard: int) -> str:
    """systemd's notation "soft:hard", or one value if both are equal."""
    pair = ["infinity" if value == UNLIMITED else str(value) for value in (soft, hard)]
    return pair[0] if pair[0] == pair[1] else ":".join(pair)


def _is_default_enough(limit: str, value: str, wanted: int) -> bool:
    soft, hard = parse_systemd_limit(value)
    return acceptable(limit, soft if limit == "stack" else hard, wanted)


def later_defaults(rootfs: str, limit: str, wanted: int) -> LaterLines:
    """Lines that are read after unhang's drop-in of system.conf and set a lower default for all
    units."""
    root, own, setting = Root([rootfs]), default_path(limit), "DefaultLimit" + LIMITS[limit].setting
    parts = [
        path
        for path in config_files(root, "system.conf")
        if path != own and not path.endswith("/system.conf")
    ]
    return find_later_lines(
        root, own, parts, "Manager", setting, lambda value: _is_default_enough(limit, value, wanted)
    )


def wanted_default(
    rootfs: str, limit: str, wanted: int, later: LaterLines, most: int | None = None
) -> list[str]:
    """Lines of unhang's system.conf drop-in: [] unless other files set a default below the wanted
    limit. later: result of later_defaults."""
    root = Root([rootfs])
    paths = [path for path in config_files(root, "system.conf") if path != default_path(limit)]
    found = values_without(
        root, paths, "Manager", "DefaultLimit" + LIMITS[limit].setting, later.to_disable
    )
    if not found or _is_default_enough(limit, found[-1], wanted):
        return []
    return [
        "[Manager]",
        (
            f"DefaultLimit{LIMITS[limit].setting}={systemd_pair(wanted, at_most(wanted_of(limit, 'hard', wanted), most))}"  # noqa: E501
        ),
    ]


def own_drop_ins(rootfs: str, limit: str) -> list[str]:
    """Paths of all of unhang's drop-ins for this limit, including those of units that no longer
    exist."""
    root = Root([rootfs])
    folders = [name for name in names_if_there(root, "/etc/systemd/system") if name.endswith(".d")]
    paths = [drop_in_path(limit, folder[:-2]) for folder in folders] + [default_path(limit)]
    return [path for path in paths if there(root, path)]
