"""Limits of processes (memlock, nofile, stack): what limits.d and the units that start jobs are to say. Values in, values out, but for the readers.

Of memlock and nofile the policy's number is the least that a job may have: nothing that is higher already is lowered. Of the stack it is the soft
limit, and the most: unlimited is what hurts there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional, Tuple

from ...parse.resource_limits import UNLIMITED, parse_limit, parse_sized, parse_systemd_limit
from ...root import Root
from ...sections.limits import SERVICES, config_files, find_pid, settings_of
from ...sections.reading import drop_ins, names_if_there, there

# path, line number, line, domain, type, value in bytes or a count
ConfLine = Tuple[str, int, str, str, str, Optional[int]]
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
LIMITS_CONF, LIMITS_FOLDER = "/etc/security/limits.conf", "/etc/security/limits.d"


class Limit(NamedTuple):
    """How a limit is written."""

    keyword: str  # in limits.conf
    unit: int  # bytes of its number there
    setting: str  # of systemd
    kinds: tuple[str, ...]  # which of soft and hard are ours to raise
    usual_hard: int  # what systemd gives a service of which nothing is said (systemd-system.conf(5)), which ours must not lower


LIMITS = {
    "memlock": Limit(keyword="memlock", unit=1024, setting="MEMLOCK", kinds=("soft", "hard"), usual_hard=8 << 20),
    "nofile": Limit(keyword="nofile", unit=1, setting="NOFILE", kinds=("soft", "hard"), usual_hard=524288),
    "stack": Limit(keyword="stack", unit=1024, setting="STACK", kinds=("soft",), usual_hard=UNLIMITED),
}


class Unit(NamedTuple):
    """A systemd unit that starts jobs."""

    name: str
    soft: int | None = None
    hard: int | None = None
    pid: int | None = None


def at_least(value: int | None, wanted: int) -> bool:
    """True when a limit is as high as wanted; None is not known, and so is not."""
    return value == UNLIMITED or (value is not None and wanted != UNLIMITED and value >= wanted)


def acceptable(limit: str, value: int | None, wanted: int) -> bool:
    """True when somebody else's number may stay."""
    if limit == "stack":
        return value is not None and value != UNLIMITED and value <= wanted
    return at_least(value, wanted)


def at_most(value: int, most: int | None) -> int:
    """A limit, cut to what can be set at all; most None: anything can."""
    return most if most not in (None, UNLIMITED) and (value == UNLIMITED or value > most) else value


def higher(*values: int | None) -> int:
    """The highest of several limits, None left out."""
    known = [value for value in values if value is not None]
    return UNLIMITED if UNLIMITED in known else max(known)


def conf_path(limit: str) -> str:
    """Our file for pam_limits: its name sorts first, so that what others set higher wins, and what they set lower is disabled."""
    return f"{LIMITS_FOLDER}/00-unhang-{limit}.conf"


def drop_in_path(limit: str, unit: str) -> str:
    """Our drop-in of a unit."""
    return f"/etc/systemd/system/{unit}.d/90-unhang-{limit}.conf"


def default_path(limit: str) -> str:
    """Our drop-in of systemd's own configuration, where somebody else's gives all units less."""
    return f"/etc/systemd/system.conf.d/90-unhang-{limit}.conf"


def read_conf_lines(rootfs: str, limit: str) -> list[ConfLine]:
    """[(path, line number, line, domain, type, value)] of others' lines of limits.conf and limits.d about this limit; value in bytes or a count."""
    root, found, row = Root([rootfs]), [], LIMITS[limit]
    for path in [LIMITS_CONF, *drop_ins(root, [LIMITS_FOLDER])]:
        if path == conf_path(limit) or not there(root, path):
            continue
        for number, line in enumerate(root.text(path, 1 << 20).split("\n"), 1):
            fields = line.partition("#")[0].split()
            if len(fields) == 4 and fields[2] == row.keyword and fields[1] in ("soft", "hard", "-"):
                value = parse_limit(fields[3])
                found.append((path, number, line, fields[0], fields[1], value * row.unit if value is not None and value >= 0 else value))
    return found


def contradicting(limit: str, lines: Iterable[ConfLine], wanted: int) -> list[tuple[str, int, str]]:
    """[(path, line number, line)] of others' lines that may not stay. A hard limit of the stack is nobody's harm."""
    return [line[:3] for line in lines if line[5] is not None and (limit != "stack" or line[4] != "hard") and not acceptable(limit, line[5], wanted)]


