"""One node of a test bed: its files, its power switch, its shell."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import uuid

NSPAWN = [
    "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--settings=no",
    "--console=pipe", "--link-journal=no",
    "--resolv-conf=off", "--timezone=off",
]  # fmt: skip
NETWORK_UNIT = "[Match]\nName=host0\n[Network]\nAddress={address}/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
BOOT_DEADLINE_S = 120


class Node:
    """A booted Debian over an overlay of its own. `address` is what the inventory should name."""

    def __init__(self, bed, name, address, layers):
        self.bed, self.name, self.address, self.layers = bed, name, address, layers
        self.host_key = None
        # the node's first process, as a pid in the bed; None while the node is off
        self.leader = None

    @property
    def _folder(self):
        return self.bed.state / self.name

    @property
    def console(self):
        """The output of the node's console."""
        with contextlib.suppress(OSError):
            return (self._folder / "console").read_text(encoding="utf-8", errors="replace")
        return ""

    @property
    def root(self):
        """The node's "/", for reading and writing from outside; with its own /run, /tmp, /proc and
        /sys while it is on."""
        if self.leader:
            return pathlib.Path(f"/proc/{self.bed.keeper_pid}/root/proc/{self.leader}/root")
        return self._folder / "root"

    @property
    def changes(self):
        """The folder that holds every file in which the node differs from the shared tree."""
        return self._folder / "upper"

    def mount(self):
        """Creates an empty overlay over the shared tree, with the node's name, address and machine
        id in it."""
        for part in ("upper", "work", "root"):
            (self._folder / part).mkdir(parents=True)
        inner = f"{self.bed.inner_state}/{self.name}"
        options = f"lowerdir={':'.join(str(layer) for layer in self.layers)},upperdir={inner}/upper,workdir={inner}/work"
        self._mounting("mount", "-t", "overlay", "-o", options, "overlay", f"{inner}/root")
        self.write("/etc/hostname", self.name + "\n")
        self.write(
            "/etc/machine-id", uuid.uuid5(uuid.NAMESPACE_DNS, self.name).hex + "\n", mode=0o444
        )
        self.write(
            "/etc/systemd/network/10-testbed.network", NETWORK_UNIT.format(address=self.address)
        )

    def unmount(self):
        """Removes the overlay; the node is off."""
        self._mounting("umount", f"{self.bed.inner_state}/{self.name}/root")

    def _mounting(self, *argv):
        done = self.bed.run(argv)
        if done.returncode:
            raise OSError(f"{shlex.join(argv)}: {done.stderr.strip()}")

    def write(self, path, content, mode=0o644, owner=0):
        """Write a file into the node, with the folders that it needs."""
        place = self.place(path)
        made = [folder for folder in place.parents if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)
        for item in (place, *made):
            os.chown(item, owner, owner)

    def place(self, path):
        """Path of a node's file on this machine. Raises ValueError for a path through a link that
        would lead out of the node into this machine."""
        place = self.root / path.lstrip("/")
        inside = [folder for folder in (place, *place.parents) if self.root in folder.parents]
        for link in inside:
            if link.is_symlink() and os.readlink(link).startswith("/"):
                raise ValueError(
                    f"{path}: {link.name} is a link to {os.readlink(link)}; name that place itself"
                )
        return place

    def order_boot(self):
        """Press the power button; do not wait."""
        inner = f"{self.bed.inner_state}/{self.name}"
        argv = [
            *NSPAWN,
            f"--directory={inner}/root",
            f"--machine={self.name}",
            "--network-bridge=testbed",
        ]
        cgroup = f"/sys/fs/cgroup/{self.bed.cgroup}/{self.name}"
        self.bed.order(
            do="boot",
            node=self.name,
            argv=argv,
            console=f"{inner}/console",
            cgroup=cgroup,
            address=self.address,
            deadline_s=BOOT_DEADLINE_S,
        )

    def await_boot(self):
        """Wait for the node's sshd. Raises TestbedError with the console's last lines."""
        answer = self.bed.await_answer("leader", self.name)
        if "error" in answer:
            from .bed import TestbedError

            raise TestbedError(
                f"node {self.name}: {answer['error']}; console: "
                + " | ".join(self.console.strip().splitlines()[-8:])
            )
        self.leader = answer["leader"]

    def boot(self):
        """Switch it on and wait for its sshd."""
        self.order_boot()
        self.await_boot()

    def order_reboot(self):
        """Reboot it from inside and wait until its sshd is back."""
        self.bed.order(do="expect", node=self.name, deadline_s=BOOT_DEADLINE_S)
        self.ssh("systemctl reboot")  # the connection may close before the command ends
        self.await_boot()

    def find_leader(self):
        """Find the node's first process again, which is necessary after a reboot that the test did
        not start."""
        self.bed.order(do="leader", node=self.name)
        self.leader = self.bed.await_answer("leader", self.name)["leader"]
        return self.leader

    def power_off(self):
        """Cut the power."""
        self.bed.order(do="kill", node=self.name)
        self.bed.await_answer("killed", self.name)
        self.leader = None

    def ssh(self, command, user="root", timeout_s=60):
        """subprocess.CompletedProcess of a shell command on the node."""
        argv = [
            "ssh",
            *self.bed.ssh_options,
            "-o",
            "ConnectTimeout=20",
            f"{user}@{self.address}",
            command,
        ]
        return self.bed.run(argv, timeout_s=timeout_s)

    def entering(self, argv):
        """argv that runs a command in the node without ssh, for the bed's run or inside."""
        return [
            "nsenter",
            "--target",
            str(self.leader),
            "--mount",
            "--net",
            "--pid",
            "--ipc",
            "--uts",
            "--root",
            "--wd=/",
            "--",
            *argv,
        ]

    def shell(self, command, timeout_s=60):
        """Standard output of a shell command that must succeed, run as root in the node without
        ssh."""
        argv = self.entering(["/bin/sh", "-c", command])
        done = self.bed.run(
            argv,
            timeout_s=timeout_s,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    @contextlib.contextmanager
    def planted(self, path, content, mode=0o644, owner=0):
        """Gives a file this content as long as the block lasts; then restores the old content, or
        removes the file."""
        place = self.place(path)
        before = (place.read_bytes(), place.stat()) if place.exists() else None
        new_folders = [folder for folder in place.parents if not folder.exists()]
        self.write(path, content, mode, owner)
        try:
            yield place
        finally:
            place = self.place(path)  # resolved again, because the node may have rebooted
            if before:
                place.write_bytes(before[0])
                place.chmod(before[1].st_mode & 0o7777)
            else:
                place.unlink(missing_ok=True)
            for folder in new_folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
