"""Old saved states are removed when a new one begins, but never a state that a rollback to a
remaining one needs."""

from __future__ import annotations

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import plant

from unhang_node.change.atomic_files import STATES
from unhang_node.change.journal.pruning import states_to_prune

CONF = "/etc/nccl.conf"
STATUS = {"F": "finished", "R": "rolled_back", "O": "open", "X": "failed", "B": "broken"}


def states_of(chain):
    """States in order from words such as Fa: status, then the role."""
    return [
        {"id": f"{place}{word}", "status": STATUS[word[0]], "role": word[1:], "number": place}
        for place, word in enumerate(chain.split(), 1)
    ]


@pytest.mark.parametrize(
    "chain, keep, pruned",
    [
        ("Fa Fb Fc", 3, []),
        ("Fa Fb Fc Fa", 2, ["1Fa", "2Fb"]),
        ("Ra Fb Rc Fd", 2, ["1Ra", "2Fb"]),
        ("Xa Fb Fc Fd", 1, []),  # going back to the failed one takes all of them
        ("Xa Rb Fc Fd", 1, ["2Rb"]),  # but not what is undone already
        ("Fa Xb Fc Fd", 1, ["1Fa"]),
        ("Fa Ob Fc Fd", 1, ["1Fa"]),
        ("Xa Fb Fa Fd", 1, ["1Xa", "2Fb", "3Fa"]),  # the role has done since what was left undone
        ("Xa Ra Fb Fc", 1, ["2Ra"]),  # what was rolled back has done nothing
        ("Fa Xb", 1, []),
        ("Fa Fb Fc B", 1, []),
        ("Fa Fb", 1, ["1Fa"]),
    ],
)
def test_only_the_oldest_part_of_the_chain_goes_and_what_did_not_end_stays(chain, keep, pruned):
    assert states_to_prune(states_of(chain), keep) == pruned


@pytest.fixture
def node(tmp_path):
    """A node with a file that roles change."""
    plant(tmp_path, {CONF: "0\n", "/var/lib/": ""})
    return tmp_path


def saved(folder, state, **more):
    return run_module("saved_state", rootfs=str(folder), state=state, **more)


def change(folder, text, keep, run="r"):
    """A finished change of a role under the lock of its run. The answer of its beginning."""
    number = run_module("node_lock", rootfs=str(folder), run=run)["fencing"]
    begun = saved(
        folder, "begun", role="nccl_profile", run=run, fencing=number, files=[CONF], keep=keep
    )
    (folder / CONF.lstrip("/")).write_text(text)
    kept = folder / STATES.lstrip("/") / begun["id"] / "packages/old"
    kept.mkdir(parents=True)
    (kept / "libnccl2.deb").write_text("x")
    saved(folder, "finished", id=begun["id"])
    run_module("node_lock", rootfs=str(folder), run=run, fencing=number, state="free")
    return begun


def listed(folder):
    return [row["id"] for row in saved(folder, "listed")["states"]]


def test_the_node_keeps_so_many_and_goes_back_to_the_oldest_of_them(node):
    ids = [change(node, f"{count}\n", keep=2)["id"] for count in range(1, 5)]
    assert listed(node) == ids[1:]  # the last was begun when two were kept
    fifth = change(node, "5\n", keep=2)
    assert fifth["pruned"] == [ids[1]]
    assert sorted(path.name for path in (node / STATES.lstrip("/")).iterdir()) == sorted(
        [*ids[2:], fifth["id"]]
    )
    assert run_module("state_restore", rootfs=str(node), id=ids[2])["changed"]
    assert (node / CONF.lstrip("/")).read_text() == "2\n"


def test_nothing_goes_in_check_mode_without_a_number_or_without_the_lock(node):
    for count in range(3):
        change(node, f"{count}x\n", keep=0)
    before = tree(node)
    number = run_module("node_lock", rootfs=str(node), run="r")["fencing"]
    assert (
        saved(node, "begun", role="nccl_profile", run="r", fencing=number, keep=1, check=True)[
            "pruned"
        ]
        == []
    )
    run_module("node_lock", rootfs=str(node), run="r", fencing=number, state="free")
    assert tree(node) == before
    for lock, keep in (("r", 0), (None, 1), ("another", 1)):
        number = run_module("node_lock", rootfs=str(node), run=lock)["fencing"] if lock else 0
        begun = saved(node, "begun", role="nccl_profile", run="r", fencing=number, keep=keep)
        saved(node, "finished", id=begun["id"], fencing=number)
        run_module("node_lock", rootfs=str(node), run=lock or "r", fencing=number, state="free")
        assert (begun["pruned"], tree(node)) == ([], before)


def test_what_a_removal_left_that_was_cut_off_goes_with_the_next(node):
    ids = [change(node, f"{count}\n", keep=0)["id"] for count in range(1, 3)]
    (node / STATES.lstrip("/") / ids[0]).rename(node / STATES.lstrip("/") / f".removed-{ids[0]}")
    assert listed(node) == ids[1:]
    third = change(node, "3\n", keep=5)
    assert third["pruned"] == []
    assert sorted(path.name for path in (node / STATES.lstrip("/")).iterdir()) == sorted(
        [ids[1], third["id"]]
    )
