"""The module service_running for a service of which only the link counts that starts it at boot:
created, removed, and restored by a rollback."""

from __future__ import annotations

import pytest
from fakes.ansible_module import run_module
from fakes.node_tree import Link, plant

from unhang_node.change.journal.saved_states import begin_state
from unhang_node.change.rollback.restore import apply_restore, plan_restore

UNIT = "nvidia-fabricmanager.service"
FILE = f"/usr/lib/systemd/system/{UNIT}"
WANTS = "/etc/systemd/system/{}.target.wants/" + UNIT
STATUS = "Package: nothing\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n"


def starters(root):
    return sorted(
        path.parent.name[: -len(".target.wants")]
        for path in (root / "etc").rglob("*")
        if path.name == UNIT
    )


@pytest.mark.parametrize(
    ("linked", "link", "after"),
    [
        ([], "present", ["multi-user"]),
        (["multi-user"], "present", ["multi-user"]),
        (["graphical"], "present", ["graphical"]),
        (["site"], "present", ["multi-user", "site"]),
        (["multi-user", "graphical", "site"], "absent", ["site"]),
        ([], "absent", []),
    ],
)
def test_the_link_is_made_or_removed_previewed_and_brought_back(tmp_path, linked, link, after):
    plant(
        tmp_path,
        {
            FILE: "[Unit]\n",
            "/var/lib/dpkg/status": STATUS,
            "/proc/sys/kernel/random/boot_id": "b\n",
        },
    )
    plant(tmp_path, {WANTS.format(target): Link(FILE) for target in linked})
    state_id = begin_state(str(tmp_path), "fabric_manager", "run-1")[0]["id"]
    options = {"name": UNIT, "boot_link": link, "rootfs": str(tmp_path)}
    assert run_module("service_running", check=True, **options)["changed"] == (
        sorted(linked) != after
    )
    assert starters(tmp_path) == sorted(linked)
    done = run_module("service_running", state_id=state_id, **options)
    assert done["changed"] == (sorted(linked) != after)
    assert starters(tmp_path) == after
    assert all(
        (tmp_path / WANTS.format(target).lstrip("/")).readlink().name == UNIT for target in after
    )
    assert not run_module("service_running", state_id=state_id, **options)["changed"]
    plan = plan_restore(str(tmp_path), state_id)
    assert list(plan.manual) == []
    apply_restore(str(tmp_path), plan, 1)
    assert starters(tmp_path) == sorted(linked)


def test_what_somebody_has_linked_since_stays(tmp_path):
    plant(tmp_path, {FILE: "[Unit]\n", "/proc/sys/kernel/random/boot_id": "b\n"})
    state_id = begin_state(str(tmp_path), "fabric_manager", "run-1")[0]["id"]
    run_module(
        "service_running", name=UNIT, boot_link="present", rootfs=str(tmp_path), state_id=state_id
    )
    plant(tmp_path, {WANTS.format("graphical"): Link(FILE)})
    [line] = plan_restore(str(tmp_path), state_id).manual
    assert line.startswith(f"started by {UNIT}: unhang left ['multi-user.target']")


def test_a_unit_that_is_not_there_yet_is_previewed_and_not_linked(tmp_path):
    (tmp_path / "etc").mkdir()
    options = {"name": UNIT, "boot_link": "present", "rootfs": str(tmp_path)}
    assert run_module("service_running", check=True, **options)["changed"]
    assert f"this node has no {UNIT}" in run_module("service_running", **options)["msg"]
    assert starters(tmp_path) == []
