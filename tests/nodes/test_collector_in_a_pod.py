"""The collector's pod without a cluster: the manifest's own command, mounts, user and capabilities
in namespaces of this machine, its log audited."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from container_logs import printed, with_prefix, written
from fakes.nvml import write_profile
from kubernetes_chart import CHART, pod, rendered

PROJECT = Path(__file__).resolve().parents[2]
FILES = CHART / "files"
RECORDING = PROJECT / "tests" / "fixtures" / "h200x8" / "nvml.json"
DRIVER = "run/nvidia/driver/usr/lib/x86_64-linux-gnu"
KERNEL_LOG = (
    "{} node kernel: [    0.000000] Linux version 6.8.0\n{} node kernel: [  100.000000] NVRM: Xid"
    " (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
)
# The node: this machine, with a driver as the GPU operator installs it, and a log of the kernel.
# All mounts end with the namespace.
NODE = """
set -eu
mount --make-rprivate /
mount -t tmpfs none "$BASE"
mkdir -p "$BASE/etc-upper" "$BASE/etc-work" "$BASE/log" "$BASE/run" "$BASE/image" "$BASE/work" "$BASE/results"
mkdir -p "$BASE/{driver}"
cp "$LIBRARY" "$BASE/{driver}/"
mount -t overlay none -o "lowerdir=/etc,upperdir=$BASE/etc-upper,workdir=$BASE/etc-work" /etc
cp "$PROFILE" /etc/unhang-fake-nvml.profile
cp "$LOG" "$BASE/log/kern.log"
mount --bind "$BASE/log" /var/log
mount --bind "$BASE/run" /run
"""
# The image: the programs of this machine, and folders for the mounts.
IMAGE = """
image=$BASE/image
mkdir -p "$image/opt/unhang" "$image/proc" "$image/dev" "$image/usr"
for name in bin sbin lib lib64; do ln -s "usr/$name" "$image/$name"; done
mount --rbind /usr "$image/usr"
mount --rbind /proc "$image/proc"
cp "$COLLECTOR" "$image/opt/unhang/unhang-collect.pyz"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of the one-file programs, as the image has it."""
    folder = tmp_path_factory.mktemp("programs")
    for script, name in (("build.py", "unhang-collect.pyz"), ("quick.py", "unhang-quick.pyz")):
        subprocess.run(
            [sys.executable, PROJECT / "tools" / "collector" / script, folder / name],
            check=True,
            capture_output=True,
        )
    return folder


def script_of(own, container):
    """The shell script that makes the mounts in the order of their depth, as runtimes do, and runs
    the command with the manifest's privileges."""
    sources = {
        one["name"]: one["hostPath"]["path"] if "hostPath" in one else f"$BASE/{one['name']}"
        for one in own["volumes"]
    } | {"scripts": str(FILES)}
    lines = [NODE.format(driver=DRIVER), IMAGE]
    for mount in sorted(container["volumeMounts"], key=lambda one: one["mountPath"].count("/")):
        target = f'"$image{mount["mountPath"]}"'
        lines.append(
            f'[ -d {target} ] || mkdir -p {target}; mount --rbind "{sources[mount["name"]]}"'
            f" {target}"
        )
        lines += [f"mount -o remount,bind,ro {target}"] if mount.get("readOnly") else []
    security = container["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"]
    kept = ",".join(["-all", *(f"+{one.lower()}" for one in security["capabilities"]["add"])])
    privileges = (
        f"--reuid={security['runAsUser']} --regid={security['runAsGroup']} --clear-groups"
        f" --bounding-set={kept} --inh-caps=-all --no-new-privs"
    )
    values = [
        f"{one['name']}={one.get('value', 'gpu001')}"
        for one in container["env"]
        if one["name"] != "EVERY_S"
    ]
    command = shlex.join(
        ["env", "-i", "PATH=/usr/sbin:/usr/bin", *values, "EVERY_S=0", *container["command"]]
    )
    lines += [f'chroot "$image" setpriv {privileges} {command}']
    lines += ['cmp "$BASE/work/node.json" "$BASE/results/gpu001.json"']
    lines += ['cp "$BASE/work/node.json" "$EXECUTED"']  # before the mounts end
    return "\n".join(lines)


@pytest.fixture(scope="module")
def log_of_the_pod(programs, fake_library, tmp_path_factory):
    """What `kubectl logs` would print."""
    folder = tmp_path_factory.mktemp("pod")
    (folder / "base").mkdir()
    (folder / "log").write_text(
        KERNEL_LOG.format(*[time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())] * 2)
    )
    own = pod(rendered(results={"emptyDir": {}}))
    (container,) = own["containers"]
    places = {
        "BASE": folder / "base",
        "LIBRARY": fake_library,
        "PROFILE": write_profile(str(RECORDING), str(folder / "profile")),
        "LOG": folder / "log",
        "COLLECTOR": programs / "unhang-collect.pyz",
        "EXECUTED": folder / "executed",
    }
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script_of(own, container)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # what `kubectl exec … cat /work/node.json` prints
    assert (folder / "executed").read_text() == done.stdout
    return done.stdout


