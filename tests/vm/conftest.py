"""A machine that is booted once, and one on which the newer kernel is installed and not yet tried: every test goes on from one of the two."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from kernel_plays import GPUS, boots, site_of
from machine.image import ready_image
from machine.machine import Machine

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "vm"
RECORDING = Path(__file__).resolve().parents[1] / "fixtures" / "h200x2" / "nvml.json"


def pytest_collection_modifyitems(items):
    """The longest row of tests first: two workers take a file each, and what is left then goes to the one that is free."""
    items.sort(key=lambda item: "installation" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def image():
    return ready_image(CACHE)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A new folder at each call; its name is short, for qemu's socket lies in it."""
    top, numbers = tmp_path_factory.mktemp("vm"), itertools.count()
    return lambda: top / str(next(numbers))


@pytest.fixture(scope="session")
def booted(image, folders):
    """Frozen: the older kernel runs, and two GPUs answer from a recording."""
    with Machine(image, folders()) as machine:
        machine.wait_for_ssh()
        machine.write("/root/h200x2.json", RECORDING.read_text())
        machine.write(GPUS, '{"base": "h200x2.json"}')
        return machine.freeze()


@pytest.fixture(scope="session")
def installation(image, folders, booted):
    """(Played of the role without a word about rebooting, what the machine was then, Frozen)."""
    with Machine(image, folders(), booted) as machine:
        played = site_of(machine).play()
        seen = {"kernels": machine.shell("ls /boot; dkms status"), "boots": boots(machine)}
        return played, seen, machine.freeze()


@pytest.fixture
def fresh(image, folders, booted):
    """A Site on a machine that runs the older kernel and has no other."""
    with Machine(image, folders(), booted) as machine:
        yield site_of(machine)


@pytest.fixture
def prepared(image, folders, installation):
    """A Site on a machine that has the newer kernel and runs the older."""
    with Machine(image, folders(), installation[2]) as machine:
        yield site_of(machine)
