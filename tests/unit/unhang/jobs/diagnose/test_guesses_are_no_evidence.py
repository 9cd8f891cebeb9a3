"""The text of a post is no evidence by its words: what somebody supposes, passes on, asks or denies changes no answer, and what was seen does."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_signatures
from unhang.jobs.diagnose.matching.statements import is_spoken
from unhang.jobs.diagnose.matching.suppositions import is_supposed

ROOT = Path(__file__).resolve().parents[5]
REPORTS = [row for name in ("third", "fourth", "fifth") for row in load_yaml(ROOT / f"tests/fixtures/diagnose_reports/{name}.yml")[0]["reports"]]
CAUSES = (
    "NVLink is down", "a firewall blocks the ports", "ACS is enabled", "the IOMMU is on", "the shared memory is too small", "a GPU has fallen off the bus",
    "the fabric manager is not running", "the driver is too old", "NCCL has a bug", "the wrong network interface is used", "one rank ran out of memory",
    "the dataset is split unevenly", "the timeout is too short", "the InfiniBand port is down", "memlock is too low", "the disk is full", "the MTU is wrong",
    "the hostname does not resolve", "the port is in use", "nvidia_peermem is not loaded", "two versions of NCCL are installed", "a proxy is set",
    "the clocks differ", "a zombie process holds the GPU", "peer-to-peer is broken", "the kernel is too old",
)  # fmt: skip
GUESSES = (
    "I think {}.", "Maybe {}?", "Could it be that {}?", "My guess is that {}.", "Probably {}.", "It looks like {}.", "A colleague says that {}.",
    "{}, I guess.", "I suspect that {}.", "Perhaps {}, I do not know.", "Might be that {}.", "I read that it happens if {}.", "Is it because {}?",
    "There is no sign that {}.", "We checked, it is not that {}.", "可能是 {}", "{} かもしれません", "아마 {}",
    "Creo que {}, pero con una duda.", "Возможно, {}.",
)  # fmt: skip
HANGS = "Training hangs on 4 GPUs after some steps.\n"


def answer(text):
    return [(cause["cause"], cause["certainty"], cause["severity"]) for cause in diagnose_text(text)["causes"]]


@pytest.mark.parametrize("guess", GUESSES)
def test_guess_alone_names_no_cause(guess):
    assert {cause: named for cause in CAUSES if (named := answer(HANGS + guess.format(cause)))} == {}


@pytest.mark.parametrize("place", range(len(REPORTS)), ids=[row["id"] for row in REPORTS])
def test_prose_of_a_report_is_answered_alike_whatever_its_author_supposes(place):
    prose = "".join(f"{line}\n" for line in REPORTS[place]["text"].splitlines() if is_spoken(line))
    pairs = [*product(CAUSES, GUESSES)]
    for at in (place, place + 131, place + 262, place + 393):
        cause, guess = pairs[at % len(pairs)]
        assert answer(f"{prose}{guess.format(cause)}\n") == answer(prose), guess.format(cause)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("dmesg says that the GPU has fallen off the bus.", "xid_hardware"),
        ("I thought it was the network, but dmesg has: GPU has fallen off the bus.", "xid_hardware"),
        ("I suspect the line 'NVRM: GPU at PCI:0000:0a:00: GPU has fallen off the bus.' in dmesg.", "xid_hardware"),
        ("Driver 545.23.08 and two RTX 3090.", "driver_p2p_bug"),
        ("驱动版本545.23.08, 2x RTX 3090", "driver_p2p_bug"),
        ("The MTU is wrong on one node, ip link shows 1500 and 9000.", "mtu_mismatch"),
    ],
)
def test_what_was_seen_and_versions_that_are_stated_count(told, cause):
    assert answer(f"{HANGS}{told}\n")[0][0] == cause


def test_programs_may_suppose():
    shm = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    assert answer(shm)[0][0] == "shm_too_small"
    matched = [(one, text, found) for one in load_signatures() if one.for_ for text in one.examples["match"] if (found := one.search(text))]
    assert [one.id for one, text, found in matched if is_supposed(text, *found.span())] == []
