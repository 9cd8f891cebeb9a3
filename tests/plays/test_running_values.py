"""Values of the running system in a saved state: saved before a change, restored where the value is
still the one that unhang set. /proc/sys is planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fakes.ansible_module import PROJECT, run_module, tree
from fakes.node_tree import plant
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X8, write_recording
from fakes.role_play import DEADLINE_S

from unhang.core.ansible.packed_pynvml import link_pynvml
from unhang_node.change.atomic_files import STATES
from unhang_node.change.journal.running_values import (
    Change,
    forget_running,
    keep_running,
    read_running,
    value_before,
)

NAME, PLACE = "net.ipv4.tcp_rmem", "proc/sys/net/ipv4/tcp_rmem"
BOOT_ID = "proc/sys/kernel/random/boot_id"


def record(value, *wanted):
    return {"value": value, "set": list(wanted)}


@pytest.mark.parametrize(
    "now, records, before",
    [
        ("b", [record("a", "b")], "a"),
        ("a", [record("a", "b")], "a"),  # never set, or restored already
        ("x", [record("a", "b")], None),
        ("c", [record("b", "c"), record("a", "b")], "a"),
        # the newer value was not set, or is restored
        ("b", [record("b", "c"), record("a", "b")], "a"),
        ("a", [record("b", "c"), record("a", "b")], "a"),  # a rollback that was interrupted
        # changed by another program between the two
        ("c", [record("x", "c"), record("a", "b")], None),
        ("b", [record("a", "b", "c")], "a"),  # the second value was never set
        ([8, 9], [record([1, 2], [8, 9])], [1, 2]),
        (True, [record(False, True)], False),
    ],
)
def test_a_value_goes_back_through_all_that_unhang_set_and_no_other(now, records, before):
    assert value_before(now, records) == before


@pytest.fixture
def node(tmp_path):
    """A node with a kernel parameter of three numbers, in the kernel's format."""
    plant(
        tmp_path, {"/" + PLACE: "4096\t131072\t6291456\n", "/" + BOOT_ID: "one\n", "/var/lib/": ""}
    )
    return tmp_path


def changed(folder, before, after, end="finished", role="host_tuning"):
    """A role that saves a value and then sets it. Returns the id of its state."""
    state_id = run_module("saved_state", rootfs=str(folder), state="begun", role=role, run="r")[
        "id"
    ]
    keep_running(
        str(folder), state_id, [Change(kind="sysctl", name=NAME, value=before, wanted=after)]
    )
    (folder / PLACE).write_text(after + "\n")
    if end:
        run_module("saved_state", rootfs=str(folder), state=end, id=state_id, message="no")
    return state_id


def restore(folder, state_id="latest", **more):
    return run_module("state_restore", rootfs=str(folder), id=state_id, **more)


def value(folder):
    return (folder / PLACE).read_text().split()


OLD, NEW, NEWER = "4096 131072 6291456", "4096 262144 6291456", "4096 1048576 6291456"


@pytest.mark.parametrize("end", ["finished", "failed", None])
def test_a_value_comes_back_as_it_was_foretold_and_only_once(node, end):
    changed(node, OLD, NEW, end)
    before = tree(node)
    foretold = restore(node, check=True)
    assert tree(node) == before
    answer = restore(node)
    assert answer == foretold
    assert answer["running"] == [{"kind": "sysctl", "name": NAME, "before": NEW, "after": OLD}]
    assert f"running, sysctl {NAME}: {NEW} to {OLD}" in answer["lines"]
    assert {
        "before": NEW + "\n",
        "after": OLD + "\n",
        "before_header": f"sysctl {NAME}",
        "after_header": f"sysctl {NAME}",
    } in answer["diff"]
    assert value(node) == OLD.split()
    assert not restore(node)["changed"]


def test_a_value_that_somebody_changed_since_stays_and_is_reported(node):
    changed(node, OLD, NEW)
    (node / PLACE).write_text("1 2 3\n")
    foretold, answer = restore(node, check=True), restore(node)
    assert answer == foretold
    assert answer["running"] == []
    assert answer["needs_manual_action"] == [
        f"sysctl {NAME}: unhang left {NEW} and it is 1 2 3 now; somebody changed it since, and it stays"
    ]
    assert value(node) == ["1", "2", "3"]


