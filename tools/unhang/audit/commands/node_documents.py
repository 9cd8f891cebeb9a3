"""`unhang judge` without a run: makes a run folder from node documents, which are files, folders of
files, or standard input."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang.audit.commands.arrived_lines import say_arrived
from unhang.audit.ways.arrivals import write_arrivals
from unhang.audit.ways.documents import Arrival
from unhang.audit.ways.files import STDIN, arrivals_of, check_source
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.run.own_runs import mark_as_own
from unhang.core.together import Together

MOST_PIPED_BYTES = 512 << 20
MOST_BYTES, LONGEST_S = 4 << 30, 1800  # of all documents


def is_document(named: str) -> bool:
    """True for standard input, a file or the name of one that is not there, and a folder of files
    that is no run folder."""
    path = Path(named)
    return (
        named == STDIN
        or path.is_file()
        or (path.suffix == ".json" and not path.is_dir())
        or (path.is_dir() and not (path / "run.json").is_file() and any(path.glob("*.json")))
    )


def run_of_documents(named: Sequence[str]) -> Path:
    """A run folder with the nodes of these documents, each once. Raises UserError for a file that
    is no node document, before anything is written."""
    together = Together(MOST_PIPED_BYTES if STDIN in named else MOST_BYTES, LONGEST_S)
    arrivals = []
    # the first fault ends it, because a file that is no document may have no end
    for arrival in _arrivals(named, together):
        if arrival.node is None:
            raise UserError(f"{arrival.place}{_fault(arrival, together)}")
        arrivals.append(arrival)
    folder = _new_folder()
    arrived = write_arrivals(folder, None, (("", arrival) for arrival in arrivals))
    say_arrived(arrived)
    now = run_folder.utc_now()
    head = {
        "schema": "unhang/run/1",
        "id": folder.name,
        "started": now,
        "finished": now,
        "inventory": None,
        "limit": None,
        "hosts": list(arrived.hosts),
    }
    run_folder.write_document(folder / "run.json", head)
    mark_as_own(folder)
    return folder


def _new_folder() -> Path:
    """A new run folder among the other runs, or in the folder for temporary files if that cannot be
    written."""
    folder = run_folder.runs_folder() / run_folder.new_run_id()
    try:
        run_folder.make_folder(folder)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="unhang-run-"))
        (folder / "nodes").mkdir()
    return folder


def _arrivals(named: Sequence[str], together: Together) -> Iterator[Arrival]:
    """The documents of files, of the *.json in folders, and of standard input. Raises UserError for
    a name at which nothing can be read."""
    for one in named:
        check_source(one)
        for source in sorted(map(str, Path(one).glob("*.json"))) if Path(one).is_dir() else [one]:
            yield from arrivals_of(source, together)


def _fault(arrival: Arrival, together: Together) -> str:
    """A document that a limit cut is no damaged one."""
    if over := together.reached():
        return f" {over}; read many documents with: unhang audit --via files"
    return f": {arrival.fault}"
