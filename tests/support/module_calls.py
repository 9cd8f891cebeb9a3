"""Calls one of the project's modules on a test node and gives its result: over ssh as a role does,
or its Python code directly, which is faster."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile

import audits


def command_of(fleet, name, module, check, options):
    """(argv, environment) for a call of a module on a node."""
    work = fleet.work / f"call-{len(list(fleet.work.glob('call-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": [name]}))
    argv = [
        "ansible",
        name,
        "-i",
        str(inventory),
        "-m",
        module,
        *(["-a", json.dumps(options)] if options else []),
    ]
    return [*argv, *(["--check"] if check else [])], {
        **audits.environment_of(fleet.bed, work),
        "ANSIBLE_NOCOLOR": "1",
    }


def call_module(fleet, name, module, /, check=False, answer_within_s=audits.DEADLINE_S, **options):
    """The module's result, also of a failure."""
    argv, environment = command_of(fleet, name, module, check, options)
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    done = subprocess.run(
        fleet.bed.inside(argv, audits.PROJECT), env=environment, timeout=answer_within_s, **captured
    )
    # pytest shows it when a test fails
    sys.stdout.write(f"{module} {options}\n{done.stdout}\n{done.stderr}\n")
    return parse_answer(done.stdout)


def code_call(fleet, name, code):
    """argv that runs a line of Python on the node, with the project's node code importable; the
    line prints its result as JSON."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for path in sorted((audits.PROJECT / "module_utils").rglob("*.py")):
            target.write(path, path.relative_to(audits.PROJECT / "module_utils"))
    fleet.nodes[name].write("/srv/unhang.zip", packed.getvalue())
    program = f"import json, sys; sys.path.insert(0, '/srv/unhang.zip'); {code}"
    return fleet.nodes[name].entering(["python3", "-c", program])


def run_code(fleet, name, code):
    """The result of a line of Python on the node."""
    done = fleet.bed.run(code_call(fleet, name, code), timeout_s=audits.DEADLINE_S)
    sys.stdout.write(f"{code}\n{done.stdout}\n{done.stderr}\n")
    return json.loads(done.stdout.splitlines()[-1])


def parse_answer(output):
    """The result from the output of `ansible`, where it follows the host's name and status."""
    return json.JSONDecoder().raw_decode(output, output.index(" => {") + 4)[0]
