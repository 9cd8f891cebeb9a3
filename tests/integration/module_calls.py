"""Calls one of the project's modules on a test node over ssh, as a role does, and gives its answer."""

from __future__ import annotations

import json
import subprocess
import sys

import audits


def command_of(fleet, name, module, check, options):
    """(argv, environment) of a call of a module on a node."""
    work = fleet.work / f"call-{len(list(fleet.work.glob('call-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": [name]}))
    argv = ["ansible", name, "-i", str(inventory), "-m", module, "-a", json.dumps(options)]
    return [*argv, *(["--check"] if check else [])], {**audits.environment_of(fleet.bed, work), "ANSIBLE_NOCOLOR": "1"}


def call_module(fleet, name, module, check=False, **options):
    """The module's answer, a failure too."""
    argv, environment = command_of(fleet, name, module, check, options)
    said = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    done = subprocess.run(fleet.bed.inside(argv, audits.PROJECT), env=environment, timeout=audits.DEADLINE_S, **said)
    sys.stdout.write(f"{module} {options}\n{done.stdout}\n{done.stderr}\n")  # pytest shows it when a test fails
    return parse_answer(done.stdout)


def read_answer(process):
    """The answer of a call that was started with command_of's words."""
    said, _ = process.communicate(timeout=audits.DEADLINE_S)
    sys.stdout.write(said)
    return parse_answer(said)


def parse_answer(said):
    """The answer out of what `ansible` prints: after the host's name and what became of it."""
    return json.JSONDecoder().raw_decode(said, said.index(" => {") + 4)[0]
