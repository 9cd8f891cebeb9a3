"""Recorded nodes for the tests of the system and kernel_log sources: reads, changes and checks them
against the schema."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import jsonschema_rs

from unhang.core.strict_yaml import load_yaml
from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root
from unhang_node.facts.sources import kernel_log, system

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = REPOSITORY / "tests" / "fixtures" / "roots"
NAMES = ("h200x8", "a6000x3-kernel-5.4", "container", "rdma-h100")
SECTIONS = ("node", "kernel", "limits", "network", "gpus", "interconnect", "faults")
# these sources read every field of these sections
PRIMARY = ("node", "kernel", "limits", "network", "faults")


def place(name):
    """Folder of a recorded node."""
    return ROOTS / name


def read(folder, wanted=SECTIONS, **options):
    """{section: (fragment or exception, {unread field: row})} of both sources over one folder (or a
    Root)."""
    root = folder if isinstance(folder, Root) else Root([str(folder)])
    ctx = Context(root, dict(DEFAULTS, **options), wanted, load_pynvml=None)
    answers = {}
    for source in (system, kernel_log):
        for section, fragment, unread in source.read(ctx):
            before, known = answers.get(section, ({}, {}))
            rows = {**known, **{row["field"]: row for row in unread}}
            # a section may come in pieces
            answers[section] = (
                merged(before, fragment) if isinstance(fragment, dict) else fragment,
                rows,
            )
    return answers


def merged(into, fields):
    both = {
        key: merged(into[key], value)
        for key, value in fields.items()
        if isinstance(value, dict) and isinstance(into.get(key), dict)
    }
    return {**into, **fields, **both}


def facts(folder, section, **options):
    """One section's fragment; raises the error of a section that failed as a whole."""
    fragment = read(folder, (section,), **options)[section][0]
    if isinstance(fragment, Exception):
        raise fragment
    return fragment


def unread(folder, section, **options):
    """{field: row} of the values that one section could not read."""
    return read(folder, (section,), **options)[section][1]


def copied(name, tmp_path):
    """A copy of a recorded node that a test may change."""
    return Path(shutil.copytree(place(name), Path(tmp_path) / name, symlinks=True))


def write(folder, path, text):
    """Writes a file of the node, in place of an older one."""
    target = Path(str(folder) + path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.exists():
        target.unlink()
    target.write_bytes(text if isinstance(text, bytes) else text.encode())


@cache
def schema():
    """The node-facts schema."""
    return load_yaml(REPOSITORY / "tools/unhang/core/schemas/node-facts-1.yaml")[0]


@cache
def validator():
    return jsonschema_rs.Draft202012Validator(schema())


def complaints(section, fragment, rows=()):
    """The schema's errors about a fragment: [] for a good one."""
    whole = {"schema": "unhang/node-facts/1", "collector": {"version": "0"}, "sections": {}}
    whole["sections"][section] = dict(fragment, probe={"status": "ok", "unread": list(rows)})
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in validator().iter_errors(whole)
    ]


def fields(section):
    """Names of a section's fields, without probe."""
    return set(schema()["$defs"][section]["properties"]) - {"probe"}
