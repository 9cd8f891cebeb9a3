"""Runs the collector in a child process, with a recording or with the fake libnvidia-ml.so.1 and a
profile made from that recording."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import yaml

PROJECT = Path(__file__).resolve().parents[2]
H200X8 = PROJECT / "tests" / "fixtures" / "h200x8" / "nvml.json"
H200X2 = PROJECT / "tests" / "fixtures" / "h200x2" / "nvml.json"
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from unhang_node.facts.command import main; sys.exit(main(sys.argv[1:]))",
]
LONG_ENOUGH_S = 240


def collect_in_process(*arguments, env=None, command=COMMAND):
    """The document that the collector writes. Limits are long, because the machine that runs tests
    may be busy."""
    path = os.pathsep.join(
        [
            str(PROJECT / "module_utils"),
            *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []),
        ]
    )
    done = subprocess.run(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def write_recording(folder, base=H200X8, **differences):
    """A derived recording in `folder`; returns its path."""
    path = Path(folder) / "nvml.json"
    path.write_text(json.dumps({"base": str(base), **differences}))
    return path


@functools.cache
def facts_schema():
    """The validator of node-facts documents."""
    text = (PROJECT / "tools" / "unhang" / "core" / "schemas" / "node-facts-1.yaml").read_text()
    return jsonschema_rs.validator_for(yaml.safe_load(text))


def schema_faults(document):
    """[path: message] of the schema's errors about a document."""
    return [
        "{}: {}".format("/".join(map(str, fault.instance_path)), fault.message)
        for fault in facts_schema().iter_errors(document)
    ]