def test_the_pod_reads_the_node_its_driver_and_its_kernel_log(log_of_the_pod):
    sections = json.loads(log_of_the_pod)["sections"]
    assert sections["node"]["hostname"] == os.uname().nodename
    assert sections["node"]["virtualization"]["is_container"] is False
    assert len(sections["gpus"]["devices"]) == 8
    assert [(one["kind"], one["code"]) for one in sections["faults"]["events"]] == [("xid", 79)]
    root = next(one for one in sections["limits"]["filesystems"] if one["path"] == "/")
    # the node's mount, not the pod's
    assert root["read_only"] is bool(os.statvfs("/").f_flag & os.ST_RDONLY)


def test_a_list_of_host_paths_would_keep_nothing_from_the_pod():
    """Its capabilities and the node's processes, which it needs for jobs of other users, reach the
    node's root without any mount of it."""
    (container,) = pod(rendered())["containers"]
    added = container["securityContext"]["capabilities"]["add"]

    def read(pid, *names):
        kept = ",".join(["-all", *(f"+{name.lower()}" for name in names)])
        command = [
            "setpriv",
            f"--bounding-set={kept}",
            "--inh-caps=-all",
            "--no-new-privs",
            "cat",
            f"/proc/{pid}/root/etc/hostname",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    with subprocess.Popen(["sleep", "600"]) as of_the_node:
        try:
            assert read(of_the_node.pid, *added) == Path("/etc/hostname").read_text()
            assert read(of_the_node.pid, *(name for name in added if name != "SYS_PTRACE")) == ""
        finally:
            of_the_node.kill()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not on this machine")
def test_the_page_lists_what_the_collector_opens(programs, tmp_path):
    """On this machine, started as collect.sh starts it. The page's other paths are those that a
    node may lack."""
    page = (PROJECT / "docs" / "kubernetes.md").read_text()
    table = page.partition("| read | for |\n| --- | --- |\n")[2].partition("\n\n")[0]
    listed = {
        path for row in table.splitlines() for path in re.findall(r"`(/[^`]*)`", row.split("|")[1])
    }
    trace = ["strace", "-f", "-qq", "-e", "trace=%file,statfs", "-o", str(tmp_path / "trace")]
    started = [
        "env",
        "-i",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH=/media",
        "/usr/bin/python3",
        "-I",
        "-S",
    ]
    command = [*trace, *started, str(programs / "unhang-collect.pyz")]
    subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True)
    calls = re.findall(
        r'^\d+ +\w+\((?:AT_FDCWD, )?"/([^"/]+)', (tmp_path / "trace").read_text(), re.MULTILINE
    )
    opened = {f"/{name}" for name in calls}
    mounted = {
        f"/{line.split()[1].split('/')[1]}"
        for line in Path("/proc/mounts").read_text().splitlines()
    }
    assert opened - mounted <= listed
    assert listed - opened <= {"/bin", "/lib", "/lib64", "/media"}


def test_the_log_is_audited_as_it_comes(log_of_the_pod, tmp_path):
    environment = {**os.environ, "UNHANG_RUNS": str(tmp_path / "runs")}
    log = printed(written(log_of_the_pod), tail=-1)
    assert log == log_of_the_pod
    logs = with_prefix([("unhang-collector-x7k2p", log)])
    command = [sys.executable, "-m", "unhang", "audit", "--via", "files", "-", "-o", "json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": f"{PROJECT}/tools:{PROJECT}/module_utils"},
        input=logs,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert ("xid-fatal", os.uname().nodename) in {
        (one["rule"], one["host"]) for one in found["findings"]
    }, done.stderr


def test_the_condition_is_the_verdict_of_the_same_document(log_of_the_pod, programs, tmp_path):
    (tmp_path / "node.json").write_text(log_of_the_pod)
    environment = {
        "PATH": os.environ["PATH"],
        "WORK": str(tmp_path),
        "VERDICT": str(tmp_path),
        "PROGRAMS": str(programs),
        "JUDGE_S": "no-number",
    }
    # ends after one round
    subprocess.run([FILES / "judge.sh"], env=environment, capture_output=True, check=False)
    done = subprocess.run(
        [FILES / "verdict.sh"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stdout.strip()) <= 80
    assert done.stdout.strip()
