"""`unhang smoke` over the test bed's nodes by ssh: starts it, and checks that it leaves nothing
behind."""

from __future__ import annotations

import json
import subprocess
import sys

import audits
import torch_in_nodes
from four_nodes import NAMES
from node_launchers import ssh_config

DEADLINE_S = 280
SMALL = ("--max-size", "64K", "--sizes", "16K", "--step-timeout", "60")


class Smoke:
    """One finished `unhang smoke`."""

    def __init__(self, done):
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    @property
    def result(self):
        return json.loads(self.stdout)

    def suspects(self, *names):
        return [tuple(row[name] for name in names) for row in self.result["suspects"]]


def smoke_argv(fleet, *arguments, without=(), config=None):
    """argv of `unhang smoke --hosts`."""
    config = config or ssh_config(fleet.bed, fleet.work, without)
    common = [
        "--hosts",
        "gpu[001-004]",
        "--backend",
        "gloo",
        "--nproc",
        "1",
        "--python",
        str(torch_in_nodes.PYTHON),
        "--format",
        "json",
        "--ssh-config",
        str(config),
    ]
    return [sys.executable, "-P", "-m", "unhang", "smoke", *common, *map(str, arguments)]


def smoke(fleet, *arguments, **options):
    """Run it among the nodes to its end."""
    command = fleet.bed.inside(smoke_argv(fleet, *arguments, **options), audits.PROJECT)
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    done = subprocess.run(
        command,
        env=audits.environment_of(fleet.bed, fleet.work),
        timeout=DEADLINE_S,
        check=False,
        **captured,
    )
    sys.stdout.write(f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}\n")
    return Smoke(done)


def left_over(fleet, name):
    """Payload processes on a node."""
    return [
        line
        for line in fleet.shell(name, "ps -eo pid,stat,args").splitlines()
        if "unhang_smoke.pyz" in line and " Z" not in line
    ]


def nothing_left(fleet, names=NAMES):
    """Waits until no node runs any of its processes, and checks that /tmp has none of its files."""
    audits.wait_until(
        lambda: not any(left_over(fleet, name) for name in names),
        "the payload's processes are gone",
    )
    for name in names:
        assert "unhang-smoke-" not in fleet.shell(name, "ls /tmp")
