"""Finds playbooks, roles and modules, in a checkout or an installed wheel, and sets Ansible's
environment so that it finds them from any folder."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import importlib.util
import json
import locale
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from unhang.core.errors import UserError

# What a wheel holds besides the Python packages, in the layout of the checkout
# (tools/setup/packed_project.py puts it there).
INSTALLED = Path(__file__).resolve().parents[1] / "home"
COLLECTION = "MANIFEST.json"  # ansible-galaxy writes it, beside playbooks/
CACHE_ENV, STATE_ENV = "XDG_CACHE_HOME", "XDG_STATE_HOME"
_OWN_CACHE = f"set {CACHE_ENV} to a folder of your own"
OWN_CALLBACKS = ("unhang_run", "unhang_rollout")
# Settings that would unplug the project's own modules and plugins, or the assertion that every
# playbook makes.
NOT_INHERITED = (
    "ANSIBLE_LIBRARY",
    "ANSIBLE_MODULE_UTILS",
    "ANSIBLE_ACTION_PLUGINS",
    "ANSIBLE_CALLBACK_PLUGINS",
    "ANSIBLE_INJECT_FACT_VARS",
    "PYTHONPATH",
    "PYTHONHOME",
)
# Settings under which an audit stops half-way, asks at the keyboard, leaves out tasks or nodes, or
# reads no inventory.
LEFT_OUT = (
    "ANSIBLE_ENABLE_TASK_DEBUGGER",
    "ANSIBLE_STRATEGY",
    "ANSIBLE_STRATEGY_PLUGINS",
    "ANSIBLE_RUN_TAGS",
    "ANSIBLE_SKIP_TAGS",
    "ANSIBLE_INVENTORY_ENABLED",
    "ANSIBLE_STDOUT_CALLBACK",
)
# What ssh may forward besides LANG and LC_ALL.
LOCALE_CATEGORIES = frozenset(
    ("LANG", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME")
)


def find_project() -> Path:
    """The folder that holds ansible.cfg and playbooks/: UNHANG_HOME, else the checkout or the wheel
    that this package is of. Raises UserError."""
    chosen = os.environ.get("UNHANG_HOME")
    for folder in [Path(chosen)] if chosen else [Path(__file__).resolve().parents[3], INSTALLED]:
        if (folder / "playbooks" / "audit.yml").is_file():
            return folder
    raise UserError(
        f"expected ansible.cfg and playbooks/ of unhang at {folder}, found none; set"
        f" UNHANG_HOME to a checkout, or install it again: {install_line()}"
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


def links_folder(project: Path) -> Path:
    """The folder of module_utils with the link to pynvml.py: in the checkout; of an installed wheel
    one for each installation below XDG_CACHE_HOME."""
    if checkout := checkout_of(project):
        return checkout / ".cache" / "module_utils"
    named = os.environ.get(CACHE_ENV, "")
    cache = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return (
        cache / "unhang" / f"module_utils-{hashlib.sha256(str(project).encode()).hexdigest()[:12]}"
    )


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


def own_folder(folder: Path) -> Path:
    """The folder, made if it is missing. Programs are read from it, so all of its way belongs to
    root or this user. Raises OSError, UserError."""
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.mkdir(mode=0o755, exist_ok=True)
    absolute = folder.absolute()
    for place in sorted({*absolute.parents, absolute, *folder.resolve().parents, folder.resolve()}):
        state = place.lstat()
        if state.st_uid not in (0, os.geteuid()):
            raise UserError(
                f"expected {place} to belong to root or to you, for {folder}; found that it belongs"
                f" to user {state.st_uid}; {_OWN_CACHE}"
            )
        open_to_all = state.st_mode & stat.S_IWOTH and not stat.S_ISLNK(state.st_mode)
        if open_to_all and (place == absolute or not state.st_mode & stat.S_ISVTX):
            raise UserError(
                f"expected {place} to be closed to others, for {folder}; found that everybody can"
                f" write to it; {_OWN_CACHE}"
            )
    return folder


def link_pynvml(project: Path) -> Path:
    """A link to the installed pynvml.py in a folder of module_utils, so that Ansible packs the
    controller's own nvidia-ml-py. Raises UserError."""
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        raise UserError(
            f"expected the Python package nvidia-ml-py, found none; next: {install_line()}"
        )
    link = links_folder(project) / "pynvml.py"
    beside = link.with_name(f".pynvml-{os.getpid()}.py")
    try:
        if not checkout_of(project):
            own_folder(link.parent)
        if link.is_symlink() and os.readlink(link) == found.origin:  # noqa: PTH115 -- the text of the link is compared, not where it leads
            return link
        link.parent.mkdir(parents=True, exist_ok=True)
        beside.symlink_to(found.origin)
        beside.replace(link)
    except OSError as problem:
        with contextlib.suppress(OSError):
            beside.unlink()
        then = (
            "make it by hand or as the checkout's owner"
            if checkout_of(project)
            else f"set {CACHE_ENV} to a folder that can be written to"
        )
        raise UserError(
            f"could not make the link {link} to {found.origin}: {problem.strerror}; {then}"
        ) from None
    return link


