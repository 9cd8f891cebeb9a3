"""A machine under emulation: qemu with a disk of its own, ssh on a port of this machine's loopback,
its console in a file.

    with Machine(image, folder) as machine:
        machine.wait_for_ssh()
        machine.shell("uname -r")

It ends exactly the qemu that it started, also when the test fails or pytest is killed.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# a boot takes one minute, and half an hour where other tiers run on the same two cores
BOOT_DEADLINE_S = 2400
COMMAND_DEADLINE_S = 600
PAUSE_S = 1.0
# everything that a test writes stays in memory; with less, Debian's 6.1.192 was seen to crash
# (ext4_mb_load_buddy_gfp)
MEMORY_MIB = 2048
# measured: a third less time for the same work than with two processors, or with five levels of
# pages
PROCESSOR, PROCESSORS = "max,la57=off", "1"
SECOND_DISK_MIB = 300


class MachineError(Exception):
    """The machine did not do what it was asked to do; the text ends with the last lines of its
    console."""


@dataclass(frozen=True)
class Frozen:
    """A machine's disk and memory at one moment."""

    disk: Path
    memory: Path


class Machine:
    """One run of one disk. start: an Image's disk, or a Frozen machine to continue from; extra:
    further arguments for qemu."""

    def __init__(self, image, folder, start=None, extra=()):
        self.image, self.folder, self.start, self.extra = image, folder, start, tuple(extra)
        self.disk = folder / "disk.qcow2"
        self.second_disk = folder / "second.qcow2"  # empty, /dev/vdb
        self.port = None
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "known_hosts").write_text("")
        backing = self.start.disk if self.start else self.image.disk
        _run(
            [
                "qemu-img",
                "create",
                "-q",
                "-f",
                "qcow2",
                "-F",
                "qcow2",
                "-b",
                str(backing),
                str(self.disk),
            ]
        )
        _run(
            [
                "qemu-img",
                "create",
                "-q",
                "-f",
                "qcow2",
                str(self.second_disk),
                f"{SECOND_DISK_MIB}M",
            ]
        )
        self.switch_on(["-incoming", f"exec:cat '{self.start.memory}'"] if self.start else [])
        if self.start:
            self._until(
                lambda: self.qmp("query-status")["status"] != "inmigrate",
                "the machine goes on",
                COMMAND_DEADLINE_S,
            )
            self.qmp("cont")
            self.shell(f"date -s @{int(time.time())} >/dev/null")
        return self

    def __exit__(self, *_exception):
        self.power_off()

    def switch_on(self, more=()):
        """Starts qemu on this machine's disk."""
        argv = [
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            PROCESSOR,
            "-smp",
            PROCESSORS,
            "-m",
            str(MEMORY_MIB),
        ]
        argv += [
            "-nodefaults",
            "-display",
            "none",
            "-chardev",
            f"file,id=console,path={self.folder / 'console'},append=on",
            "-serial",
            "chardev:console",
        ]
        for disk in (self.disk, self.second_disk):
            argv += ["-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe"]
        argv += ["-qmp", f"unix:{self._socket()},server=on,wait=off"]
        # The guest reaches only the test on this machine, and only as answers to the test's
        # connections.
        argv += [
            "-netdev",
            "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22",
            "-device",
            "virtio-net-pci,netdev=net",
            *self.extra,
            *more,
        ]
        log = open(self.folder / "qemu.log", "ab")  # noqa: SIM115 (qemu keeps it)
        with log:
            # The kernel ends qemu when pytest ends, in whatever way.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._until(self._is_listening, "qemu answers", 120)
        found = re.search(
            r"HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)",
            self.qmp("human-monitor-command", {"command-line": "info usernet"}),
        )
        if not found:
            raise MachineError("expected the port that leads to ssh, found none in what qemu says")
        self.port = int(found.group(1))
        (self.folder / "known_hosts").write_text(
            f"[127.0.0.1]:{self.port} {self.image.host_key}\n", encoding="ascii"
        )

    def power_off(self):
        """As if the power cable were pulled: data that the guest had not written to its disk is
        lost."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self.process = None

    def freeze(self):
        """Stops the machine for good, and returns what another machine can continue from.
        Everything that ran in it continues there."""
        memory = self.folder / "memory"
        self.qmp("stop")
        self.qmp("migrate", {"uri": f"exec:cat >'{memory}'"})
        self._until(
            lambda: self.qmp("query-migrate").get("status") == "completed",
            "its memory is saved",
            COMMAND_DEADLINE_S,
        )
        self.qmp("quit")
        self.process.wait(60)
        return Frozen(self.disk, memory)

    def qmp(self, command, arguments=None):
        """qemu's answer to one command of its machine protocol."""
        with (
            socket.socket(socket.AF_UNIX) as line,
            contextlib.closing(line.makefile("rw", encoding="utf-8")) as stream,
        ):
            line.settimeout(COMMAND_DEADLINE_S)
            line.connect(str(self._socket()))
            stream.readline()  # its greeting
            for asked in (
                {"execute": "qmp_capabilities"},
                {"execute": command, "arguments": arguments or {}},
            ):
                stream.write(json.dumps(asked) + "\n")
                stream.flush()
                answer = {"event": None}
                while "event" in answer:
                    answer = json.loads(stream.readline() or '{"error": "qemu ended"}')
            if "error" in answer:
                raise MachineError(f"qemu: {command}: {answer['error']}")
            return answer["return"]

    def ssh_arguments(self):
        """Options of ssh that connect to the machine, for ssh and for Ansible."""
        named = {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
        }
        return [
            "-F",
            "none",
            "-i",
            str(self.image.key),
            "-p",
            str(self.port),
            *[part for name, value in named.items() for part in ("-o", f"{name}={value}")],
        ]

    def shell(self, command, deadline_s=COMMAND_DEADLINE_S):
        """Output of a command in root's shell. Raises MachineError."""
        argv = [
            "ssh",
            *self.ssh_arguments(),
            "-o",
            f"ConnectTimeout={COMMAND_DEADLINE_S}",
            "root@127.0.0.1",
            command,
        ]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            check=False,
        )
        if done.returncode:
            raise MachineError(
                f"{command!r} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
            )
        return done.stdout

    def write(self, path, text):
        """Writes a file on the machine."""
        argv = ["ssh", *self.ssh_arguments(), "root@127.0.0.1", f"cat >'{path}'"]
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
        if done.returncode:
            raise MachineError(f"could not write {path}: {done.stderr[-400:]}")

    def wait_for_ssh(self, deadline_s=BOOT_DEADLINE_S):
        """Waits until ssh answers."""

        def answers():
            with contextlib.suppress(MachineError, subprocess.TimeoutExpired):
                return self.shell("systemctl is-system-running --wait >/dev/null; true", 120) == ""
            return False

        self._until(answers, "ssh answers", deadline_s)

    def wait_until(self, command, what, deadline_s=BOOT_DEADLINE_S):
        """Waits until a command succeeds on the machine."""

        def succeeds():
            with contextlib.suppress(MachineError):
                self.shell(command)
                return True
            return False

        self._until(succeeds, what, deadline_s)

    def console(self):
        """All output of the console."""
        place = self.folder / "console"
        return place.read_text(encoding="utf-8", errors="replace") if place.exists() else ""

    def _socket(self):
        # a socket's name may have 108 bytes, and pytest's folders are long: relative paths are
        # shorter
        return self.folder / "qmp"

    def _is_listening(self):
        try:
            self.qmp("query-status")
        except OSError:
            return False
        return True

    def _until(self, holds, what, deadline_s):
        until = time.monotonic() + deadline_s
        while not holds():
            if self.process.poll() is not None:
                raise MachineError(
                    f"expected that {what}; qemu ended:"
                    f" {(self.folder / 'qemu.log').read_text()[-500:]}"
                )
            if time.monotonic() > until:
                raise MachineError(
                    f"expected that {what} within {deadline_s} s; its console:"
                    f" {' | '.join(self.console().splitlines()[-12:])}"
                )
            time.sleep(PAUSE_S)


def _run(argv):
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise MachineError(f"{argv[0]} ended with {done.returncode}: {done.stderr[-400:]}")
