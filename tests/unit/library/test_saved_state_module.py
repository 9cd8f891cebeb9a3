"""The module saved_state on planted trees."""

from __future__ import annotations

import json
import os

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import plant

from unhang_node.change.atomic_files import STATES
from unhang_node.change.journal.node_lock import read_lock
from unhang_node.change.journal.saved_states import (
    keep_files,
    keep_selections,
    read_saved_files,
    read_saved_selections,
    read_states,
)

CONF, NEW = "/etc/nccl.conf", "/etc/systemd/system/x.service.d/50.conf"


def saved(folder, state, **more):
    return run_module("saved_state", rootfs=str(folder), state=state, **more)


def begun(folder, role="nccl_profile", run="r1", files=(CONF, NEW), **more):
    plant(folder, {"/etc/nccl.conf": "A=1\n", "/var/lib/": ""})
    return saved(folder, "begun", role=role, run=run, files=list(files), **more)


def change(folder, text="A=2\n"):
    (folder / CONF.lstrip("/")).write_text(text)


def state_of(folder, state_id):
    return json.loads((folder / STATES.lstrip("/") / state_id / "state.json").read_text())


def test_a_state_holds_each_file_as_it_was_and_that_one_was_not_there(tmp_path):
    plant(tmp_path, {CONF: "A=1\n"})
    os.chmod(tmp_path / CONF.lstrip("/"), 0o640)
    answer = begun(tmp_path)
    assert answer["id"].endswith("Z-nccl_profile")
    assert answer["folder"] == f"{STATES}/{answer['id']}"
    folder = tmp_path / answer["folder"].lstrip("/")
    assert oct(folder.stat().st_mode)[-3:] == "700"
    assert read_saved_files(str(folder)) == {
        CONF: {"text": "A=1\n", "mode": 0o640, "uid": os.geteuid(), "gid": os.getegid()},
        NEW: None,
    }
    state = state_of(tmp_path, answer["id"])
    assert (state["schema"], state["role"], state["run"], state["status"]) == (
        "unhang/saved-state/1",
        "nccl_profile",
        "r1",
        "open",
    )
    assert state["folders"] == [
        "/etc/systemd",
        "/etc/systemd/system",
        "/etc/systemd/system/x.service.d",
    ]


def test_bytes_that_are_no_utf_8_are_kept(tmp_path):
    plant(tmp_path, {CONF: ""})
    (tmp_path / CONF.lstrip("/")).write_bytes(b"\xff\xfe=1\n")
    answer = saved(tmp_path, "begun", role="nccl_profile", files=[CONF])
    text = read_saved_files(str(tmp_path / answer["folder"].lstrip("/")))[CONF]["text"]
    assert text.encode("utf-8", "surrogateescape") == b"\xff\xfe=1\n"


def test_check_mode_writes_nothing(tmp_path):
    plant(tmp_path, {CONF: "A=1\n"})
    before = tree(tmp_path)
    answer = saved(tmp_path, "begun", role="nccl_profile", run="r1", files=[CONF], check=True)
    assert (answer["id"], answer["folder"], answer["changed"]) == ("", "", False)
    for state in ("step", "finished", "failed"):
        assert saved(tmp_path, state, id="", step="x", check=True)["id"] == ""
    assert tree(tmp_path) == before


def test_a_state_in_which_nothing_was_changed_leaves_nothing(tmp_path):
    plant(tmp_path, {CONF: "A=1\n", "/var/lib/": ""})
    before = tree(tmp_path)
    for end, step in (("finished", "conf"), ("failed", "packages")):
        state_id = begun(tmp_path)["id"]
        saved(tmp_path, "step", id=state_id, step=step)
        assert saved(tmp_path, end, id=state_id, message="refused")["id"] == ""
        assert tree(tmp_path) == before


def test_a_finished_state_stands_with_its_steps(tmp_path):
    state_id = begun(tmp_path)["id"]
    saved(tmp_path, "step", id=state_id, step="conf")
    change(tmp_path)
    assert saved(tmp_path, "finished", id=state_id)["id"] == state_id
    state = state_of(tmp_path, state_id)
    assert state["status"] == "finished"
    assert [step["name"] for step in state["steps"]] == ["conf"]


SAVED_BY_OTHERS = {
    "packages.json": {"schema": "unhang/packages/1", "packages": []},
    "boot.json": {"schema": "unhang/boot/1", "default": "0", "saved": None, "drop_in": None},
}


@pytest.mark.parametrize("name", SAVED_BY_OTHERS)
def test_a_state_with_what_another_part_saved_stands(tmp_path, name):
    answer = begun(tmp_path)
    plant(tmp_path, {f"{answer['folder']}/{name}": json.dumps(SAVED_BY_OTHERS[name])})
    assert saved(tmp_path, "finished", id=answer["id"])["id"] == answer["id"]


def test_a_failed_state_says_why_and_is_not_finished(tmp_path):
    state_id = begun(tmp_path)["id"]
    change(tmp_path)
    saved(tmp_path, "failed", id=state_id, message="dpkg ended with 1")
    saved(tmp_path, "finished", id=state_id)
    state = state_of(tmp_path, state_id)
    assert (state["status"], state["message"]) == ("failed", "dpkg ended with 1")


