"""The module package_pin on planted trees, with the real dpkg over a planted database."""

from __future__ import annotations

import fcntl
import subprocess

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import dpkg_status, held_packages, plant

from unhang_node.base.parse.dpkg import Database, Package
from unhang_node.base.parse.rpm_locks import parse_versionlock, parse_versionlock_toml
from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.change.package.apt.holds import BLACKLIST_FILE, PIN_FILE, blacklist_text
from unhang_node.change.package.dnf.holds import DNF4_LOCKS, DNF5_LOCKS, plan_locks
from unhang_node.facts.parse.apt import (
    parse_apt_conf,
    parse_preferences,
    pin_priority,
    setting_values,
)
from unhang_node.facts.sections.package_database import read_database, with_locks
from unhang_node.facts.sections.packages import is_blacklisted, read_packages
from unhang_node.facts.sections.rpm_locks import read_rpm_locks

DRIVER = {
    "nvidia-driver": "535.261.03-1",
    "libnvidia-ml1": "535.261.03-1",
    "nvidia-fabricmanager": "535.261.03-1",
    "nvidia-modprobe": "535.161.07-1",
}
KERNEL = {"linux-image-amd64": "6.1.140-1", "linux-image-6.1.0-37-amd64": "6.1.140-1"}
OTHERS = {"bash": "5.2-1", **KERNEL, "libnccl2": "2.18.3-1", "nvidia-container-toolkit": "1.17-1"}


def node(folder, packages=None, **files):
    """A planted node with these packages."""
    status = dpkg_status(packages or {**DRIVER, **OTHERS})
    plant(
        folder,
        {
            "/var/lib/dpkg/status": status + "\n",
            "/var/lib/dpkg/available": "",
            "/var/lib/dpkg/updates/": "",
            "/etc/apt/": "",
            **files,
        },
    )
    return folder


def pin(folder, *what, **more):
    return run_module("package_pin", rootfs=str(folder), groups=list(what), **more)


def facts(folder):
    """Section packages as the audit reads it."""
    root, unread = Root([str(folder)]), Unread()
    return read_packages(root, unread, *read_database(root, unread, "packages"))


def without_state(folder):
    """The tree without the saved state, and without what dpkg keeps for itself beside its status
    (backups, locks, and the order of stanzas)."""
    return {
        path: content
        for path, content in tree(folder).items()
        if not path.startswith(("/var/lib/dpkg", "/var/lib/unhang")) and content is not None
    }


def test_a_preview_of_a_change_that_is_still_to_come_pins_the_versions_that_will_be_there(tmp_path):
    node(tmp_path)
    before = tree(tmp_path)
    new = "535.309.01-1"
    changes = [
        {
            "name": "nvidia-driver",
            "action": "upgrade",
            "before": DRIVER["nvidia-driver"],
            "after": new,
        },
        {
            "name": "nvidia-fabricmanager",
            "action": "remove",
            "before": DRIVER["nvidia-fabricmanager"],
            "after": None,
        },
        {"name": "nvidia-kernel-dkms", "action": "install", "before": None, "after": new},
    ]
    foretold = run_module(
        "package_pin",
        check=True,
        rootfs=str(tmp_path),
        groups=["driver"],
        driver_version="535.309.01",
        changes=changes,
    )
    pins = next(row["after"] for row in foretold["diff"] if row["after_header"] == PIN_FILE)
    assert f"Package: nvidia-driver\nPin: version {new}\n" in pins
    assert f"Package: nvidia-kernel-dkms\nPin: version {new}\n" in pins
    assert "nvidia-fabricmanager" not in pins
    assert tree(tmp_path) == before
    assert "for check mode alone" in pin(tmp_path, "driver", changes=changes)["msg"]


def test_the_driver_is_held_pinned_and_blacklisted_with_its_fabric_manager_and_nothing_else(
    tmp_path,
):
    answer = pin(node(tmp_path), "driver")
    assert answer["changed"]
    assert held_packages(tmp_path) == set(DRIVER)
    section = facts(tmp_path)
    assert {row["package"] for row in section["pins"]} == set(DRIVER)
    assert all(
        pin_priority(section["pins"], name, version, 500) > 1000 for name, version in DRIVER.items()
    )
    assert pin_priority(section["pins"], "nvidia-driver", "535.309.01-1", 500) == 500
    assert all(is_blacklisted(name, section["unattended_upgrades"]["blacklist"]) for name in DRIVER)
    assert not is_blacklisted("bash", section["unattended_upgrades"]["blacklist"])
    assert section["unattended_upgrades"]["covers_driver"] is False


