"""Resource limits as the kernel, pam_limits and systemd write them. Everywhere -1 is unlimited."""

from __future__ import annotations

from .values import integer_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNLIMITED = -1
KEYS = (
    "memlock_soft_bytes",
    "memlock_hard_bytes",
    "nofile_soft",
    "nofile_hard",
    "stack_soft_bytes",
    "stack_hard_bytes",
    "nproc_soft",
    "nproc_hard",
)
UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "p": 1 << 50,
    "e": 1 << 60,
}
PROC_NAMES = (
    ("Max locked memory", "memlock_soft_bytes", "memlock_hard_bytes"),
    ("Max open files", "nofile_soft", "nofile_hard"),
    ("Max stack size", "stack_soft_bytes", "stack_hard_bytes"),
    ("Max processes", "nproc_soft", "nproc_hard"),
)
CONF_NAMES = {
    "memlock": ("memlock_{}_bytes", 1024),
    "nofile": ("nofile_{}", 1),
    "stack": ("stack_{}_bytes", 1024),
    "nproc": ("nproc_{}", 1),
}
ROWS = 48


def parse_proc_limits(text: str) -> dict[str, int | None]:
    """{key: number} for each of KEYS, from /proc/<pid>/limits; None for a limit that is not in
    it."""
    values = dict.fromkeys(KEYS)
    for line in text.splitlines():
        for title, soft, hard in PROC_NAMES:
            if line.startswith(title):
                fields = line[len(title) :].split()
                values[soft] = parse_limit(fields[0]) if fields else None
                values[hard] = parse_limit(fields[1]) if len(fields) > 1 else None
    return values


def parse_limit(word: str) -> int | None:
    """A limit in its own unit: "unlimited" and "infinity" are -1; None for any other text."""
    if word.lower() in ("unlimited", "infinity", "-1"):
        return UNLIMITED
    number = integer_or_none(word)
    return number if number is not None and number >= 0 else None


def parse_limits_conf(text: str, path: str) -> list[dict[str, Any]]:
    """[{domain, evidence, key: value …}] of a limits.conf, one row per domain with memlock, nofile,
    stack or nproc, evidence path:line of its last such line.

    memlock and stack are in KiB there; "-" sets soft and hard: limits.conf(5).
    """
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if (
            len(fields) != 4
            or fields[2] not in CONF_NAMES
            or fields[1] not in ("soft", "hard", "-")
        ):
            continue
        value = parse_limit(fields[3])
        if value is None or (fields[0] not in rows and len(rows) >= ROWS):
            continue
        name, unit = CONF_NAMES[fields[2]]
        value = value * unit if value >= 0 else value
        row = rows.setdefault(fields[0], {"domain": fields[0]})
        row["evidence"] = f"{path}:{number}"
        for kind in ("soft", "hard") if fields[1] == "-" else (fields[1],):
            row[name.format(kind)] = value
    return list(rows.values())


def parse_systemd_limit(value: Any) -> tuple[int | None, int | None]:
    """(soft, hard) of systemd's "infinity", "8M" or "1024:524288"; None for a part that is no
    limit. systemd.exec(5); K is 1024."""
    soft, colon, hard = value.partition(":")
    first = parse_sized(soft)
    return first, parse_sized(hard) if colon else first


def parse_sized(word: str) -> int | None:
    """A number with systemd's size suffix; "infinity" is -1; None for any other text."""
    word = word.strip()
    if word.lower() in ("infinity", "unlimited"):
        return UNLIMITED
    digits = word.rstrip("BKMGTPEbkmgtpe")
    number, unit = integer_or_none(digits), word[len(digits) :].lower()
    return number * UNITS[unit] if number is not None and number >= 0 and unit in UNITS else None
