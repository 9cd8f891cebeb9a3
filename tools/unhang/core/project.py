"""Finds playbooks, roles and modules, in a checkout or an installed wheel, and says how this
installation is started and installed again."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from unhang.core.errors import UserError

# What a wheel holds besides the Python packages, in the layout of the checkout
# (tools/setup/packed_project.py puts it there).
INSTALLED = Path(__file__).resolve().parents[1] / "home"
COLLECTION = "MANIFEST.json"  # ansible-galaxy writes it, beside playbooks/
CACHE_ENV, STATE_ENV = "XDG_CACHE_HOME", "XDG_STATE_HOME"


def find_project() -> Path:
    """The folder that holds ansible.cfg and playbooks/: UNHANG_HOME, else the checkout or the wheel
    that this package is of. Raises UserError."""
    chosen = os.environ.get("UNHANG_HOME")
    for folder in [Path(chosen)] if chosen else [Path(__file__).resolve().parents[3], INSTALLED]:
        if (folder / "playbooks" / "audit.yml").is_file():
            return folder
    raise UserError(
        f"{folder} has no ansible.cfg and playbooks/ of unhang; set UNHANG_HOME to a checkout, or"
        f" install it again: {install_line()}"
    )


def checkout_of(project: Path) -> Path | None:
    """The project where it is a checkout, which holds its own runs and what is built; None where it
    is an installed wheel or collection, into which nothing is written."""
    installed = project.resolve() == INSTALLED or (project / COLLECTION).is_file()
    return None if installed else project


def install_line(extra: str = "") -> str:
    """What to type to install unhang again, or an extra of it, from where this one came: what an
    index has under its name is somebody else's."""
    extras = f"[{extra}]" if extra else ""
    pip = [sys.executable, "-P", "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None:  # uv makes environments without it
        pip = ["uv", "pip", "install", "--python", sys.executable]
    again = [] if extra else ["--force-reinstall"]
    origin = _origin(extras)
    line = shlex.join([*pip, *again, *(origin or [f".{extras}"])])
    return line if origin else f"in a checkout of unhang: {line}"


def _origin(extras: str) -> list[str]:
    """This checkout, or what direct_url.json names (PEP 610), as arguments of pip; [] where the
    installation has neither."""
    from importlib.metadata import distributions  # both for this line alone
    from urllib.parse import unquote

    if ((checkout := INSTALLED.parents[2]) / "pyproject.toml").is_file():
        return ["--editable", f"{checkout}{extras}"]
    for installed in distributions(name="unhang", path=[str(INSTALLED.parents[1])]):
        if text := installed.read_text("direct_url.json"):
            origin = json.loads(text)
            url, version = origin["url"], origin.get("vcs_info")
            if version:
                url = f"{version['vcs']}+{url}@{version['commit_id']}"
            if not url.startswith("file:"):
                return [f"unhang{extras} @ {url}"]
            if (path := Path(unquote(url.removeprefix("file://")))).exists():
                return [f"{path}{extras}"]
    return []


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """The user's own folder of what must outlive a cache: $XDG_STATE_HOME/unhang, by default in
    ~/.local/state; None for a user without a home."""
    state = environ.get(STATE_ENV) or ""
    try:  # the XDG specification says to ignore a relative path
        return (
            Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
        ) / "unhang"
    except RuntimeError:
        return None


def program_as_typed(path: str | None = None, name: str = "unhang") -> str:
    """How a person types a program of this installation from the current folder: its name where
    `path` (default: PATH) finds it, else the way to it."""
    if shutil.which(name, path=path):
        return name
    beside = Path(sys.executable).parent / name
    if not beside.is_file():
        return f"{sys.executable} {INSTALLED.parent}" if name == "unhang" else name
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
