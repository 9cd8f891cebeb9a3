"""Many real sshd processes on loopback addresses of a network of their own, without a boot: the
tree of the test nodes, one file system for all of them.

    with Sshds(cache, 100) as here:
        subprocess.run(here.inside(["ssh", *here.ssh_options, here.addresses[0], "uname -n"]))

What a network can do to a connection is made by the kernel: `refuse` (nothing listens), `swallow`
(packets are dropped), `mute` (accepts, says nothing).
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

from testbed.bed import NAMESPACES, Namespaces, make_key
from testbed.tree import ready_tree

# Ends with its input, and everything in its namespaces with it.
KEEPER = r"""
set -e
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
mount --rbind /dev "$1/root/dev"
mount -t proc proc "$1/root/proc"
mkdir -p "$1/root/run/sshd" "$1/root/root/.ssh"
cp "$3/id_ed25519.pub" "$1/root/root/.ssh/authorized_keys"
cp "$3/host_key" "$1/root/etc/ssh/ssh_host_ed25519_key"
chmod 700 "$1/root/root/.ssh"
chmod 600 "$1/root/root/.ssh/authorized_keys" "$1/root/etc/ssh/ssh_host_ed25519_key"
echo ready
cat >/dev/null
"""
SETTINGS = {
    "AcceptEnv": "none",
    "AllowTcpForwarding": "yes",
    "HostKey": "/etc/ssh/ssh_host_ed25519_key",
    "MaxStartups": "10000",
    "PermitRootLogin": "yes",
    "PrintMotd": "no",
    "UseDNS": "no",
    "UsePAM": "no",
}
# sshd goes into the background before it listens; its pid file stands while it does.
UNTIL = "for one in {}; do until [ {} /run/sshd/$one ]; do sleep 0.05; done; done\n"
MUTE = (
    "import socket, sys; held = [socket.create_server((one, 22), backlog=4096) for one in"
    " sys.argv[1:]]; print(flush=True); sys.stdin.read()"
)


class Sshds(Namespaces):
    """addresses: of the sshd processes, one each; port 22."""

    def __init__(self, cache, count, first="127.1.0.1"):
        self.cache, self.addresses = pathlib.Path(cache), addresses(first, count)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _open(self, stack):
        tree = ready_tree(self.cache)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="unhang-sshd-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        make_key(self.folder / "id_ed25519")
        make_key(self.folder / "host_key")
        (self.folder / "state").mkdir()
        self.host_key = (self.folder / "host_key.pub").read_text().rsplit(" ", 1)[0]
        (self.folder / "known_hosts").write_text(f"* {self.host_key}\n")
        command = [
            *NAMESPACES,
            "sh",
            "-c",
            KEEPER,
            "sh",
            str(self.folder / "state"),
            str(tree),
            str(self.folder),
        ]
        keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        stack.callback(self._end, keeper)
        if keeper.stdout.readline() != b"ready\n":
            raise OSError("the namespaces of the sshd processes could not be made")
        self.keeper_pid = int(
            pathlib.Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()[0]
        )
        self.root = pathlib.Path(f"/proc/{self.keeper_pid}/root{self.folder}/state/root")
        self.start(self.addresses)

    @staticmethod
    def _end(keeper):
        keeper.stdin.close()
        try:
            keeper.wait(60)
        except subprocess.TimeoutExpired:
            keeper.kill()  # unshare --kill-child ends the rest
            keeper.wait()

    def start(self, listening, **settings):
        """One sshd process for each address, which listens. settings: of sshd_config, besides
        SETTINGS or instead of them."""
        options = " ".join(f"-o{name}={value}" for name, value in {**SETTINGS, **settings}.items())
        lines = "".join(
            f"/usr/sbin/sshd -f /dev/null {options} -oListenAddress={one}"
            f" -oPidFile=/run/sshd/{one}\n"
            for one in listening
        )
        lines += UNTIL.format(" ".join(listening), "-s")
        self.run(
            ["chroot", f"{self.folder}/state/root", "/bin/sh", "-e"],
            input=lines,
            stdin=None,
            check=True,
            timeout_s=600,
        )

    @contextlib.contextmanager
    def listening(self, *listening, **settings):
        """sshd at these addresses too, as long as the block lasts."""
        self.start(listening, **settings)
        try:
            yield
        finally:
            names = " ".join(listening)
            ended = f"cd /run/sshd && kill $(cat {names})\n{UNTIL.format(names, '! -e')}"
            self.run(["chroot", f"{self.folder}/state/root", "/bin/sh", "-ec", ended], check=True)

    def swallow(self, network):
        """Packets to this network (10.9.0.0/24) are dropped without an answer."""
        commands = [
            "link add void0 arp off type veth peer name void1",
            "link set void0 up",
            "link set void1 up",
            f"route add {network} dev void0",
        ]
        for command in (*commands, f"address add {network.partition('/')[0]} dev void0"):
            self.run(["ip", *command.split()], check=True)

    @contextlib.contextmanager
    def mute(self, listening):
        """Something at these addresses accepts connections and says nothing."""
        with subprocess.Popen(
            self.inside([sys.executable, "-c", MUTE, *listening]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            process.stdout.readline()
            yield  # it ends with its input, which leaving this block closes


def addresses(first, count):
    """`count` addresses from the first one on, none of which ends with 0 or 255."""
    a, b, c, d = map(int, first.split("."))
    found, number = [], (b << 16) + (c << 8) + d
    while len(found) < count:
        if number % 256 not in (0, 255):
            found.append(f"{a}.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        number += 1
    return found
