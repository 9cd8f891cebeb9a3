"""The checkout that `unhang` works in, and how Ansible is wired to it from any folder and any environment."""

from __future__ import annotations

import codecs
import contextlib
import importlib.util
import locale
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from unhang.errors import UserError

OWN_CALLBACKS = ("unhang_run", "unhang_rollout")
# Settings that would unplug the project's own modules and plugins, or the assertion that every playbook makes.
NOT_INHERITED = (
    "ANSIBLE_LIBRARY",
    "ANSIBLE_MODULE_UTILS",
    "ANSIBLE_ACTION_PLUGINS",
    "ANSIBLE_CALLBACK_PLUGINS",
    "ANSIBLE_INJECT_FACT_VARS",
    "PYTHONPATH",
    "PYTHONHOME",
)
# Settings under which an audit stops half-way, asks at the keyboard, leaves out tasks or nodes, or reads no inventory.
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
LOCALE_CATEGORIES = frozenset(("LANG", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"))


def find_project() -> Path:
    """The folder that holds ansible.cfg and playbooks/: the checkout this package lies in, or UNHANG_HOME. Raises UserError."""
    chosen = os.environ.get("UNHANG_HOME")
    folder = Path(chosen) if chosen else Path(__file__).resolve().parents[2]
    if not (folder / "playbooks" / "audit.yml").is_file():
        raise UserError(f"expected unhang's checkout (ansible.cfg, playbooks/) at {folder}, found none; set UNHANG_HOME to it")
    return folder


def link_pynvml(project: Path) -> Path:
    """A link to the installed pynvml.py in a folder of module_utils, so that Ansible packs the controller's own nvidia-ml-py. Raises UserError."""
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        raise UserError("expected the Python package nvidia-ml-py, found none; run make setup")
    link = project / ".cache" / "module_utils" / "pynvml.py"
    if link.is_symlink() and os.readlink(link) == found.origin:  # noqa: PTH115 -- the text of the link is compared, not where it leads
        return link
    beside = link.with_name(f".pynvml-{os.getpid()}.py")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        beside.symlink_to(found.origin)
        beside.replace(link)
    except OSError as problem:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise UserError(f"could not make the link {link} to {found.origin}: {problem.strerror}; make it by hand or as the checkout's owner") from None
    return link


def ansible_environment(project: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment for Ansible: this project's configuration, this interpreter's programs first."""
    kept = {name: value for name, value in inherited.items() if name not in (*NOT_INHERITED, *LEFT_OUT)} | utf8_locale(inherited)
    programs = str(Path(sys.executable).parent)
    callbacks = [name for name in kept.get("ANSIBLE_CALLBACKS_ENABLED", "").split(",") if name and name not in OWN_CALLBACKS]
    return {
        **kept,
        "ANSIBLE_CONFIG": str(project / "ansible.cfg"),
        "ANSIBLE_CALLBACKS_ENABLED": ",".join([*callbacks, *OWN_CALLBACKS]),
        "PATH": programs + os.pathsep + kept.get("PATH", os.defpath),
    }


def settings_left_out(inherited: Mapping[str, str]) -> list[str]:
    """The caller's settings of Ansible that an audit does not take over."""
    return [name for name in LEFT_OUT if inherited.get(name)]


def utf8_locale(inherited: Mapping[str, str]) -> dict[str, str]:
    """What gives Ansible UTF-8, which it insists on: {} where the caller's own locale does. ssh forwards a LANG that is not installed here."""
    named = inherited.get("LC_ALL") or inherited.get("LC_CTYPE") or inherited.get("LANG") or "C"
    # Ansible gives up over any category of a locale that is not installed here, such as LC_TIME.
    others = [] if inherited.get("LC_ALL") else [value for name, value in inherited.items() if name in LOCALE_CATEGORIES and value]
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
        raise UserError(f"expected {name} beside {sys.executable}, found none; run make setup")
    return found


def program_as_typed(path: str | None = None, name: str = "unhang") -> str:
    """How a person types a program of this installation from the current folder: its name where `path` (default: PATH) finds it, else the way to it."""
    if shutil.which(name, path=path):
        return name
    beside = Path(sys.executable).parent / name
    if not beside.is_file():
        return f"{sys.executable} -m unhang" if name == "unhang" else name
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) else str(beside)
