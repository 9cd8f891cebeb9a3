"""What a look says that could not read a job: the command that can, as it is typed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from inspected import EVIDENCE, answer_of, inspection_of, render_inspection
from other_users import program

from unhang.cli import main
from unhang.core.verdict.answer import screen_of
from unhang_node.job import stacks

READY = "import os, sys, time; os.write(int(sys.argv[-1]), b'1'); time.sleep(600)"
NOBODY = 65534
# with the right to read all files, as root's own Python may be, and none to look into processes
AS_NOBODY = f"""
import ctypes, os, struct, sys
from unhang.cli import main
libc, read_search = ctypes.CDLL(None), 2
libc.prctl(8, 1, 0, 0, 0)
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
rights = struct.pack("=6I", *[1 << read_search] * 3, 0, 0, 0)
assert libc.capset(struct.pack("=Ii", 0x20080522, 0), rights) == 0
assert libc.prctl(47, 2, read_search, 0, 0) == 0
sys.exit(main(["inspect", *sys.argv[1:]]))
"""


def denied(name: str, as_root: bool = False, what: str = "stacks") -> dict:
    """A recorded look whose stacks, or what else, it was not allowed to read."""
    document = json.loads((EVIDENCE / f"{name}.json").read_bytes())
    document["collector"]["as_root"] = as_root
    why = "Permission denied; run it as root"
    for number in ("", "_2"):
        document["sections"]["stacks"].pop(f"processes{number}", None)
    document["sections"][what]["probe"] = {
        "status": "ok", "duration_ms": 1.0, "error": None,
        "unread": [{"field": "stack", "status": "denied", "reason": why}],
    }  # fmt: skip
    return inspection_of([document])


def test_where_stacks_were_denied_the_next_command_is_the_one_that_reads_them():
    found = denied("init-driver-and-proc")
    assert found["state"] == "unknown"
    command = screen_of(answer_of(found)).next_command
    assert re.fullmatch(r"sudo \$\(command -v unhang\) inspect --pid \d+", command)
    shown = render_inspection(found, width=100)
    assert "kernel.yama.ptrace_scope=0" in shown and len(shown.splitlines()) <= 12
    assert "sudo $(command -v unhang) inspect;" in render_inspection(found, verbose=True)


@pytest.mark.parametrize("what", ["stacks", "ras", "ranks"])
def test_root_is_not_sent_to_root(what):
    found = denied("init-driver-and-proc", as_root=True, what=what)
    assert found["state"] == "unknown" and [row for row in found["unread"] if row["what"] == what]
    shown = render_inspection(found, verbose=True)
    assert not re.search(r"sudo .*\binspect", shown)
    assert "sudo" not in screen_of(answer_of(found)).next_command
    assert "sudo" in screen_of(answer_of(denied("init-driver-and-proc", what=what))).next_command


def test_where_the_verdict_is_known_nobody_is_sent_to_root():
    assert "sudo" not in screen_of(answer_of(denied("healthy-RAS"))).next_command


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="it starts processes of other users")
def test_who_may_not_see_a_job_is_told_the_command_that_does():
    with program(1234, READY, RANK="0", WORLD_SIZE="2"):
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 2, done.stdout
    beside = shutil.which("unhang")
    path = "$(command -v unhang)" if beside else f"{Path(sys.executable).parent}/unhang"
    assert f"needs root; next: sudo {path} inspect" in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="it starts processes of other users")
def test_a_bundle_of_the_owner_says_what_root_adds_and_one_of_root_has_it(tmp_path, capsys):
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "0":
        pytest.skip("every user reads this machine's kernel log")
    tmp_path.chmod(0o777)
    logged = tmp_path / "gpu01-dmesg.txt"
    logged.write_text(
        f"[{float(Path('/proc/uptime').read_text().split()[0]) + 60:.6f}] NVRM: Xid"
        " (PCI:0000:3b:00): 79, pid=508, GPU has fallen off the bus.\n"
    )
    of_owner, of_root = tmp_path / "owner.tar.gz", tmp_path / "root.tar.gz"
    starts = {
        of_owner: ["-c", AS_NOBODY],
        of_root: ["-m", "unhang", "inspect", f"--kernel-log={logged}"],
    }
    with program(NOBODY, READY, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0") as rank:
        said = {
            bundle: subprocess.run(
                [sys.executable, *start, f"--pid={rank.pid}", f"--out={bundle}"],
                capture_output=True, text=True, timeout=120,
            ).stderr
            for bundle, start in starts.items()
        }  # fmt: skip
    command = re.search(r"lacks kernel_log: .* then (unhang diagnose \S+) ", said[of_owner])
    assert command and command[1] == f"unhang diagnose {of_owner}"
    assert "kernel_log" not in said[of_root]
    for given in ([of_owner, logged], [of_root]):
        assert main(["diagnose", *map(str, given)]) == 1
        assert "GPU has fallen off the bus" in capsys.readouterr().out
    assert main(["diagnose", str(of_owner)]) != 1


def test_root_runs_the_py_spy_of_the_environment_that_it_runs_and_no_other(tmp_path, monkeypatch):
    """So that sudo ~/.local/bin/unhang has stacks: that environment's code runs as root anyway."""
    own, other = tmp_path / "venv" / "bin", tmp_path / "bin"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "py-spy").write_text("#!/bin/sh\n")
        (folder / "py-spy").chmod(0o777)  # others may write it
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(stacks, "FOLDERS", "")
    monkeypatch.setenv("PATH", str(other))
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    monkeypatch.setattr(sys, "prefix", str(own.parent))
    assert stacks.find_spy(None, [])[0] == str(own / "py-spy")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # a system's Python: no environment
    assert stacks.find_spy(None, [])[0] is None