def wanted_conf(limit: str, wanted: int, lines: Sequence[ConfLine], most: int | None = None) -> list[str]:
    """Lines of our file for pam_limits: everybody and root, whom "*" leaves out. lines: of read_conf_lines.

    most: what can be set at all; some releases of pam_limits let nobody log in where a limit cannot be set.
    """
    row, rows = LIMITS[limit], []
    for domain in ("*", "root"):
        for kind in row.kinds:
            # limits.conf is read before limits.d: a higher value there must not be lowered by ours.
            others = [line[5] for line in lines if line[0] == LIMITS_CONF and line[3] == domain and line[4] in (kind, "-")]
            value = at_most(wanted_of(limit, kind, wanted, [other for other in others if acceptable(limit, other, wanted)]), most)
            rows.append("{} {} {} {}".format(domain, kind, row.keyword, "unlimited" if value == UNLIMITED else -(-value // row.unit)))
    return rows


def wanted_of(limit: str, kind: str, wanted: int, others: Sequence[int | None] = ()) -> int:
    """The number to write: the policy's, and of those where more is better never less than what holds without us."""
    if limit == "stack":
        return wanted if kind == "soft" else UNLIMITED
    return higher(wanted, *others, *([LIMITS[limit].usual_hard] if kind == "hard" else []))


def known_units(rootfs: str, names: Iterable[str]) -> list[str]:
    """Units of this node that start jobs, and those of `names` that it has; an alias counts as what it leads to."""
    root, found = Root([rootfs]), []
    for name in [unit for _service, units, _pids in SERVICES for unit in units] + list(names):
        path = next((folder + "/" + name for folder in UNIT_FOLDERS if there(root, folder + "/" + name)), None)
        if path is None:
            continue
        real = root.resolve(path).rpartition("/")[2]
        if real.endswith(".service") and real not in found:
            found.append(real)
    return found


def read_unit(rootfs: str, limit: str, name: str, live: bool) -> Unit:
    """Unit: the limit that others' files give it (None where none does), and its main process where it runs."""
    root, setting = Root([rootfs]), "Limit" + LIMITS[limit].setting
    main = next((folder + "/" + name for folder in UNIT_FOLDERS if there(root, folder + "/" + name)), None)
    soft = hard = None
    for path in ([main] if main else []) + drop_ins(root, [folder + "/" + name + ".d" for folder in UNIT_FOLDERS]):
        if path != drop_in_path(limit, name):
            for given, value in settings_of(root, path, "Service"):
                if given == setting:
                    soft, hard = parse_systemd_limit(value)
    service, units, pids = next((row for row in SERVICES if name in row[1]), (name.rpartition(".")[0], (name,), ()))
    pid = find_pid(root, service, units, pids) if live else None
    return Unit(name=name, soft=soft, hard=hard, pid=int(pid) if pid else None)


def wanted_drop_in(limit: str, wanted: int, unit: Unit, most: int | None = None) -> list[str]:
    """Lines of a unit's drop-in; [] where others' files give it enough."""
    given = {"soft": unit.soft, "hard": unit.hard}
    if all(acceptable(limit, given[kind], wanted) for kind in LIMITS[limit].kinds):
        return []
    soft, hard = wanted_of(limit, "soft", wanted), unit.hard if limit == "stack" and unit.hard is not None else at_most(wanted_of(limit, "hard", wanted), most)
    return ["[Service]", f"Limit{LIMITS[limit].setting}={systemd_pair(soft, hard)}"]


def systemd_pair(soft: int, hard: int) -> str:
    """systemd's "soft:hard", or the one word where both are one."""
    pair = ["infinity" if value == UNLIMITED else str(value) for value in (soft, hard)]
    return pair[0] if pair[0] == pair[1] else ":".join(pair)


def wanted_default(rootfs: str, limit: str, wanted: int, most: int | None = None) -> list[str]:
    """Lines of our system.conf drop-in: [] unless others' give all units less than wanted."""
    found = None
    for path in config_files(Root([rootfs]), "system.conf"):
        if path != default_path(limit):
            for name, value in settings_of(Root([rootfs]), path, "Manager"):
                found = value if name == "DefaultLimit" + LIMITS[limit].setting else found
    if found is None or acceptable(limit, parse_sized(found.partition(":")[0] if limit == "stack" else found.rpartition(":")[2]), wanted):
        return []
    return ["[Manager]", "DefaultLimit{}={}".format(LIMITS[limit].setting, systemd_pair(wanted, at_most(wanted_of(limit, "hard", wanted), most)))]


def own_drop_ins(rootfs: str, limit: str) -> list[str]:
    """Paths of all drop-ins of ours for this limit, of units that are gone too."""
    root = Root([rootfs])
    folders = [name for name in names_if_there(root, "/etc/systemd/system") if name.endswith(".d")]
    paths = [drop_in_path(limit, folder[:-2]) for folder in folders] + [default_path(limit)]
    return [path for path in paths if there(root, path)]
