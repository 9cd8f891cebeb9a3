"""Runs one of the project's Ansible modules in this process, as Ansible runs it on a node, but
without a connection: takes options, returns the result."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import ansible.module_utils
from ansible.module_utils import basic

PROJECT = Path(__file__).resolve().parents[2]


def run_module(name, /, check=False, **options):
    """The module's result. check: in check mode. A failure is a result too, with failed set."""
    module = load_module(name)
    arguments = {**options, "_ansible_check_mode": check, "_ansible_diff": True}
    before = basic._ANSIBLE_ARGS, getattr(basic, "_ANSIBLE_PROFILE", None)
    basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = (
        json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode(),
        "legacy",
    )
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            module.main()
    finally:
        basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = before
    return json.loads(output.getvalue().strip().splitlines()[-1])


def load_module(name):
    """The file of library/ as a Python module."""
    folder = str(PROJECT / "module_utils")
    if folder not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(folder)
    spec = importlib.util.spec_from_file_location(
        f"library_{name}", PROJECT / "library" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree(folder):
    """{path: bytes, or a link's target} of everything below a folder, to compare a node before and
    after."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = "/" + str(path.relative_to(folder))
        found[name] = (
            str(path.readlink())
            if path.is_symlink()
            else (path.read_bytes() if path.is_file() else None)
        )
    return _without_counter(found)


def _without_counter(found):
    """The lock's counter rises whenever a node is locked, and remains: it is no change, and neither
    are folders that contain nothing else."""
    found.pop("/var/lib/unhang/fencing.json", None)
    for folder in ("/var/lib/unhang", "/var/lib", "/var"):
        if folder in found and not any(path.startswith(folder + "/") for path in found):
            del found[folder]
    return found
