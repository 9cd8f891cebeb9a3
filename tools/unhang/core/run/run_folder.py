"""Run folders: their place, ids and contents, and how a document is written into one. The Ansible
plugins use it too."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unhang.core.errors import UserError
from unhang.core.project import checkout_of
from unhang.core.run.whole_files import GROUP_ENV, write_atomically
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded

RUNS_ENV = "UNHANG_RUNS"  # the folder of the run folders, wherever it is read or written
SHORTEST_ID = 8  # of the beginning of an id: a day
LONGEST_DOCUMENT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Run:
    """folder: the run's own; document: run.json (schema unhang/run/1)."""

    folder: Path
    document: dict[str, Any]

    @property
    def hosts(self) -> list[str]:
        """Every host of the run, also those that gave no answer."""
        return list(self.document.get("hosts", []))


def runs_folder(checkout: Path | None = None) -> Path:
    """The folder of the run folders, wherever a command is typed: UNHANG_RUNS, else runs/ of the
    checkout; without one, runs/ of the current folder.

    checkout: the one to take instead of that which this package is of.
    """
    named = os.environ.get(RUNS_ENV)
    return Path(named).expanduser() if named else (checkout or _own_checkout() or Path()) / "runs"


def _own_checkout() -> Path | None:
    """The checkout that this package is of, or that UNHANG_HOME names; None for an installed
    wheel or collection."""
    folder = Path(os.environ.get("UNHANG_HOME") or Path(__file__).resolve().parents[4])
    return checkout_of(folder) if (folder / "playbooks" / "audit.yml").is_file() else None


def latest_run() -> str:
    """The newest run, as a user would type it."""
    path, here = runs_folder() / "latest", Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def as_typed(folder: Path) -> str:
    """The folder as a person would type it: `runs/ID` where every command finds a run by that, else
    relative to the current folder if it is below it."""
    here, runs = Path.cwd(), runs_folder().resolve()
    if folder.parent.resolve() == runs != here:
        return f"{runs.name}/{folder.name}"
    return str(folder.relative_to(here) if here in folder.parents else folder)


def file_stem(host: str) -> str:
    """A host's name as a file name: percent-encoded but for [A-Za-z0-9._-], never "." or "..", and
    never longer than a file system takes."""
    stem = quote(host, safe="", errors="surrogatepass").replace("~", "%7E")
    if stem in ("", ".", ".."):
        stem = stem.replace(".", "%2E") or "%"
    return (
        stem
        if len(stem) <= 200
        else stem[:160] + "%" + hashlib.sha256(stem.encode()).hexdigest()[:32]
    )


def utc_now() -> str:
    """RFC 3339, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_run_id(ending: str | None = None) -> str:
    """A new id, which sorts by time. ending: distinguishes runs of the same second; ten random
    characters by default."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ-") + (ending or secrets.token_hex(5))


def list_runs(runs: Path) -> list[Path]:
    """Run folders, oldest first; [] when there is no such folder."""
    found = runs.glob("*/run.json")
    return sorted(one.parent for one in found if one.is_file() and not one.parent.is_symlink())


def find_run(named: str | Path, runs: Path | None = None) -> Path:
    """A run folder by its path, by its id or the beginning of one, or as "latest"; runs/ID means
    the same in every folder.

    runs: where to look, runs_folder() by default.
    Raises UserError.
    """
    runs = runs or runs_folder()
    beside = [runs.parent / named] if Path(named).parts[:1] == (runs.name,) else []
    for folder in (Path(named), runs / named, *beside):
        if (folder / "run.json").is_file():
            return folder.resolve()
    known = [run.name for run in list_runs(runs)]
    begun = [one for one in known if len(str(named)) >= SHORTEST_ID and one.startswith(str(named))]
    if len(begun) == 1:
        return (runs / begun[0]).resolve()
    if begun:
        raise UserError(f"{named} begins the names of {len(begun)} runs: {', '.join(begun[-3:])}")
    newest = f"the newest are {', '.join(known[-3:])}"
    none = "there is none yet, make one with: unhang audit"
    raise UserError(
        f"{named} is not a run folder (one that holds run.json); {newest if known else none}"
    )


def read_run(folder: Path) -> Run:
    """Raises UserError when run.json cannot be read."""
    return Run(folder, read_object(folder / "run.json", "a run"))


def node_files(folder: Path) -> list[Path]:
    """The nodes' files in the order of their names. The host is in the file; do not derive it from
    the file's name."""
    return sorted((folder / "nodes").glob("*.json"))


def read_node(path: Path) -> dict[str, Any]:
    """One node file (schema unhang/node/1). Raises UserError."""
    return read_object(path, "a node file")


def make_folder(folder: Path) -> None:
    """A new run folder with nodes/, which only the user may enter, and the members of the group
    that UNHANG_GROUP names. Raises OSError."""
    group = os.environ.get(GROUP_ENV)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    if group:
        shutil.chown(folder, group=group)
        folder.chmod(0o2750)  # with the set-group-ID bit, what is made in it belongs to the group
    (folder / "nodes").mkdir(mode=0o750 if group else 0o700)


def write_document(path: Path, document: Any) -> None:
    write_atomically(
        path,
        json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n",
    )


def read_object(
    path: Path, expected: str, most_bytes: int = LONGEST_DOCUMENT, then: str = ""
) -> dict[str, Any]:
    """Reads a file with one JSON object. expected: its meaning for the message ("a plan"); then:
    the end of the message. Raises UserError."""
    try:
        document = parse_strictly(read_bounded(path, most_bytes))
    except OSError as problem:
        raise UserError(f"{path} cannot be read as {expected}: {problem.strerror}{then}") from None
    except NotStrict as problem:
        raise UserError(f"{path} is not {expected}: {problem}{then}") from None
    if not isinstance(document, dict):
        raise UserError(
            f"{path} must be {expected}, a JSON object, and is {type(document).__name__}{then}"
        )
    return document
