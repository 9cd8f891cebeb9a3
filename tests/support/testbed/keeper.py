"""The first process of a test bed's namespaces: starts nodes, restarts those that reboot, and ends
with the process that started it.

Run by bed.py under unshare(1). Standard input carries one JSON command per line, standard output
one JSON answer per line:

    {"do": "boot", "node": name, "argv": [...], "console": path, "cgroup": path, "address": ip,
    "deadline_s": n}
                                    answers {"node", "leader"} once the node's sshd greets, or
                                    {"node", "error"}
    {"do": "expect", "node": name, "deadline_s": n}
                                    answers as "boot" does, once the node has restarted by itself
    {"do": "kill", "node": name}    answers {"node", "killed"} when no process of the node is left
    {"do": "leader", "node": name}  answers {"node", "leader"}: the node's first process, in this
    namespace's numbers

The end of standard input means that the tests have ended, in whatever way. This process then ends
too. It is the first one of its process namespace, so the kernel kills all others in it; with the
last of them the mounts and the bridge disappear.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

REBOOT = 133  # systemd-nspawn's exit code when the node asked for a reboot
TICK_S = 0.05
SSH_LISTENS = ":0016 "  # port 22 as /proc/net/tcp writes it
LISTEN_STATE = "0A"


class Booted:
    """One node: its command, the process that runs it, and the deadline of a test that waits for
    its sshd."""

    def __init__(self, order):
        self.order = order
        self.pid = None
        self.before = None  # the nspawn process whose end is awaited during a reboot
        self.wait_until = time.monotonic() + order["deadline_s"]


def main():
    """Prepare the namespaces, then execute commands until the end of standard input."""
    with open(sys.argv[1], encoding="utf-8") as source:
        prepare(json.load(source))
    say({"ready": os.getpid()})
    nodes = {}
    pending = b""
    while True:
        waiting = any(node.wait_until for node in nodes.values())
        readable, _, _ = select.select([0], [], [], TICK_S if waiting else 1)
        if readable:
            piece = os.read(0, 65536)
            if not piece:
                return
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                obey(json.loads(line), nodes)
        reap(nodes)
        for name, node in nodes.items():
            answer_when_up(name, node)


def prepare(setup):
    """Creates mounts and the bridge. setup: {"state", "bridge", "controller"}; an error ends the
    process with its text on stderr."""
    call("mount", "-t", "tmpfs", "-o", "mode=755", "unhang-testbed", setup["state"])
    # nspawn must lock and propagate below /run; where /run is on the disk it refuses ("Failed to
    # mount ... propagate").
    os.makedirs("/run/systemd/nspawn", exist_ok=True)
    call("mount", "-t", "tmpfs", "unhang-testbed", "/run/systemd/nspawn")
    # Some machines mount only the old hierarchies (cgroups v1), which newer systemd refuses. The
    # unified one is always in the kernel, needs no controllers to boot a node, and this mount is
    # invisible outside.
    subprocess.run(["umount", "-R", "-l", "/sys/fs/cgroup"], check=False, stderr=subprocess.DEVNULL)
    call("mount", "-t", "cgroup2", "unhang-testbed", "/sys/fs/cgroup")
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", setup["bridge"], "type", "bridge")
    call("ip", "address", "add", setup["controller"], "dev", setup["bridge"])
    call("ip", "link", "set", setup["bridge"], "up")


def call(*argv):
    """Run a command that must succeed."""
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def say(answer):
    """One answer to the tests."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def obey(order, nodes):
    """Carry out one command."""
    name = order["node"]
    if order["do"] == "boot":
        nodes[name] = Booted(order)
        start(nodes[name])
    elif order["do"] == "expect":
        nodes[name].before = nodes[name].pid
        nodes[name].wait_until = time.monotonic() + order["deadline_s"]
    elif order["do"] == "kill":
        kill(nodes.pop(name, None))
        say({"node": name, "killed": True})
    elif order["do"] == "leader":
        node = nodes.get(name)
        say({"node": name, "leader": leader_of(node.pid) if node and node.pid else None})


def start(node):
    """Start systemd-nspawn in a control group of the node's own (two in one would share the names
    payload and supervisor)."""
    os.makedirs(node.order["cgroup"], exist_ok=True)
    console = os.open(node.order["console"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pid = os.fork()
    if pid == 0:
        try:
            with open(node.order["cgroup"] + "/cgroup.procs", "w", encoding="ascii") as group:
                group.write("0")
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(console, 1)
            os.dup2(console, 2)
            os.execvp(node.order["argv"][0], node.order["argv"])
        finally:
            os._exit(127)
    os.close(console)
    node.pid = pid


def kill(node):
    """Cut the power: nspawn is killed, and the kernel ends the node's process namespace. Returns
    when none of its processes runs."""
    if node is None or node.pid is None:
        return
    leader = leader_of(node.pid)
    for pid in filter(None, (leader, node.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(node.pid, 0)
    until = time.monotonic() + 30
    while leader and running(leader) and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(leader, os.WNOHANG)
        time.sleep(TICK_S)


def running(pid):
    """True while the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            return source.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def reap(nodes):
    """Reap every ended child; a node that asked for a reboot is started again."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for name, node in nodes.items():
            if node.pid != pid:
                continue
            node.pid = None
            code = os.waitstatus_to_exitcode(status)
            if code == REBOOT:
                start(node)
            elif node.wait_until:
                node.wait_until = None
                say({"node": name, "error": f"systemd-nspawn ended with code {code}"})


def answer_when_up(name, node):
    """Report to a waiting test that the node's sshd listens, or that its deadline has passed."""
    if not node.wait_until:
        return
    leader = leader_of(node.pid) if node.pid != node.before else None
    if leader and sshd_listens(leader) and sshd_greets(node.order["address"]):
        node.wait_until = None
        say({"node": name, "leader": leader})
    elif time.monotonic() > node.wait_until:
        node.wait_until = None
        say({"node": name, "error": "no sshd after {} s".format(node.order["deadline_s"])})


def leader_of(pid):
    """The first process of the node that nspawn process `pid` runs, or None while there is none."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as source:
            children = [int(child) for child in source.read().split()]
        for child in children:
            with open(f"/proc/{child}/status", encoding="utf-8") as source:
                numbers = next(line.split()[1:] for line in source if line.startswith("NSpid:"))
            if len(numbers) > 1 and numbers[-1] == "1":
                return child
    except (OSError, StopIteration):
        pass
    return None


def sshd_listens(leader):
    """True when something listens on port 22 in the node's own network."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{leader}/net/{table}", encoding="ascii") as source:
                rows = [line.split() for line in source.readlines()[1:]]
        except OSError:
            continue
        if any((row[1] + " ").endswith(SSH_LISTENS) and row[3] == LISTEN_STATE for row in rows):
            return True
    return False


def sshd_greets(address):
    """True when the node's sshd can be reached; it listens a moment before its network is up."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


if __name__ == "__main__":
    main()
