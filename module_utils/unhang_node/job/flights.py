"""Dumps of torch's flight recorder that lie there: the newest collectives of each rank, as it
recorded them.

torch writes one file for each rank when a collective times out, when its dump pipe is written to,
or when the program asks for it. A dump is a pickle, and unpickling can run code: here no class and
no function can be named, and memory is bounded. Source: DebugInfoWriter in
torch/csrc/distributed/c10d.
"""

from __future__ import annotations

import functools
import os
import resource

from ..base.parse.plain_pickle import unpickle_plain
from ..base.parse.values import whole_or_none
from ..base.section import Unread
from ..base.untrusted_files import open_regular, resolve_local
from ..facts.sections.faults import read_boot_time
from .finding import MORE
from .owners import read_as_owners
from .process_table import TICKS
from .views import home_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .owners import Piece
    from .views import View

PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # torch's own order
IN_CACHE = "/torch/comm_lib_trace_rank_"
IN_TMP = "/tmp/nccl_trace_rank_"  # noqa: S108 -- of older releases; it is read, and must belong to the rank's user
LARGEST_DUMP = 16 << 20
MEMORY = 2 << 30  # of this source's process, of which a dump of LARGEST_DUMP takes less than half
NEWEST, MOST_GROUPS, MOST_RANKS = 16, 64, 64  # ranks of each owner
LONGEST_RANKS = 1 << 14  # letters; some 2,500 ranks of a group
READ_S = 5.0


