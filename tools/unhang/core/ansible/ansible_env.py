"""Ansible's environment for this project's playbooks, from a checkout or an installed wheel: its
configuration, modules and plugins."""

from __future__ import annotations

import codecs
import hashlib
import locale
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from unhang.core.errors import UserError
from unhang.core.project import CACHE_ENV, checkout_of, install_line

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
            f"{name} is not installed beside {sys.executable}; next: {install_line('fleet')}"
        )
    return found