def ansible_environment(project: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment for Ansible: this project's configuration, this interpreter's programs
    first."""
    kept = {
        name: value for name, value in inherited.items() if name not in (*NOT_INHERITED, *LEFT_OUT)
    } | utf8_locale(inherited)
    programs = str(Path(sys.executable).parent)
    callbacks = [
        name
        for name in kept.get("ANSIBLE_CALLBACKS_ENABLED", "").split(",")
        if name and name not in OWN_CALLBACKS
    ]
    # ansible.cfg names the checkout's own folder of links; an installed wheel's lies elsewhere.
    linked = (
        {}
        if checkout_of(project)
        else {
            "ANSIBLE_MODULE_UTILS": f"{project / 'module_utils'}{os.pathsep}{links_folder(project)}"
        }
    )
    return {
        **kept,
        **linked,
        "ANSIBLE_CONFIG": str(project / "ansible.cfg"),
        "ANSIBLE_CALLBACKS_ENABLED": ",".join([*callbacks, *OWN_CALLBACKS]),
        "PATH": programs + os.pathsep + kept.get("PATH", os.defpath),
    }


def settings_left_out(inherited: Mapping[str, str]) -> list[str]:
    """The caller's settings of Ansible that an audit ignores."""
    return [name for name in LEFT_OUT if inherited.get(name)]


def utf8_locale(inherited: Mapping[str, str]) -> dict[str, str]:
    """What gives Ansible UTF-8, which it insists on: {} where the caller's own locale does. ssh
    forwards a LANG that is not installed here."""
    named = inherited.get("LC_ALL") or inherited.get("LC_CTYPE") or inherited.get("LANG") or "C"
    # Ansible gives up over any category of a locale that is not installed here, such as LC_TIME.
    others = (
        []
        if inherited.get("LC_ALL")
        else [value for name, value in inherited.items() if name in LOCALE_CATEGORIES and value]
    )
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        for other in (*others, named):
            locale.setlocale(locale.LC_CTYPE, other)
        if codecs.lookup(locale.nl_langinfo(locale.CODESET)).name == "utf-8":
            return {}
    except (locale.Error, LookupError):
        pass
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return {"LC_ALL": "C.UTF-8"}


def ansible_program(name: str) -> str:
    """ansible-playbook and its kind, as installed beside this interpreter. Raises UserError."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UserError(
            f"expected {name} beside {sys.executable}, found none; next: {install_line('fleet')}"
        )
    return found


def program_as_typed(path: str | None = None, name: str = "unhang") -> str:
    """How a person types a program of this installation from the current folder: its name where
    `path` (default: PATH) finds it, else the way to it."""
    if shutil.which(name, path=path):
        return name
    beside = Path(sys.executable).parent / name
    if not beside.is_file():
        return f"{sys.executable} -P -m unhang" if name == "unhang" else name
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
