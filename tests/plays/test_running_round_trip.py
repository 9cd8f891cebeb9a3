"""Rollback of changes to a running system: the real modules as on a node, in namespaces of their
own over folders that stand for this machine's.

/dev/shm, a process's limits and the network's sysctls are the kernel's own; systemctl is a
stand-in. tests/roles does the same on booted nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fakes.role_play import PROJECT, answer_of

UNSHARE = [
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--mount-proc",
    "--propagation",
    "private",
    "--",
]
SYSTEMCTL = """#!/bin/sh
# Keeps what it is told in files, in the order in which it is told.
echo "$*" >> /var/lib/called
state=/var/lib/state
case "$*" in
  "is-enabled "*) cat $state-enabled; grep -q ^enabled $state-enabled ;;
  "is-active "*) cat $state-active; grep -q ^active $state-active ;;
  "--no-reload enable "*) echo enabled > $state-enabled ;;
  "--no-reload disable "*) echo disabled > $state-enabled ;;
  "start "*) echo active > $state-active ;;
  "stop "*) echo inactive > $state-active ;;
esac
"""
PROGRAM = """
import json, os, resource, shutil, subprocess, sys
from pathlib import Path
for folder in ("/var/lib", "/etc/sysctl.d", "/etc/security", "/etc/systemd", "/usr/local/sbin", "/run", "/dev/shm"):
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", folder], check=True)
from fakes.ansible_module import run_module
from fakes.node_tree import plant
plant("", {"/etc/systemd/system/%s.service" % name: "[Service]\\nExecStart=/usr/local/sbin/%s\\n" % name for name in ("slurmd", "nvidia-persistenced")})
plant("", {"/usr/local/sbin/systemctl": SYSTEMCTL, "/var/lib/state-enabled": "disabled\\n", "/var/lib/state-active": "failed\\n", "/run/systemd/system/": ""})
os.chmod("/usr/local/sbin/systemctl", 0o755)
shutil.copy(shutil.which("sleep"), "/usr/local/sbin/slurmd")
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
def low():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
slurmd = subprocess.Popen(["/usr/local/sbin/slurmd", "1000000"], preexec_fn=low)
plant("", {"/run/slurmd.pid": "%d\\n" % slurmd.pid})
RMEM = Path("/proc/sys/net/ipv4/tcp_rmem")
def values():
    shm = os.statvfs("/dev/shm")
    limits = resource.prlimit(slurmd.pid, resource.RLIMIT_NOFILE)
    service = [Path("/var/lib/state-" + name).read_text().strip() for name in ("enabled", "active")]
    return {"rmem": RMEM.read_text().split(), "shm": shm.f_blocks * shm.f_frsize, "limits": list(limits), "service": service}
def files():
    paths = [path for folder in ("/etc/sysctl.d", "/etc/security", "/etc/systemd") for path in Path(folder).rglob("*")]
    return sorted((str(path), path.read_text() if path.is_file() else None) for path in paths)
CALLS = [("host_setting", {"setting": "kernel_parameter", "name": "net.ipv4.tcp_rmem", "value": "4096 262144 8388608"}), ("host_setting", {"setting": "shm_size", "value": 96 << 20}),
         ("host_setting", {"setting": "nofile", "value": min(most, 65536)}), ("service_running", {"name": "nvidia-persistenced.service"})]
def act():
    state_id = run_module("saved_state", state="begun", role="host_tuning", run="r")["id"]
    answers = [run_module(name, state_id=state_id, **options) for name, options in CALLS]
    run_module("saved_state", state="finished", id=state_id)
    return answers
observed = {"before": values(), "files": files()}
observed["answers"], observed["applied"] = act(), values()
observed["second"] = [run_module(name, **options)["changed"] for name, options in CALLS]
MEDDLE
observed["preview"], observed["previewed"] = run_module("state_restore", id="latest", check=True), values()
observed["restored"], observed["after"], observed["files_after"] = run_module("state_restore", id="latest"), values(), files()
observed["again"] = run_module("state_restore", id="latest")
observed["called"] = Path("/var/lib/called").read_text().splitlines()
slurmd.kill()
print(json.dumps(observed))
"""
KINDS = ["limit", "service_at_boot", "service_now", "shm_size", "sysctl"]


def shown(meddle=""):
    """The output of the program. meddle: a change by another user between the change and the
    rollback."""
    program = PROGRAM.replace("SYSTEMCTL", repr(SYSTEMCTL)).replace("MEDDLE", meddle)
    known = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(PROJECT / "tests"), str(PROJECT / "module_utils"), str(PROJECT / "tools")]
        ),
    }
    done = answer_of([*UNSHARE, sys.executable, "-c", program], known)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    ).returncode
    != 0,
    reason="namespaces of its own take root",
)


def test_values_and_files_come_back_as_they_were_and_as_was_foretold():
    found = shown()
    assert all(
        answer["changed"] and not answer["needs_manual_action"] for answer in found["answers"]
    )
    assert not any(found["second"])
    assert all(found["applied"][name] != before for name, before in found["before"].items()), (
        "the test would not see that one of them stays"
    )
    assert found["previewed"] == found["applied"]
    assert found["restored"] == found["preview"]
    assert sorted(row["kind"] for row in found["restored"]["running"]) == KINDS
    assert found["restored"]["needs_manual_action"] == []
    # the rollback does not restore the failed state of a service
    assert found["after"] == {**found["before"], "service": ["disabled", "inactive"]}
    assert found["files_after"] == found["files"]
    assert not found["again"]["changed"]
    assert not any("daemon-reload" in line for line in found["called"])


def test_what_somebody_changed_since_and_what_does_not_fit_stays_and_is_reported():
    found = shown(
        'RMEM.write_text("4096 99999 999999")\n'
        'resource.prlimit(slurmd.pid, resource.RLIMIT_NOFILE, (300, most))\n'
        'Path("/var/lib/state-active").write_text("inactive\\n")\n'
        'Path("/dev/shm/segment").write_bytes(bytes(70 << 20))\n'
    )  # fmt: skip
    assert found["restored"] == found["preview"]
    assert [row["kind"] for row in found["restored"]["running"]] == ["service_at_boot"]
    named = [line.split(":")[0] for line in found["restored"]["needs_manual_action"]]
    assert named == [
        "limit nofile of slurmd.service",
        "shm size /dev/shm",
        "sysctl net.ipv4.tcp_rmem",
    ]
    assert (found["after"]["rmem"], found["after"]["limits"][0], found["after"]["shm"]) == (
        ["4096", "99999", "999999"],
        300,
        96 << 20,
    )
    assert found["files_after"] == found["files"]
    assert not found["again"]["changed"]