def test_two_states_are_gone_back_through_to_the_older_ones_value(node):
    first = changed(node, OLD, NEW)
    changed(node, NEW, NEWER, role="kernel")
    assert restore(node, first)["running"] == [
        {"kind": "sysctl", "name": NAME, "before": NEWER, "after": OLD}
    ]
    assert value(node) == OLD.split()


def test_what_is_kept_first_counts_when_a_role_goes_on_and_both_values_are_known_as_ours(node):
    state_id = changed(node, OLD, NEW, end=None)
    # the role was killed before it set the value
    keep_running(str(node), state_id, [Change(kind="sysctl", name=NAME, value=NEW, wanted=NEWER)])
    (kept,) = read_running(str(node), state_id)
    assert (kept["value"], kept["set"], kept["boot_id"]) == (OLD, [NEW, NEWER], "one")
    restore(node)
    assert value(node) == OLD.split()


def test_the_mode_of_a_gpu_before_a_boot_is_no_mode_to_go_back_to(node):
    state_id = changed(node, OLD, NEW, end=None)
    keep_running(
        str(node),
        state_id,
        [Change(kind="compute_mode", name="GPU-1", value="prohibited", wanted="default")],
    )
    (node / BOOT_ID).write_text("two\n")
    keep_running(
        str(node),
        state_id,
        [
            Change(kind="compute_mode", name="GPU-1", value="default", wanted="exclusive_process"),
            Change(kind="sysctl", name=NAME, value=NEW, wanted=NEWER),
        ],
    )
    assert {row["kind"]: row["value"] for row in read_running(str(node), state_id)} == {
        "compute_mode": "default",
        "sysctl": OLD,
    }


def test_what_could_not_be_changed_is_taken_out_again_and_leaves_no_state(node):
    state_id = run_module(
        "saved_state", rootfs=str(node), state="begun", role="host_tuning", run="r"
    )["id"]
    change = Change(kind="limit", name="memlock of ray.service", value=[1, 1], wanted=[2, 2])
    keep_running(str(node), state_id, [change])
    forget_running(str(node), state_id, [change])
    assert run_module("saved_state", rootfs=str(node), state="finished", id=state_id)["id"] == ""
    assert not (node / "var/lib/unhang").exists()


def test_a_parameter_that_this_kernel_no_longer_has_keeps_nothing_from_coming_back(node):
    changed(node, OLD, NEW)
    (node / PLACE).unlink()
    answer = restore(node)
    assert (answer["changed"], answer["running"], answer["needs_manual_action"]) == (True, [], [])


def test_a_state_without_values_is_read_as_before(node):
    state_id = changed(node, OLD, NEW)
    (node / STATES.lstrip("/") / state_id / "running.json").unlink()
    answer = restore(node)
    assert [row["id"] for row in answer["rolled_back"]] == [state_id]
    assert answer["running"] == []


@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "running.json does not hold what unhang saved there"),
        (
            '{"schema": "unhang/running/1", "records": [{"kind": "sysctl"}]}',
            "running.json does not hold what unhang saved there",
        ),
        (
            (
                '{"schema": "unhang/running/1", "records": [{"kind": "clock", "name": "a", "value":'
                ' 1, "set": [2]}]}'
            ),
            "the saved state has values of clock, and this unhang knows",
        ),
    ],
)
def test_a_broken_or_newer_record_is_refused_before_anything_is_touched(node, text, why):
    state_id = changed(node, OLD, NEW)
    (node / STATES.lstrip("/") / state_id / "running.json").write_text(text)
    before = tree(node)
    answer = restore(node)
    assert answer["failed"]
    assert why in answer["msg"]
    assert tree(node) == before


