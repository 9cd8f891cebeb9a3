"""One look at the jobs of this node: the document `unhang/evidence/1`, as
tools/unhang/core/schemas/evidence-1.yaml describes it.

First the ranks are found. A process whose files do not answer (its memory map is locked by a call
that never returns) is skipped and listed. Then all sources look at once, each in a child of its own
with a deadline, and what one cannot read does not delay the others.
"""

from __future__ import annotations

import os
import re
import socket
import time

from ..base.context import Context
from ..base.document import cut_to_size
from ..base.probe import run_sources
from ..base.root import Root
from ..base.version import VERSION
from ..facts.merging import merge_section
from .containers import check_name
from .files import read_kernel_log, read_locks, read_logs
from .finding import read_ranks
from .gpus import read_gpu_looks
from .look_options import MOST_SECONDS, NAMES
from .looks import read_proc_looks, read_sockets
from .pace import read_pace
from .ras import read_ras
from .stacks import read_stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..base.context import ReadSource
    from ..base.probe import SourceResult

SOURCES: tuple[ReadSource, ...] = (
    read_gpu_looks, read_ras, read_proc_looks, read_stacks, read_sockets, read_logs,
    read_kernel_log, read_locks,
)  # fmt: skip
OPTIONS: dict[str, Any] = {
    "pids": [],  # processes of the job; none: every job of this node that may be read
    # the ranks of this job of Slurm, as its environment names it, and of this node of it
    "slurm_job": None,
    "container": None,  # the ranks in this container: its name or ID, or a namespace
    "slow": False,  # also how far each rank is, fifty times in ten seconds
    "without": [],  # names of sources that are not asked
    "gap_s": 3.0,  # seconds between the two looks
    "silence_s": 3.0,  # longest time that a single call may take
    "deadline_s": 11.0,  # longest time of one source
    "py_spy": None,  # path of py-spy
    "kernel_log": None,  # a file in place of the kernel's own log
}
MOST_SKIPPED = 8
STUCK = re.compile(r"/proc/(\d+)/\S* did not return")


def look(options: dict[str, Any], load_pynvml: Callable[[], Any] | None) -> dict[str, Any]:
    """The evidence document. options: any of OPTIONS. Raises ValueError when they make no sense;
    whatever the node does becomes part of the document."""
    started, options = time.monotonic(), check_options(options)
    ranks, found = _find(options)
    wanted = (
        [(name, read) for name, read in zip(NAMES, SOURCES) if name not in options["without"]]
        if ranks
        else []
    )
    if ranks and options["slow"]:
        wanted.append(("pace", read_pace))
    context = _context({**options, "ranks": ranks}, load_pynvml)
    sections = {"ranks": merge_section("ranks", found, [], {})}
    sections["ranks"].pop("ranks", None)
    for name in options["without"] if ranks else ():
        sections[name] = {
            "probe": {
                "status": "absent",
                "duration_ms": 0.0,
                "error": "not asked for",
                "unread": [],
            }
        }
    for answer in run_sources(wanted, context, options["silence_s"], options["deadline_s"]):
        sections[answer.name] = merge_section(answer.name, answer, [], {})
        if answer.survivor and answer.survivor not in (
            sections[answer.name]["probe"]["error"] or ""
        ):
            sections[answer.name]["probe"]["error"] = answer.survivor
    collector = {
        "version": VERSION,
        "host": socket.gethostname()[:253],
        "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "duration_ms": round((time.monotonic() - started) * 1000, 1),
        "as_root": os.geteuid() == 0,
        "cut": [],
    }
    return cut_to_size(
        {
            "schema": "unhang/evidence/1",
            "collector": collector,
            "ranks": ranks,
            "sections": sections,
        }
    )


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """OPTIONS with the given ones. Raises ValueError naming the option, what was found and what is
    allowed."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}; options are {', '.join(OPTIONS)}")
    checked = {**OPTIONS, **{name: value for name, value in options.items() if value is not None}}
    strange = sorted(set(checked["without"]) - set(NAMES))
    if strange:
        raise ValueError(f"without names {', '.join(strange)}; allowed are {', '.join(NAMES)}")
    if checked["container"] is not None:
        check_name(checked["container"])
    for name in ("gap_s", "silence_s", "deadline_s"):
        if not isinstance(checked[name], (int, float)) or not 0 < checked[name] <= MOST_SECONDS:
            raise ValueError(
                f"{name} must be a number of seconds above 0 and up to {MOST_SECONDS}, and is"
                f" {checked[name]!r}"
            )
    if any(not isinstance(pid, int) or pid < 1 for pid in checked["pids"]):
        raise ValueError(f"pids must be numbers of processes, and is {checked['pids']!r}")
    return checked


def _context(options: dict[str, Any], load_pynvml: Callable[[], Any] | None) -> Context:
    return Context(Root(), options, (*NAMES, "pace"), load_pynvml)


def _find(options: dict[str, Any]) -> tuple[list[dict[str, Any]], SourceResult]:
    """(rows of ranks, the source's own report). A process that stalls the search is skipped in the
    next try, and stays in the rows with its reason."""
    skipped: list[int] = []
    while True:
        (found,) = run_sources(
            [("ranks", read_ranks)],
            _context({**options, "skipped": skipped}, None),
            options["silence_s"],
            options["deadline_s"],
        )
        stalled = STUCK.search(found.error or "") if found.status == "timeout" else None
        if not stalled or len(skipped) >= MOST_SKIPPED:
            break
        skipped.append(int(stalled.group(1)))
    for pid in skipped:
        reason = "its files in /proc do not answer: a call into the kernel holds its memory map"
        if found.pieces:
            found.pieces[-1].unread.append(
                {"field": f"process {pid}", "status": "timeout", "reason": reason}
            )
    return [row for piece in found.pieces for row in (piece.fields or {}).get("ranks", [])], found
