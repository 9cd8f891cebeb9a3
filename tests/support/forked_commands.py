"""Commands of unhang from their first line, each in a fork of one process that has imported them
and read the catalogue: a start costs a second or two.

For tests of what a command does. What a start itself does (streams, signals, locales, modules in
the way) is tested with a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600

# Each line on standard input is a command: [arguments, folder, environment, standard input] ->
# [exit code, output, errors].
SERVER = """
import gc, io, json, os, runpy, signal, sys, tempfile, traceback
from forked_commands import compile_rules
from unhang.commands import COMMANDS
from unhang.commands.names import load_command

for name in COMMANDS:
    load_command(name)
compile_rules()
gc.freeze()

def command(streams, arguments, folder, environment, given):
    signal.alarm(DEADLINE)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # it was looked up before TMPDIR was set
    streams[0].write(given.encode())
    streams[0].seek(0)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream.fileno(), descriptor)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False))
    sys.stdout, sys.stderr = (io.TextIOWrapper(open(place, "wb", closefd=False), errors=errors) for place, errors in ((1, "strict"), (2, "backslashreplace")))
    sys.argv[1:] = arguments
    runpy.run_module("unhang", run_name="__main__", alter_sys=True)

for line in sys.stdin:
    streams = [tempfile.TemporaryFile() for _ in range(3)]
    child = os.fork()
    if not child:
        code = 70
        try:
            command(streams, *json.loads(line))
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    answer = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    for stream in streams[1:]:
        stream.seek(0)
        answer.append(stream.read().decode(errors="replace"))
    print(json.dumps(answer), flush=True)
""".replace("DEADLINE", str(DEADLINE_S))


def compile_rules():
    """Judges a node in this process: conditions are compiled when they are first asked, and forks,
    as the judge makes one, have what is compiled."""
    from unhang.core.run.documents import decode_node
    from unhang.judge.rules.compiled_catalogue import load_catalogue
    from unhang.judge.rules.engine import Engine, view_of
    from unhang.judge.rules.examples import catalogue_view

    facts = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())
    node = {
        "schema": "unhang/node/1",
        "host": "a",
        "groups": [],
        "policy": {},
        "status": "ok",
        "message": None,
        "facts": facts,
    }
    catalogue = load_catalogue()
    engine = Engine(
        catalogue.rules,
        catalogue_view(catalogue.tables, tuple(rule.id for rule in catalogue.rules)),
    )
    engine.judge(view_of(decode_node(json.dumps(node).encode()), {}, ""))


@pytest.fixture(scope="session")
def compiled_rules():
    """The rules are compiled in this process, which tests that judge in it share."""
    compile_rules()


@cache
def _server():
    """The process that forks; it ends with this one."""
    path = os.pathsep.join(
        str(PROJECT / folder) for folder in ("tools", "module_utils", "tests/support")
    )
    environment = {**os.environ, "PYTHONPATH": path}
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd="/",
    )
    atexit.register(server.communicate)  # closes its standard input
    return server


def forked(arguments, folder, environment, given=""):
    """`unhang` with these arguments, finished: returncode, stdout, stderr. given: standard
    input."""
    words, server = list(map(str, arguments)), _server()
    server.stdin.write(json.dumps([words, str(folder), dict(environment), given]) + "\n")
    server.stdin.flush()
    return subprocess.CompletedProcess(words, *json.loads(server.stdout.readline()))
