"""The module state_restore on planted trees, with the real dpkg over a planted database where holds
are undone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import dpkg_status, held_packages, plant

from unhang_node.change.atomic_files import STATES
from unhang_node.change.journal.running_values import Change, keep_running
from unhang_node.change.journal.saved_states import keep_selections
from unhang_node.change.package.saved import write_saved

CONF, PROFILE, UNIT = (
    "/etc/nccl.conf",
    "/etc/profile.d/unhang-nccl.sh",
    "/etc/systemd/system/ray.service.d/50-unhang-nccl.conf",
)
FIRST, SECOND = {"A": "1"}, {"A": "2", "B": "3"}


def saved(folder, state, **more):
    return run_module("saved_state", rootfs=str(folder), state=state, **more)


def restore(folder, state_id="latest", **more):
    return run_module("state_restore", rootfs=str(folder), id=state_id, **more)


def conf(folder, settings, state_id, path=CONF, form="nccl_conf"):
    return run_module(
        "own_file",
        rootfs=str(folder),
        settings=settings,
        state_id=state_id,
        path=path,
        format=form,
    )


def applied(folder, settings, end="finished"):
    """A change of two files by a role, and the id of what it saved."""
    state_id = saved(folder, "begun", role="nccl_profile", run="r")["id"]
    conf(folder, settings, state_id)
    conf(folder, settings, state_id, UNIT, "systemd")
    if end:
        saved(folder, end, id=state_id, message="no")
    return state_id


def files(folder):
    """The tree without what is saved, and the folders above it."""
    return {
        path: content
        for path, content in tree(folder).items()
        if not path.startswith("/var/lib/unhang") and path not in ("/var", "/var/lib")
    }


def modes(folder):
    names = {str(path.relative_to(folder)): path.stat().st_mode for path in folder.rglob("*")}
    return {
        name: mode
        for name, mode in names.items()
        if "unhang" not in name and name not in ("var", "var/lib")
    }


@pytest.fixture
def node(tmp_path):
    """A node with a hand-written nccl.conf that not everybody may read."""
    plant(
        tmp_path,
        {
            CONF: "NCCL_IB_TIMEOUT=22\n",
            "/etc/profile.d/": "",
            "/etc/systemd/system/": "",
            "/var/lib/": "",
        },
    )
    os.chmod(tmp_path / CONF.lstrip("/"), 0o640)
    return tmp_path


@pytest.mark.parametrize("end", ["finished", "failed", None])
def test_a_change_is_undone_whether_it_ended_failed_or_was_cut_off(node, end):
    before, before_modes = files(node), modes(node)
    state_id = applied(node, FIRST, end)
    assert files(node) != before
    answer = restore(node)
    assert answer["changed"]
    assert [row["id"] for row in answer["rolled_back"]] == [state_id]
    assert answer["files"] == [CONF, UNIT]
    assert files(node) == before
    assert modes(node) == before_modes
    (row,) = saved(node, "listed")["states"]
    assert row["status"] == "rolled_back"


def test_check_mode_writes_nothing_and_foretells_the_same(node):
    applied(node, FIRST)
    before = tree(node)
    foretold = restore(node, check=True)
    assert tree(node) == before
    assert foretold == restore(node)


def test_a_second_time_nothing_is_left_to_undo(node):
    state_id = applied(node, FIRST)
    restore(node)
    before = tree(node)
    assert not restore(node)["changed"]
    assert not restore(node, state_id)["changed"]
    assert tree(node) == before


def test_an_older_state_is_reached_through_the_newer_ones(node):
    untouched = files(node)
    first = applied(node, FIRST)
    between = files(node)
    second = applied(node, SECOND)
    assert [row["id"] for row in restore(node, check=True)["rolled_back"]] == [second]
    restore(node, second)
    assert files(node) == between
    third = applied(node, SECOND)
    assert [row["id"] for row in restore(node, first)["rolled_back"]] == [third, first]
    assert files(node) == untouched


def test_a_rollback_that_is_cut_off_is_done_again(node):
    before = files(node)
    state_id = applied(node, FIRST)
    blocked = node / CONF.lstrip("/")
    text = blocked.read_text()
    blocked.unlink()
    blocked.mkdir()
    assert restore(node)["failed"]
    blocked.rmdir()
    blocked.write_text(text)
    blocked.chmod(0o640)
    assert [row["id"] for row in restore(node)["rolled_back"]] == [state_id]
    assert files(node) == before


def test_a_folder_in_which_somebody_else_has_a_file_stays(node):
    applied(node, FIRST)
    plant(node, {"/etc/systemd/system/ray.service.d/60-site.conf": "x"})
    restore(node)
    assert (node / "etc/systemd/system/ray.service.d/60-site.conf").exists()
    assert not (node / UNIT.lstrip("/")).exists()


def test_a_node_without_states_has_nothing_to_undo(node):
    before = tree(node)
    answer = restore(node)
    assert not answer["changed"]
    assert tree(node) == before


def test_a_state_that_is_not_there_is_reported_with_those_that_are(node):
    state_id = applied(node, FIRST)
    answer = restore(node, "20200101T000000Z-kernel")
    assert answer["failed"]
    assert state_id in answer["msg"]


@pytest.mark.parametrize("name", ["files.json", "state.json"])
def test_a_broken_state_is_not_passed_over(node, name):
    older = applied(node, FIRST)
    broken = applied(node, SECOND)
    newest = applied(node, {"C": "4"})
    (node / STATES.lstrip("/") / broken / name).write_text("{")
    before = files(node)
    answer = restore(node, older)
    assert answer["failed"]
    assert f"{broken}/{name} does not hold what unhang saved there" in answer["msg"]
    assert files(node) == before
    # without it the time of its beginning is unknown
    assert restore(node, newest).get("failed", False) is (name == "state.json")


def test_a_clock_that_went_back_changes_no_order(node):
    first = applied(node, FIRST)
    later = first.replace("20", "29", 1)
    (node / STATES.lstrip("/") / first).rename(node / STATES.lstrip("/") / later)
    place = node / STATES.lstrip("/") / later / "state.json"
    place.write_text(place.read_text().replace(first, later))
    second = applied(node, SECOND)
    assert [row["id"] for row in restore(node, check=True)["rolled_back"]] == [second]
    assert [row["id"] for row in restore(node, later)["rolled_back"]] == [second, later]


PACKAGES = {
    "nvidia-driver": "535.261.03-1",
    "libnvidia-ml1": ("hold ok installed", "535.261.03-1"),
    "libnccl2": ("hold ok installed", "2.18.3-1"),
}


class TestHolds:
    """Holds are dpkg's; those that were there before stay."""

    @pytest.fixture
    def held(self, tmp_path):
        """A node with a hold of its own."""
        database = dpkg_status(PACKAGES) + "\n"
        plant(
            tmp_path,
            {
                "/var/lib/dpkg/status": database,
                "/var/lib/dpkg/available": "",
                "/var/lib/dpkg/updates/": "",
                "/etc/apt/": "",
            },
        )
        return tmp_path

    def quiet(self, folder):
        return {
            path: content
            for path, content in files(folder).items()
            if not path.startswith("/var/lib/dpkg") and content is not None
        }

    def test_exactly_the_holds_pins_and_files_that_were_set_are_lifted(self, held):
        before = self.quiet(held)
        state_id = saved(held, "begun", role="package_hold", run="r")["id"]
        assert run_module("package_pin", rootfs=str(held), groups=["driver"], state_id=state_id)[
            "changed"
        ]
        saved(held, "finished", id=state_id)
        assert held_packages(held) == {"nvidia-driver", "libnvidia-ml1", "libnccl2"}
        foretold = restore(held, check=True)
        answer = restore(held)
        assert foretold == answer
        assert [name.split(":")[0] for name in answer["unheld"]] == ["nvidia-driver"]
        assert held_packages(held) == {"libnvidia-ml1", "libnccl2"}
        assert self.quiet(held) == before
        assert not (held / "var/lib/unhang/package_hold.json").exists()

    def test_holds_that_were_let_go_are_set_again(self, held):
        run_module("package_pin", rootfs=str(held), groups=["driver"])
        before, names = self.quiet(held), held_packages(held)
        state_id = saved(held, "begun", role="package_hold", run="r")["id"]
        run_module("package_pin", rootfs=str(held), groups=[], state_id=state_id)
        saved(held, "finished", id=state_id)
        assert held_packages(held) != names
        restore(held)
        assert held_packages(held) == names
        assert self.quiet(held) == before
        assert not run_module("package_pin", rootfs=str(held), groups=["driver"])["changed"]

    def test_a_hold_that_was_there_and_still_is_stays(self, held):
        state_id = saved(held, "begun", role="package_hold", run="r")["id"]
        keep_selections(str(held), state_id, {"libnccl2:amd64": "hold"})
        assert restore(held)["unheld"] == []
        assert "libnccl2" in held_packages(held)

    def test_a_package_that_is_gone_since_needs_no_hold(self, held):
        state_id = saved(held, "begun", role="package_hold", run="r")["id"]
        keep_selections(
            str(held), state_id, {"nvidia-driver-545": "hold", "nvidia-driver-546": "install"}
        )
        assert not restore(held).get("failed")


