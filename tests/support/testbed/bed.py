"""The test bed from the tests' side: namespaces, bridge, keys, nodes; and the removal of everything
that a killed session left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading

from inotify_room import room_for_nodes

from .node import Node
from .tree import ready_tree

KEEPER = pathlib.Path(__file__).with_name("keeper.py")
# The bed has a network namespace of its own, so this name and range cannot conflict with others on
# the machine.
BRIDGE = "testbed"
NETWORK = "10.213.7"
CONTROLLER = f"{NETWORK}.1"
BOOT_DEADLINE_S = 120
STOP_DEADLINE_S = 60
CGROUPS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
NAMESPACES = [
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--ipc",
    "--uts",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


class TestbedError(Exception):
    """The bed, or one of its nodes, could not be started; the text says why."""

    __test__ = False


class Namespaces:
    """Namespaces with sshd processes, by the process that keeps them, `keeper_pid`; `folder` has
    the key and the known hosts."""

    def inside(self, argv, folder="/"):
        """argv that runs a command in `folder`, in the network, mounts and processes of these
        namespaces, so that it ends with them at the latest."""
        entered = [
            "nsenter",
            "--target",
            str(self.keeper_pid),
            "--mount",
            "--net",
            "--pid",
            "--ipc",
            "--uts",
        ]
        return [*entered, "--", "env", f"--chdir={folder}", *argv]

    def run(self, argv, timeout_s=60, **options):
        """subprocess.run of a command inside, with its output as text."""
        options = {
            "capture_output": True,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "check": False,
            "errors": "replace",
            **options,
        }
        return subprocess.run(self.inside(argv), timeout=timeout_s, **options)

    @property
    def ssh_options(self):
        """Options for ssh(1): the own key and known hosts and nothing of the user's. Host keys are
        checked."""
        known = f"UserKnownHostsFile={self.folder}/known_hosts"
        pairs = [
            known,
            "GlobalKnownHostsFile=/dev/null",
            "StrictHostKeyChecking=yes",
            f"IdentityFile={self.folder}/id_ed25519",
            "IdentitiesOnly=yes",
        ]
        return ["-F", "none", *(word for pair in pairs for word in ("-o", pair))]


class Testbed(Namespaces):
    """A bridge with booted nodes on it.

    cache: folder for the shared tree and for records of running beds. names: one node each,
    addresses in that order from .11 on.
    prepare: called with each Node after its root is mounted and before it boots, to put files into
    it.
    layers: folders whose files all nodes have on top of the shared tree, read-only like it (large
    libraries, say).
    trees: {name: (suite, further packages)} of nodes that use another tree than the usual one.
    """

    __test__ = False  # pytest must not take it for a test class

    def __init__(self, cache, names, prepare=None, layers=(), trees=None):
        self.cache = pathlib.Path(cache)
        self.names = list(names)
        self.prepare = prepare
        self.layers = list(layers)
        self.trees = trees or {}
        self.nodes = {}
        self._answers = queue.Queue()
        self._early = {}

    def __enter__(self):
        clear_leftovers(self.cache)
        self._stack = contextlib.ExitStack()
        with self._stack:
            self._open()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _open(self):
        # of every bed, so that no audit finds the limit otherwise than the plan that follows it
        self._stack.enter_context(room_for_nodes(self.cache))
        trees = {name: ready_tree(self.cache, *self.trees.get(name, ())) for name in self.names}
        # Short, because it contains ssh's control sockets, and the path of a socket may have at
        # most 108 characters.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="unhang-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.cgroup = f"unhang-testbed-{os.getpid()}-{self.folder.name}"
        record = self.cache / "running" / self.folder.name
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(
            json.dumps(
                {
                    "pid": os.getpid(),
                    "born": birth_of(os.getpid()),
                    "folder": str(self.folder),
                    "cgroup": self.cgroup,
                }
            )
        )
        self._stack.callback(forget, record)
        self._start_keeper()
        make_key(self.folder / "id_ed25519")
        for number, name in enumerate(self.names):
            self.nodes[name] = Node(
                self, name, f"{NETWORK}.{11 + number}", [*self.layers, trees[name]]
            )
        for node in self.nodes.values():
            node.mount()
            self._install_keys(node)
            if self.prepare:
                self.prepare(node)
        self.write_known_hosts()
        for node in self.nodes.values():
            node.order_boot()
        for node in self.nodes.values():
            node.await_boot()

    def _start_keeper(self):
        state = self.folder / "state"
        state.mkdir()
        setup = self.folder / "setup.json"
        setup.write_text(
            json.dumps({"state": str(state), "bridge": BRIDGE, "controller": f"{CONTROLLER}/24"})
        )
        with open(self.folder / "keeper.log", "w", encoding="utf-8") as errors:
            # A session of its own: Ctrl-C must reach only pytest, which then closes the keeper's
            # input.
            self._process = subprocess.Popen(
                [*NAMESPACES, sys.executable, "-I", str(KEEPER), str(setup)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        self._stack.callback(self._stop_keeper)
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self.await_answer("ready")
        with open(
            f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii"
        ) as source:
            self.keeper_pid = int(source.read().split()[0])
        # the mount is visible only from inside
        self.state = pathlib.Path(f"/proc/{self.keeper_pid}/root{state}")
        self.inner_state = str(state)

    def _stop_keeper(self):
        self._process.stdin.close()
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            # unshare --kill-child kills the keeper too, and its end kills everything else
            self._process.kill()
            self._process.wait()

    def _listen(self, stream):
        for line in stream:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def order(self, **command):
        """Send one command to the keeper (described there)."""
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def await_answer(self, key, node=None):
        """The keeper's next answer for `node` that has `key` (or "error"). Raises TestbedError."""
        slot = (node, key)
        while slot not in self._early:
            try:
                answer = self._answers.get(timeout=BOOT_DEADLINE_S + 30)
            except queue.Empty:
                raise TestbedError(
                    f"the test bed's keeper gave no answer ({key}, {node})"
                ) from None
            if answer is None:
                self._answers.put(None)
                raise TestbedError(
                    "the test bed ended by itself: " + tail(self.folder / "keeper.log")
                )
            kind = (
                "leader" if "error" in answer else next(name for name in answer if name != "node")
            )
            self._early[(answer.get("node"), kind)] = answer
        return self._early.pop(slot)

    def write_known_hosts(self):
        """known_hosts of all nodes, from the keys that were put into them."""
        lines = [f"{node.address} {node.host_key}\n" for node in self.nodes.values()]
        (self.folder / "known_hosts").write_text("".join(lines))

    def renew(self, node):
        """Restores the node's files to their state before its first boot, and boots it."""
        node.power_off()
        inner = f"{self.inner_state}/{node.name}"
        node.unmount()
        self.run(
            ["rm", "-rf", *(f"{inner}/{part}" for part in ("upper", "work", "root", "console"))],
            check=True,
        )
        node.mount()
        self._install_keys(node)
        if self.prepare:
            self.prepare(node)
        self.write_known_hosts()
        node.boot()

    def _install_keys(self, node):
        """Writes a host key of the node's own, and the bed's key for root and for auditor."""
        private = self.folder / f"{node.name}.host_key"
        if not private.exists():
            make_key(private)
        node.host_key = private.with_suffix(".host_key.pub").read_text().rsplit(" ", 1)[0]
        node.write("/etc/ssh/ssh_host_ed25519_key", private.read_bytes(), mode=0o600)
        public = (self.folder / "id_ed25519.pub").read_text()
        for home, owner in (("/root", 0), ("/home/auditor", 1000)):
            node.write(f"{home}/.ssh/authorized_keys", public, mode=0o600, owner=owner)