def test_second_run_changes_nothing(tmp_path):
    pin(node(tmp_path), "driver", "kernel")
    before = tree(tmp_path)
    assert not pin(tmp_path, "driver", "kernel")["changed"]
    assert tree(tmp_path) == before


def test_check_mode_writes_nothing_and_foretells_the_same(tmp_path):
    node(tmp_path)
    before = tree(tmp_path)
    foretold = pin(tmp_path, "driver", check=True)
    assert tree(tmp_path) == before
    assert foretold == pin(tmp_path, "driver")


def test_letting_go_takes_off_exactly_what_was_set(tmp_path):
    node(
        tmp_path,
        {
            **DRIVER,
            **OTHERS,
            "libnccl2": ("hold ok installed", "2.18.3-1"),
            "libnvidia-ml1": ("hold ok installed", "535.261.03-1"),
        },
    )
    before = without_state(tmp_path)
    pin(tmp_path, "driver", "nccl", "kernel")
    answer = pin(tmp_path)
    assert answer["changed"]
    assert held_packages(tmp_path) == {"libnccl2", "libnvidia-ml1"}
    assert without_state(tmp_path) == before
    assert not (tmp_path / "var/lib/unhang/package_hold.json").exists()
    assert not pin(tmp_path)["changed"]


def test_a_group_that_is_no_longer_named_is_let_go_and_the_others_stay(tmp_path):
    pin(node(tmp_path), "driver", "kernel")
    answer = pin(tmp_path, "driver")
    assert {name.split(":")[0] for name in answer["unheld"]} == set(KERNEL)
    assert held_packages(tmp_path) == set(DRIVER)
    assert {row["package"] for row in facts(tmp_path)["pins"]} == set(DRIVER)


def test_a_run_that_was_cut_off_can_be_taken_back_and_done_again(tmp_path):
    node(tmp_path)
    lock = (tmp_path / "var/lib/dpkg/lock").open("w")
    fcntl.lockf(lock, fcntl.LOCK_EX)
    assert pin_in_child(tmp_path)["failed"]
    lock.close()
    assert held_packages(tmp_path) == set()
    # as if dpkg had done its part and the power went before the end was saved
    wanted = "".join(f"{name} hold\n" for name in DRIVER)
    subprocess.run(
        ["dpkg", f"--root={tmp_path}", "--set-selections"], input=wanted, text=True, check=True
    )
    assert held_packages(tmp_path) == set(DRIVER)
    pin(tmp_path)  # all that the failed call had begun is undone
    assert held_packages(tmp_path) == set()
    assert not (tmp_path / PIN_FILE.lstrip("/")).exists()
    pin(tmp_path, "driver")
    assert held_packages(tmp_path) == set(DRIVER)


def pin_in_child(folder):
    """With the lock taken by this process; dpkg is another one, to which the lock counts."""
    return pin(folder, "driver", lock_timeout_s=0)