@pytest.mark.parametrize("end", ["failed", None])
def test_the_next_run_goes_on_with_what_was_cut_off_and_keeps_what_was_there_first(tmp_path, end):
    first = begun(tmp_path)["id"]
    saved(tmp_path, "step", id=first, step="packages")
    change(tmp_path)
    if end:
        saved(tmp_path, end, id=first, message="no")
    foretold = saved(tmp_path, "begun", role="nccl_profile", run="r2", files=[CONF], check=True)
    answer = saved(tmp_path, "begun", role="nccl_profile", run="r2", files=[CONF])
    assert answer["id"] == first
    assert answer["stopped"] == foretold["stopped"]
    assert (answer["stopped"]["run"], answer["stopped"]["step"], answer["stopped"]["status"]) == (
        "r1",
        "packages",
        end or "open",
    )
    assert read_saved_files(str(tmp_path / answer["folder"].lstrip("/")))[CONF]["text"] == "A=1\n"
    assert state_of(tmp_path, first)["status"] == "open"
    assert state_of(tmp_path, first)["run"] == "r2"


def test_a_state_that_another_role_has_built_on_is_not_gone_on_with(tmp_path):
    first = begun(tmp_path)["id"]
    change(tmp_path)
    saved(tmp_path, "failed", id=first, message="no")
    second = begun(tmp_path, role="gpu_binding")["id"]
    change(tmp_path, "A=3\n")
    saved(tmp_path, "finished", id=second)
    third = saved(tmp_path, "begun", role="nccl_profile", files=[CONF])
    assert third["id"] not in (first, second)
    assert third["stopped"] is None
    assert [state["id"] for state in read_states(str(tmp_path))] == [first, second, third["id"]]


def test_states_of_one_second_have_ids_of_their_own_and_an_order(tmp_path):
    ids = []
    for number in range(3):
        state_id = begun(tmp_path)["id"]
        change(tmp_path, f"B={number}\n")
        saved(tmp_path, "finished", id=state_id)
        ids.append(state_id)
    assert len(set(ids)) == 3
    assert [state["id"] for state in saved(tmp_path, "listed")["states"]] == ids


def test_a_file_and_a_selection_are_saved_once(tmp_path):
    answer = begun(tmp_path, files=[])
    root, folder = str(tmp_path), str(tmp_path / answer["folder"].lstrip("/"))
    keep_files(root, answer["id"], [CONF])
    change(tmp_path)
    keep_files(root, answer["id"], [CONF])
    keep_selections(root, answer["id"], {"nvidia-driver": "install"})
    keep_selections(root, answer["id"], {"nvidia-driver": "hold", "libnccl2": "hold"})
    assert read_saved_files(folder)[CONF]["text"] == "A=1\n"
    assert read_saved_selections(folder) == {"nvidia-driver": "install", "libnccl2": "hold"}
    keep_files(root, "", [CONF])  # an empty id saves nothing and is no error


@pytest.mark.parametrize("state_id", ["../../etc", "20261120T070000Z-nccl_profile", "x"])
def test_what_is_no_state_is_reported(tmp_path, state_id):
    answer = saved(tmp_path, "step", id=state_id, step="x")
    assert answer["failed"]
    assert "is not the id of a saved state" in answer["msg"]


def test_an_id_leads_nowhere_else(tmp_path):
    state_id = begun(tmp_path)["id"]
    assert saved(tmp_path, "step", id=f"../states/{state_id}", step="x")["failed"]


def test_a_folder_is_not_saved_as_a_file(tmp_path):
    plant(tmp_path, {"/etc/thing/x": ""})
    answer = saved(tmp_path, "begun", role="nccl_profile", files=["/etc/thing"])
    assert answer["failed"]
    assert "not a regular file" in answer["msg"]


def test_a_call_with_the_run_renews_its_lock(tmp_path):
    number = run_module("node_lock", rootfs=str(tmp_path), run="r1", expires_s=100)["fencing"]
    place = tmp_path / "var/lib/unhang/lock.json"
    place.write_text(
        place.read_text().replace(read_lock(str(tmp_path))["expires"], "2020-01-01T00:00:00Z")
    )
    begun(tmp_path, fencing=number)
    assert read_lock(str(tmp_path))["expires"] > "2021"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"schema": "unhang/saved-state/1", "id": "x"}',
        "[]",
        '{"schema": "unhang/saved-state/1"}',
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_no_role_begins_while_a_saved_state_cannot_be_read(tmp_path, text, check):
    first = run_module("saved_state", rootfs=str(tmp_path), state="begun", role="kernel", run="a")[
        "id"
    ]
    run_module("saved_state", rootfs=str(tmp_path), state="failed", id=first, message="x")
    first = run_module("saved_state", rootfs=str(tmp_path), state="begun", role="kernel", run="a")[
        "id"
    ]
    (tmp_path / f"{STATES}/{first}/state.json".lstrip("/")).write_text(text)
    before = tree(tmp_path)
    refused = run_module(
        "saved_state", check=check, rootfs=str(tmp_path), state="begun", role="host_tuning", run="b"
    )
    assert refused["failed"]
    assert f"move {STATES}/{first} away" in refused["msg"]
    assert tree(tmp_path) == before
    listed = run_module("saved_state", rootfs=str(tmp_path), state="listed")
    assert listed["lines"][0].startswith(f"{first}: broken: ")