def make_key(path):
    """A new ed25519 key pair without a passphrase."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def tail(path, lines=5):
    """The last lines of a log, as one line."""
    with contextlib.suppress(OSError):
        return " | ".join(
            path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-lines:]
        )
    return ""


def birth_of(pid):
    """When a process started, in the kernel's ticks since boot, or None: it distinguishes two
    processes that had the same pid."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def forget(record):
    """Remove a bed's control groups, which outlive their processes, and then its record."""
    with contextlib.suppress(OSError, ValueError):
        # A group can be removed only when its last process is gone, which takes a moment after a
        # kill: if it fails here, the next start finds the record.
        if remove_cgroups(json.loads(record.read_text())["cgroup"]):
            record.unlink(missing_ok=True)


def remove_cgroups(name):
    """Remove a tree of empty control groups by its name. False when one still has a process."""
    places = [os.path.join(mount, name) for mount in CGROUPS]
    for place in places:
        for folder, _, _ in os.walk(place, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not any(os.path.exists(place) for place in places)


def clear_leftovers(cache):
    """Remove what the beds of a killed session left. Their processes, mounts and bridge ended by
    themselves; folder and control groups did not."""
    for record in sorted((cache / "running").glob("*")):
        try:
            bed = json.loads(record.read_text())
        except (OSError, ValueError):
            continue  # another session writes or removes it at this moment
        if birth_of(bed["pid"]) == bed["born"]:
            continue
        shutil.rmtree(bed["folder"], ignore_errors=True)
        forget(record)