HELD_LOCK = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('taken',"
    " flush=True); sys.stdin.read()"
)
PARAMETER = "/proc/sys/net/ipv4/tcp_rmem"


def tuned(folder, package):
    """A role that has set a kernel parameter and changed a package. Gives the state's folder on the
    node."""
    plant(
        folder,
        {
            PARAMETER: "2\n",
            "/proc/sys/kernel/random/boot_id": "one\n",
            "/var/lib/dpkg/status": dpkg_status({"half": "2"}),
        },
    )
    state_id = saved(folder, "begun", role="gpu_driver", run="r")["id"]
    keep_running(
        str(folder),
        state_id,
        [Change(kind="sysctl", name="net.ipv4.tcp_rmem", value="1", wanted="2")],
    )
    row = {
        "name": "half",
        "architecture": "amd64",
        "before": "1",
        "after": "2",
        "deb": None,
        "held": False,
        "automatic": False,
        "config_files": True,
    }
    write_saved(
        str(folder),
        f"{STATES}/{state_id}",
        {"manager": "dpkg", "packages": [{**row, **package}], "status": "done"},
    )
    conf(folder, FIRST, state_id)
    saved(folder, "finished", id=state_id)


def test_a_package_manager_that_stays_taken_leaves_everything_as_it_was(node):
    """Whoever has the lock is waited for first: a node is not left half way with its values put
    back and its packages not."""
    tuned(node, {"before": None})
    plant(node, {"/var/lib/dpkg/lock-frontend": ""})
    before = files(node)
    with subprocess.Popen(
        [sys.executable, "-c", HELD_LOCK, str(node / "var/lib/dpkg/lock-frontend")],
        stdin=-1,
        stdout=-1,
        text=True,
    ) as other:
        assert other.stdout.readline() == "taken\n"
        answer = restore(node, lock_timeout_s=0)
        other.stdin.close()
    assert answer["failed"]
    assert f"by /var/lib/dpkg/lock-frontend (pid {other.pid}: " in answer["msg"]
    assert files(node) == before


def test_a_package_that_cannot_come_back_is_refused_before_a_value_is_put_back(node):
    tuned(node, {})
    before = files(node)
    answer = restore(node)
    assert answer["failed"]
    assert "half 1 was not kept; nothing was touched" in answer["msg"]
    assert files(node) == before