def test_a_lock_that_is_not_given_up_is_reported(tmp_path):
    node(tmp_path)
    with (tmp_path / "var/lib/dpkg/lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        answer = pin_in_child(tmp_path)
    assert answer["failed"]
    assert "dpkg's lock is still taken after 0 s" in answer["msg"]


def test_another_driver_than_the_policys_is_not_held(tmp_path):
    node(tmp_path)
    before = tree(tmp_path)
    answer = pin(tmp_path, "driver", driver_version="580.95.05")
    assert answer["failed"]
    assert "driver 535.161.07, 535.261.03 is installed, not 580.95.05" in answer["msg"]
    assert tree(tmp_path) == before
    assert not pin(tmp_path, "driver", driver_version="535.261.03").get("failed")


def test_a_file_of_somebody_else_is_left_and_told(tmp_path):
    node(tmp_path, **{PIN_FILE: "Package: bash\nPin: version 5*\nPin-Priority: 900\n"})
    answer = pin(tmp_path, "driver")
    assert "somebody else wrote" in answer["needs_manual_action"][0]
    assert "Package: bash" in (tmp_path / PIN_FILE.lstrip("/")).read_text()


def test_a_node_without_packages_of_the_group_changes_nothing(tmp_path):
    assert not pin(node(tmp_path, {"bash": "5.2-1"}), "driver", "kernel")["changed"]


def test_a_node_without_a_package_manager_is_refused(tmp_path):
    plant(tmp_path, {"/etc/": ""})
    answer = pin(tmp_path, "driver")
    assert answer["failed"]
    assert "the node has neither dpkg nor rpm" in answer["msg"]


def test_half_configured_packages_are_reported(tmp_path):
    node(tmp_path, {**DRIVER, "nvidia-kernel-dkms": ("install ok half-configured", "535.261.03-1")})
    assert pin(tmp_path, "driver", check=True)["half_configured"] == ["nvidia-kernel-dkms"]


@pytest.mark.parametrize("name", ["libstdc++6", "nvidia-driver-535", "libnvidia-ml1"])
def test_a_blacklist_entry_matches_its_name_and_no_longer_one(name):
    settings = parse_apt_conf(blacklist_text([Package(name, "1", "amd64", False, "installed")], ()))
    entries = setting_values(settings, "Unattended-Upgrade::Package-Blacklist")
    assert is_blacklisted(name, entries)
    assert not is_blacklisted(name + "0", entries)


def test_the_pin_file_is_what_apt_reads(tmp_path):
    """The real apt-cache, over the planted preferences."""
    pin(node(tmp_path, {**DRIVER, "libnvidia-c++": "1"}), "driver")
    pins = parse_preferences((tmp_path / PIN_FILE.lstrip("/")).read_text())
    assert {row["pin"] for row in pins} == {
        "version 535.261.03-1",
        "version 535.161.07-1",
        "version 1",
    }
    options = [
        "-o",
        f"Dir={tmp_path}",
        "-o",
        f"Dir::State::status={tmp_path}/var/lib/dpkg/status",
        "-o",
        f"Dir::Cache={tmp_path}/cache",
    ]
    output = subprocess.run(
        ["apt-cache", *options, "policy", "nvidia-driver"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "535.261.03-1 1001" in output
    dumped = subprocess.run(
        ["apt-config", "-c", str(tmp_path) + BLACKLIST_FILE, "dump"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert 'Package-Blacklist:: "nvidia-driver$"' in dumped
    assert 'Package-Blacklist:: "libnvidia-c\\+\\+$"' in dumped


RPMS = Database(
    (
        Package("bash", "5.2-1.el9", "x86_64", False, "installed"),
        Package("nvidia-driver", "3:570.86.15-1.el9", "x86_64", False, "installed"),
    )
)


@pytest.mark.parametrize(
    ("path", "parse"), [(DNF4_LOCKS, parse_versionlock), (DNF5_LOCKS, parse_versionlock_toml)]
)
class TestDnf:
    """Version locks of dnf, over planted lock files."""

    def test_the_lock_is_read_back_as_holding_the_package(self, tmp_path, path, parse):
        plan = plan_locks(RPMS, ["driver"], {}, path, None)
        (text,) = [after for _before, after in plan.texts.values()]
        assert [name for _line, name, _pin in parse(text)] == ["nvidia-driver"]
        locks = read_rpm_locks(plant(tmp_path, {path: text}), Unread())
        assert {package.name: package.held for package in with_locks(RPMS, locks).packages} == {
            "bash": False,
            "nvidia-driver": True,
        }

    def test_second_run_changes_nothing(self, path, parse):
        first = plan_locks(RPMS, ["driver"], {}, path, None)
        second = plan_locks(RPMS, ["driver"], first.state, path, first.texts[path][1])
        assert second.texts == {}
        assert second.state == first.state

    @pytest.mark.parametrize("before", [None, "", "# kept\n"])
    def test_letting_go_gives_the_file_back(self, path, parse, before):
        first = plan_locks(RPMS, ["driver"], {}, path, before)
        after = plan_locks(RPMS, [], first.state, path, first.texts[path][1])
        assert after.state == {}
        left = after.texts[path][1]
        if before is None:  # dnf 4 does not start where its list is missing
            assert left == ("" if path == DNF4_LOCKS else None)
        else:
            assert left.endswith(before)
            assert parse(left) == []

    def test_a_newer_version_takes_the_old_locks_place(self, path, parse):
        first = plan_locks(RPMS, ["driver"], {}, path, None)
        newer = Database(
            (Package("nvidia-driver", "3:580.95.05-1.el9", "x86_64", False, "installed"),)
        )
        (text,) = [
            after
            for _before, after in plan_locks(
                newer, ["driver"], first.state, path, first.texts[path][1]
            ).texts.values()
        ]
        assert "580.95.05" in text
        assert "570.86.15" not in text


def test_a_lock_of_somebody_else_stays_when_ours_go():
    theirs = "nvidia-driver-3:570.86.15-1.el9.*\n"
    first = plan_locks(RPMS, ["driver"], {}, DNF4_LOCKS, theirs)
    assert first.texts == {}
    assert plan_locks(RPMS, [], first.state, DNF4_LOCKS, theirs).texts == {}


def test_the_blacklist_path_is_one_that_apt_reads():
    assert BLACKLIST_FILE.rsplit("/", 1)[1].isascii()
    assert "." not in BLACKLIST_FILE.rsplit("/", 1)[1]
