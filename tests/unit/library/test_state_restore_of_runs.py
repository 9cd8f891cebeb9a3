"""A rollback of what one run has changed: the states of other runs stay, and where a later run has
changed the same thing, nothing is touched and that run is named."""

from __future__ import annotations

import json

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import dpkg_status, plant

from unhang_node.change.journal.running_values import Change, keep_running
from unhang_node.change.package.saved import write_saved

CONF, OTHER = "/etc/nccl.conf", "/etc/profile.d/unhang-nccl.sh"
FIRST, SECOND = "20261120T070000Z-0123456789", "20261121T070000Z-abcdef0123"


@pytest.fixture
def node(tmp_path):
    plant(
        tmp_path,
        {
            CONF: "NCCL_IB_TIMEOUT=22\n",
            "/etc/profile.d/": "",
            "/var/lib/dpkg/updates/": "",
            "/var/lib/dpkg/status": dpkg_status({"nvidia-driver": "2"}) + "\n",
        },
    )
    return tmp_path


def saved(folder, state, **more):
    return run_module("saved_state", rootfs=str(folder), state=state, **more)


def restore(folder, run, **more):
    return run_module("state_restore", rootfs=str(folder), run=run, **more)


def changed(folder, run, value, path=CONF):
    """A role of this run that has written a file."""
    state_id = saved(folder, "begun", role="nccl_profile", run=run)["id"]
    form = "nccl_conf" if path == CONF else "shell"
    run_module(
        "own_file",
        rootfs=str(folder),
        settings={"A": value},
        state_id=state_id,
        path=path,
        format=form,
    )
    saved(folder, "finished", id=state_id)
    return state_id


def text(folder, path):
    place = folder / path.lstrip("/")
    return place.read_text() if place.exists() else None


def statuses(folder):
    return {row["run"]: row["status"] for row in saved(folder, "listed")["states"]}


def test_an_undo_of_the_first_run_leaves_what_the_second_has_changed(node):
    first, second = changed(node, FIRST, "1"), changed(node, SECOND, "2", OTHER)
    kept = text(node, OTHER)
    answer = restore(node, FIRST)
    assert [row["id"] for row in answer["rolled_back"]] == [first]
    assert [(row["id"], row["run"]) for row in answer["left"]] == [(second, SECOND)]
    assert f"leaves state {second} of run {SECOND}" in answer["lines"]
    assert (text(node, CONF), text(node, OTHER)) == ("NCCL_IB_TIMEOUT=22\n", kept)
    assert statuses(node) == {FIRST: "rolled_back", SECOND: "finished"}
    again = restore(node, FIRST)
    assert (again["changed"], again["known"]) == (False, True)


def test_where_a_later_run_has_changed_the_same_nothing_is_touched_and_it_is_named(node):
    changed(node, FIRST, "1")
    second = changed(node, SECOND, "2")
    before = tree(node)
    answer = restore(node, FIRST)
    assert answer["failed"]
    assert answer["untouched"]
    assert f"in the way: {second} of run {SECOND}, which has changed {CONF} since" in answer["msg"]
    assert "both with --through" in answer["msg"]
    assert tree(node) == before
    assert restore(node, SECOND)["changed"]
    assert restore(node, FIRST)["changed"]
    assert text(node, CONF) == "NCCL_IB_TIMEOUT=22\n"


def test_through_takes_both_newest_first(node):
    first, second = changed(node, FIRST, "1"), changed(node, SECOND, "2")
    third = changed(node, "later", "3", OTHER)
    answer = restore(node, FIRST, through=True)
    assert [row["id"] for row in answer["rolled_back"]] == [third, second, first]
    assert answer["left"] == []
    assert (text(node, CONF), text(node, OTHER)) == ("NCCL_IB_TIMEOUT=22\n", None)


def test_a_run_that_came_between_two_changes_of_the_undone_one_is_named_too(node):
    changed(node, FIRST, "1")
    second = changed(node, SECOND, "2")
    changed(node, FIRST, "3")
    answer = restore(node, FIRST)
    assert answer["untouched"]
    assert f"in the way: {second} of run {SECOND}" in answer["msg"]
    assert restore(node, FIRST, through=True)["changed"]
    assert text(node, CONF) == "NCCL_IB_TIMEOUT=22\n"


@pytest.mark.parametrize("kind", ["package", "hold", "running"])
def test_a_package_its_hold_and_a_running_value_are_seen_too(node, kind):
    for run in (FIRST, SECOND):
        state_id = saved(node, "begun", role="gpu_driver", run=run)["id"]
        if kind == "running":
            keep_running(str(node), state_id, [Change("sysctl", "vm.swappiness", "60", "1")])
        elif kind == "hold" and run == SECOND:
            run_module("package_pin", rootfs=str(node), groups=["driver"], state_id=state_id)
        else:
            row = {"name": "nvidia-driver", "before": "1", "after": "2", "held": False}
            document = {"manager": "dpkg", "packages": [row], "status": "done"}
            write_saved(str(node), f"/var/lib/unhang/states/{state_id}", document)
        saved(node, "finished", id=state_id)
    named = "sysctl vm.swappiness" if kind == "running" else "package nvidia-driver"
    assert f"of run {SECOND}, which has changed {named} since" in restore(node, FIRST)["msg"]


def test_who_rolled_a_state_back_is_kept_with_it(node):
    changed(node, FIRST, "1")
    taken = run_module("node_lock", rootfs=str(node), run=f"{FIRST}-undo", by="alice")
    restore(node, FIRST, fencing=taken["fencing"])
    [row] = saved(node, "listed")["states"]
    assert row["rolled_back_by"] == f"{FIRST}-undo"
    assert f"rolled back by run {FIRST}-undo" in saved(node, "listed")["lines"][0]


def test_a_run_that_has_saved_nothing_here_changes_nothing(node):
    changed(node, FIRST, "1")
    before = tree(node)
    answer = restore(node, "another")
    assert (answer["changed"], answer["rolled_back"], answer["known"]) == (False, [], False)
    assert json.loads(json.dumps(answer["left"]))[0]["run"] == FIRST
    assert tree(node) == before