def read_flights(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section log_tail: flights [{rank, pid, path, written_s, entries, pg_config,
    pg_status}], one rank at a time."""
    boot_s = read_boot_time(ctx.root) or 0.0
    ranks = {
        row["pid"]: row
        for row in [
            one
            for one in ctx.options["ranks"]
            if one["rank"] is not None and one["framework"] == "torch"
        ]
    }
    wanted = {pid: row["started"] for pid, row in ranks.items()}
    for fields, unread in read_as_owners(
        ctx, wanted, functools.partial(_dumps, ranks, boot_s), "flights", READ_S
    ):
        yield "log_tail", fields, unread, MORE


def _dumps(
    ranks: dict[int, dict[str, Any]], boot_s: float, _ctx: Context, view: View, pids: list[int]
) -> Iterator[Piece]:
    """As the owner."""
    _limit_memory()
    home = home_of(view)
    for row in [ranks[pid] for pid in pids][:MOST_RANKS]:
        unread = Unread()
        found = _first_dump(
            view, row, dump_paths(row, home), boot_s + row["started"] / TICKS, unread
        )
        yield {"flights": [found] if found else []}, unread.rows


def _first_dump(
    view: View, row: dict[str, Any], paths: list[str], began_s: float, unread: Unread
) -> dict[str, Any] | None:
    for path in paths:
        try:
            folder, name = os.path.split(path)
            local = f"{resolve_local(view.root, view.mounts, folder)}/{name}"
            return {
                "rank": row["rank"],
                "pid": row["pid"],
                "path": local,
                **_flight(view.root, local, view.uid, began_s),
            }
        except FileNotFoundError:
            continue
        except (
            Exception
        ) as problem:  # a damaged or hostile pickle may raise anything; no code of it was run
            unread.add(
                f"flights[{row['rank']}]",
                "error",
                f"{path}: {type(problem).__name__}: {str(problem)[:160]}",
            )
            break
    return None


def dump_paths(row: dict[str, Any], home: str | None) -> list[str]:
    """Where torch writes the dump of a rank."""
    named = next((row["settings"][name] for name in PREFIXES if row["settings"].get(name)), None)
    cache = row["settings"].get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    prefixes = [named] if named else [*([cache + IN_CACHE] if cache else []), IN_TMP]
    return [f"{prefix}{row['rank']}" for prefix in prefixes if prefix.startswith("/")]


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard), hard)
    )


def _flight(root: Root, path: str, owner: int, began_s: float) -> dict[str, Any]:
    descriptor = open_regular(root, path, follow=False, owner=owner)
    with open(descriptor, "rb") as dump:
        status = os.fstat(descriptor)
        if status.st_mtime < began_s:
            raise ValueError("was written before the rank began, by an earlier run")
        if status.st_size > LARGEST_DUMP:
            raise ValueError(f"has {status.st_size} bytes, at most {LARGEST_DUMP} are read")
        content = parse_dump(dump.read(LARGEST_DUMP))
    return {"written_s": round(status.st_mtime, 3), **content}


def parse_dump(dump: bytes) -> dict[str, Any]:
    """{entries, pg_config, pg_status} with torch's names, oldest entry first: of each process group
    the newest entries and the oldest that are not completed, collectives and messages apart. Raises
    whatever a pickle may raise, NotPlain, ValueError."""
    content = unpickle_plain(dump)
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("this is not a flight-recorder dump with entries")
    by_group: dict[str, list[int]] = {}
    plain: dict[int, dict[str, Any]] = {}
    for place, entry in enumerate(entries):
        if isinstance(entry, dict) and whole_or_none(entry.get("collective_seq_id")) is not None:
            plain[place] = one = _plain_entry(entry)
            key = f"{one['process_group']} {one.get('is_p2p')}"
            by_group.setdefault(key, []).append(place)
    kept = {
        place
        for places in list(by_group.values())[:MOST_GROUPS]
        for place in [
            *places[-NEWEST:],
            *[each for each in places if plain[each]["state"] != "completed"][:NEWEST],
        ]
    }
    return {
        "entries": [plain[place] for place in sorted(kept)],
        "pg_config": _groups(content.get("pg_config")),
        "pg_status": _status(content.get("pg_status")),
    }


def _plain_entry(entry: dict[str, Any]) -> dict[str, Any]:
    numbers = (
        "collective_seq_id", "p2p_seq_id", "record_id", "pg_id", "time_created_ns", "timeout_ms",
    )  # fmt: skip
    group = entry.get("process_group")
    return {
        "process_group": [_word(part) for part in group[:2]]
        if isinstance(group, (list, tuple))
        else [],
        "profiling_name": _word(entry.get("profiling_name")),
        "state": _word(entry.get("state")),
        "input_sizes": _sizes(entry.get("input_sizes")),
        **{name: entry[name] for name in numbers if whole_or_none(entry.get(name)) is not None},
        **{name: True for name in ("is_p2p", "retired") if entry.get(name) is True},
    }


def _groups(config: Any) -> dict[str, dict[str, str]]:
    """Of each group its description and ranks, as torch writes them; too long a list of ranks is
    left out."""
    found: dict[str, dict[str, str]] = {}
    for name, one in list(config.items())[:MOST_GROUPS] if isinstance(config, dict) else ():
        if isinstance(one, dict):
            ranks = one.get("ranks")
            if isinstance(ranks, (list, tuple)):
                ranks = str([rank for rank in ranks if whole_or_none(rank) is not None])
            if not isinstance(ranks, str) or len(ranks) > LONGEST_RANKS:
                ranks = ""
            found[_word(name)] = {"desc": _word(one.get("desc")), "ranks": ranks}
    return found


def _status(status: Any) -> dict[str, dict[str, int]]:
    names = ("last_enqueued_collective", "last_completed_collective")
    found: dict[str, dict[str, int]] = {}
    for key, one in list(status.items())[:MOST_GROUPS] if isinstance(status, dict) else ():
        if isinstance(one, dict) and all(
            whole_or_none(one.get(name)) is not None for name in names
        ):
            found[_word(key)] = {name: one[name] for name in names}
    return found


def _word(value: Any) -> str:
    return str(value)[:80] if isinstance(value, (str, int, float)) else "?"


def _sizes(value: Any) -> list[list[int]]:
    rows = (
        [row for row in value[:4] if isinstance(row, (list, tuple))]
        if isinstance(value, (list, tuple))
        else []
    )
    return [
        [size for size in row[:8] if isinstance(size, int) and abs(size) < 1 << 62] for row in rows
    ]
