"""A machine that is booted once, and one on which the newer kernel is installed and not yet tried:
every test continues from one of the two."""

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
# Two workers take one file each, and then the next file goes to the free one: first the file that
# all others wait for, last the shortest.
ORDER = ("installed", "not_booted", "that_fails", "another_kernel", "host_settings", "image")


def pytest_collection_modifyitems(items):
    """Orders the files as above; the tests of a file keep their order. An emulated machine takes
    minutes for what a real one does in seconds."""
    for item in items:
        item.add_marker(pytest.mark.timeout(3600))
    items.sort(
        key=lambda item: next(
            (number for number, word in enumerate(ORDER) if word in item.path.name), len(ORDER)
        )
    )


@pytest.fixture(scope="session")
def image():
    return ready_image(CACHE)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A new folder at each call, with a short name, because qemu's socket is in it."""
    top, numbers = tmp_path_factory.mktemp("vm"), itertools.count()
    return lambda: top / str(next(numbers))


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """once(name, make): the result of make(), a JSON value and one Frozen; the first worker that
    asks makes it, while the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    top = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def made(name, make):
        place = top / f"{name}.json"
        with open(top / f"{name}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                output, frozen = make()
                place.write_text(
                    json.dumps(
                        {"output": output, "disk": str(frozen.disk), "memory": str(frozen.memory)}
                    )
                )
        known = json.loads(place.read_text())
        return known["output"], Frozen(Path(known["disk"]), Path(known["memory"]))

    return made


@pytest.fixture(scope="session")
def booted(image, folders, once):
    """Frozen: the older kernel runs, and two GPUs return recorded answers."""

    def boot():
        with Machine(image, folders()) as machine:
            machine.wait_for_ssh()
            machine.write("/root/h200x2.json", RECORDING.read_text())
            machine.write(GPUS, '{"base": "h200x2.json"}')
            # A machine with so little memory has a /dev/shm that the audit rightly reports as too
            # small.
            machine.shell(
                "echo 'tmpfs /dev/shm tmpfs size=2G 0 0' >>/etc/fstab && mount -o remount,size=2G"
                " /dev/shm"
            )
            return None, machine.freeze()

    return once("booted", boot)[1]


@pytest.fixture(scope="session")
def installation(image, folders, booted, once):
    """({code, output of the role without permission to reboot; kernels, boots: the machine's state
    afterwards}, Frozen)."""

    def install():
        with Machine(image, folders(), booted) as machine:
            played = site_of(machine).play()
            seen = {"kernels": machine.shell("ls /boot; dkms status"), "boots": boots(machine)}
            return {"code": played.code, "output": played.output, **seen}, machine.freeze()

    return once("installation", install)


@pytest.fixture
def fresh(image, folders, booted):
    """A Site on a machine that has and runs only the older kernel."""
    with Machine(image, folders(), booted) as machine:
        yield site_of(machine)


@pytest.fixture
def prepared(image, folders, installation):
    """A Site on a machine that has the newer kernel and runs the older one."""
    with Machine(image, folders(), installation[1]) as machine:
        yield site_of(machine)
