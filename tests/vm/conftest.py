"""A machine that is booted once, and one on which the newer kernel is installed and not yet tried: every test goes on from one of the two."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from pathlib import Path

import pytest
from kernel_plays import GPUS, boots, site_of
from machine.image import ready_image
from machine.machine import Frozen, Machine

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "vm"
RECORDING = Path(__file__).resolve().parents[1] / "fixtures" / "h200x2" / "nvml.json"
# Two workers take a file each, and what is left then goes to the one that is free: what all others wait for first, and the shortest last.
ORDER = ("kept", "not_booted", "that_fails", "rollout", "another_kernel", "host_settings", "image")


def pytest_collection_modifyitems(items):
    """In that order, the tests of a file as they stand there."""
    items.sort(key=lambda item: next((number for number, word in enumerate(ORDER) if word in item.path.name), len(ORDER)))


@pytest.fixture(scope="session")
def image():
    return ready_image(CACHE)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A new folder at each call; its name is short, for qemu's socket lies in it."""
    top, numbers = tmp_path_factory.mktemp("vm"), itertools.count()
    return lambda: top / str(next(numbers))


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """once(name, make): what make() gives, a thing of JSON and one Frozen; made by the first worker that asks, while the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    top = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def made(name, make):
        place = top / f"{name}.json"
        with open(top / f"{name}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                output, frozen = make()
                place.write_text(json.dumps({"output": output, "disk": str(frozen.disk), "memory": str(frozen.memory)}))
        known = json.loads(place.read_text())
        return known["output"], Frozen(Path(known["disk"]), Path(known["memory"]))

    return made


@pytest.fixture(scope="session")
def booted(image, folders, once):
    """Frozen: the older kernel runs, and two GPUs answer from a recording."""

    def boot():
        with Machine(image, folders()) as machine:
            machine.wait_for_ssh()
            machine.write("/root/h200x2.json", RECORDING.read_text())
            machine.write(GPUS, '{"base": "h200x2.json"}')
            # A machine of so little memory has a /dev/shm that the audit calls too small, and rightly so.
            machine.shell("echo 'tmpfs /dev/shm tmpfs size=2G 0 0' >>/etc/fstab && mount -o remount,size=2G /dev/shm")
            return None, machine.freeze()

    return once("booted", boot)[1]


@pytest.fixture(scope="session")
def installation(image, folders, booted, once):
    """({code, output of the role without a word about rebooting; kernels, boots: what the machine was then}, Frozen)."""

    def install():
        with Machine(image, folders(), booted) as machine:
            played = site_of(machine).play()
            seen = {"kernels": machine.shell("ls /boot; dkms status"), "boots": boots(machine)}
            return {"code": played.code, "output": played.output, **seen}, machine.freeze()

    return once("installation", install)


@pytest.fixture
def fresh(image, folders, booted):
    """A Site on a machine that runs the older kernel and has no other."""
    with Machine(image, folders(), booted) as machine:
        yield site_of(machine)


@pytest.fixture
def prepared(image, folders, installation):
    """A Site on a machine that has the newer kernel and runs the older."""
    with Machine(image, folders(), installation[1]) as machine:
        yield site_of(machine)
