"""Services that packages of several branches contain under one name: whether they start at boot is
the same after a change and after its rollback."""

from __future__ import annotations

import pytest
from module_calls import call_module
from repository import APT, build_package, serve

NODE = "gpu001"
UNIT = "nvidia-fabricmanager.service"
LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
# the last has no scripts
OLD, NEW, BARE = "nvidia-fabricmanager-535", "nvidia-fabricmanager-550", "nvidia-fabricmanager-560"
TEXT = "[Unit]\nDescription=x\n[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
# What dh_installsystemd --no-enable writes (debhelper 13), with the mask of releases before 13.11.
POSTINST = f"""
if deb-systemd-helper debian-installed {UNIT}; then
    deb-systemd-helper unmask {UNIT} >/dev/null || :
    if deb-systemd-helper --quiet was-enabled {UNIT}; then deb-systemd-helper enable {UNIT} >/dev/null || :; fi
fi
deb-systemd-helper update-state {UNIT} >/dev/null || :"""
POSTRM = f"""
case $1 in
remove) deb-systemd-helper mask {UNIT} >/dev/null || : ;;
purge) deb-systemd-helper purge {UNIT} >/dev/null || :; deb-systemd-helper unmask {UNIT} >/dev/null || : ;;
esac"""
FIELDS = (
    "Provides: nvidia-fabricmanager\nConflicts: nvidia-fabricmanager\nReplaces:"
    " nvidia-fabricmanager\n"
)


def package(folder, name, version, **scripts):
    """A branch's fabric manager, which has the same unit as in all branches."""
    place = folder / f"{name}-{version}/lib/systemd/system/{UNIT}"
    place.parent.mkdir(parents=True)
    place.write_text(TEXT)
    return build_package(folder, name, version, [f"/usr/share/nvidia/{version}"], FIELDS, **scripts)


@pytest.fixture
def node(fleet, tmp_path):
    """The fleet, whose node has the old branch and can install both."""
    scripts = {"postinst": POSTINST, "postrm": POSTRM}
    serve(
        fleet,
        NODE,
        [
            package(tmp_path, OLD, "535.1-1", **scripts),
            package(tmp_path, NEW, "550.1-1", **scripts),
            package(tmp_path, BARE, "560.1-1"),
        ],
    )
    fleet.shell(NODE, f"{APT} install {OLD}")
    fleet.undo.callback(
        fleet.shell, NODE, f"rm -f {LINK} /etc/systemd/system/{UNIT}; systemctl daemon-reload"
    )
    return fleet


def look(fleet):
    """Whether the service starts at boot, and all links for it."""
    fleet.shell(NODE, "systemctl daemon-reload")
    links = fleet.shell(NODE, f"find /etc/systemd/system -name '{UNIT}' -printf '%p %l\\n' | sort")
    return fleet.shell(NODE, f"systemctl is-enabled {UNIT} || :").strip(), links


@pytest.mark.parametrize("state", ["enabled", "disabled"])
def test_a_service_of_both_branches_starts_at_boot_after_a_rollback_as_it_did_before(node, state):
    if state == "enabled":
        node.shell(NODE, f"systemctl enable {UNIT} 2>&1")
    before = look(node)
    assert before[0] == state
    state_id = call_module(node, NODE, "saved_state", state="begun", role="gpu_driver", run="r1")[
        "id"
    ]
    done = call_module(
        node,
        NODE,
        "package_change",
        state_id=state_id,
        install={NEW: "550.1-1"},
        allow_remove=[OLD],
        root_free_min_mib=20,
    )
    assert done["changed"], done
    assert call_module(node, NODE, "state_restore", id=state_id)["changed"]
    assert node.shell(NODE, f"dpkg-query -W -f '${{db:Status-Abbrev}}' {OLD}").strip() == "ii"
    assert look(node) == before


def test_a_link_of_a_service_goes_with_the_package_that_brought_it(node):
    node.shell(NODE, f"dpkg --purge {OLD}")
    before = look(node)[1]
    state_id = call_module(
        node, NODE, "saved_state", state="begun", role="fabric_manager", run="r1"
    )["id"]
    done = call_module(
        node,
        NODE,
        "package_change",
        state_id=state_id,
        install={BARE: "560.1-1"},
        root_free_min_mib=20,
    )
    assert done["changed"], done
    node.shell(NODE, f"ln -s /lib/systemd/system/{UNIT} {LINK}")
    assert call_module(node, NODE, "state_restore", id=state_id)["changed"]
    assert look(node)[1] == before == ""