UUID = "GPU-00000002-0000-4000-8000-000000000000"  # of device 3
GPU_CODE = """
import json, sys
from unhang_node.change.rollback.running_values import plan_running, put_back
def load():
    import pynvml
    return pynvml
root, state_id, acts = sys.argv[1], sys.argv[2], sys.argv[3] == "act"
try:
    rows, manual = plan_running(root, [state_id], load)
    manual += put_back(root, rows, load) if acts else []
    print(json.dumps({"rows": [list(row) for row in rows], "needs_manual_action": manual}))
except ValueError as problem:
    print(json.dumps({"refused": str(problem)}))
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may set a GPU's mode, and the fake driver knows it"
)
class TestModesOfGpus:
    """With the real nvidia-ml-py and the fake driver with the answers of eight H200."""

    @pytest.fixture(scope="class")
    def library(self, tmp_path_factory):
        """Folder of the fake driver's library."""
        link_pynvml(PROJECT)
        folder = tmp_path_factory.mktemp("fake-nvml")
        build_fake_nvml(str(folder))
        return folder

    @pytest.fixture
    def gpus(self, node, library, tmp_path_factory):
        """A state that has the modes of GPU 3 before they were set; call(acts) reads and sets
        modes, call.derive(**) changes the driver's answers."""
        folder = tmp_path_factory.mktemp("driver")
        profile = folder / "profile"
        state_id = run_module(
            "saved_state", rootfs=str(node), state="begun", role="gpu_binding", run="r"
        )["id"]
        keep_running(
            str(node),
            state_id,
            [
                Change(kind="compute_mode", name=UUID, value="exclusive_process", wanted="default"),
                Change(kind="persistence", name=UUID, value=False, wanted=True),
            ],
        )

        def derive(**differences):
            write_profile(str(write_recording(folder, H200X8, **differences)), str(profile))

        def call(acts=True):
            path = os.pathsep.join([str(PROJECT / "module_utils"), *sys.path])
            known = {
                **os.environ,
                "LD_LIBRARY_PATH": str(library),
                "UNHANG_FAKE_NVML_PROFILE": str(profile),
                "PYTHONPATH": path,
            }
            command = [
                sys.executable,
                "-c",
                GPU_CODE,
                str(node),
                state_id,
                "act" if acts else "look",
            ]
            done = subprocess.run(
                command, env=known, capture_output=True, text=True, timeout=DEADLINE_S
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        derive(devices={"3": {"nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetComputeMode": 0}})
        call.derive, call.profile, call.node = derive, profile, node
        return call

    def test_they_come_back_and_then_nothing_is_left_to_do(self, gpus):
        rows = [
            ["persistence", UUID, True, False],
            ["compute_mode", UUID, "default", "exclusive_process"],
        ]
        assert gpus(acts=False) == {"rows": rows, "needs_manual_action": []}
        assert gpus() == {"rows": rows, "needs_manual_action": []}
        assert gpus() == {"rows": [], "needs_manual_action": []}

    def test_a_compute_mode_is_never_changed_under_a_job(self, gpus):
        job = [
            {
                "pid": 4711,
                "usedGpuMemory": 1048576,
                "gpuInstanceId": None,
                "computeInstanceId": None,
            }
        ]
        gpus.derive(
            devices={
                "3": {
                    "nvmlDeviceGetComputeMode": 0,
                    "nvmlDeviceGetComputeRunningProcesses_v3": {"v": job},
                }
            }
        )
        for acts in (False, True):
            assert "is in use by pid 4711; drain the node and run again" in gpus(acts)["refused"]
        assert not gpus.profile.with_name("profile.set").exists()

    def test_a_mode_that_somebody_else_set_since_stays(self, gpus):
        gpus.derive(
            devices={"3": {"nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetComputeMode": 2}}
        )
        answer = gpus()
        assert [row[0] for row in answer["rows"]] == ["persistence"]
        assert answer["needs_manual_action"] == [
            f"compute_mode of GPU {UUID}: unhang left default and it is prohibited now; somebody changed it since, and it stays"
        ]

    def test_after_a_boot_there_is_nothing_to_bring_back(self, gpus):
        (gpus.node / BOOT_ID).write_text("two\n")
        assert gpus() == {"rows": [], "needs_manual_action": []}

    def test_a_driver_that_does_not_answer_stops_nothing_and_is_reported(self, gpus):
        gpus.profile.write_text("system nvmlInitWithFlags 9\n")
        answer = gpus()
        assert answer["rows"] == []
        assert "the driver does not answer" in answer["needs_manual_action"][0]
