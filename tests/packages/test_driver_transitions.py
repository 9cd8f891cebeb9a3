"""Real drivers of Debian's archive are upgraded, moved to another package family, held and rolled
back on booted nodes; downgrades: test_role_gpu_driver.py.

The versions are read from the archive's index. Debian 12's 525 (nvidia-tesla-driver) is not
available any more: its last packages are empty and install 535, so the upgrade from an older branch
is 470 to 535, and the one within a branch is 535.216 to 535.261 or the security archive's version.
"""

from __future__ import annotations

import re

from archive import ORIGIN
from debian_node import CONTROL_PACKAGE, PROPRIETARY, SOURCE, T470

PIN = "/etc/apt/preferences.d/unhang-driver"
LOOKED_AT = (
    "/etc /var/lib/dpkg /var/lib/apt /var/cache/apt /var/cache/debconf /var/lib/unhang"
    " /var/lib/dkms /usr /var/tmp /boot"
)
UNATTENDED = f"""Unattended-Upgrade::Origins-Pattern {{ "origin={ORIGIN}"; }};
Unattended-Upgrade::Allow-downgrade "false";
"""


def request(packages, version, source, library, leaves=()):
    """The request of a role that wants a whole source at one version. leaves: sources of the family
    that it replaces.

    Families can be installed side by side, and old libraries would satisfy the new programs: so the
    request names the library and removes the old ones.
    """
    pin = {"file": PIN, "stanzas": [{"package": f"src:{source}", "version": version}]}
    return {
        "install": dict.fromkeys([*packages, library], version), "pin": pin,
        "expect": {library: f"{driver_of(version)}-*"}, "allow_downgrade": True,
        "remove_sources": list(leaves), "allow_remove": ["*nvidia*", "libcuda1", "libnv*"],
        "root_free_min_mib": 50,
    }  # fmt: skip


def driver_of(version):
    """535.261.03 for 535.261.03-1."""
    return version.split(":")[-1].split("-")[0]


def files_of(node):
    """Names, modes and times of everything that a change could have touched, except for the lock's
    counter and its folder; folders have no times."""
    listed = node.shell(
        f"find {LOOKED_AT} -type d -printf '%p %m %U %G\\n' -o -printf '%p %m %U %G %s %T@ %l\\n'"
        " 2>/dev/null | sort"
    ).splitlines()
    return [
        line
        for line in listed
        if not line.startswith(("/var/lib/unhang ", "/var/lib/unhang/fencing.json "))
    ]


def drivers(node):
    """Versions of the driver's packages, without revisions."""
    found = node.installed("*nvidia*", "libcuda1")
    # Packages with sources of their own, and packages that Debian's families share.
    others = (
        "nvidia-modprobe",
        "nvidia-persistenced",
        "nvidia-xconfig",
        "nvidia-settings",
        "nvidia-egl-common",
    )
    return {
        driver_of(version)
        for name, version in found.items()
        if re.match(r"\d{3}\.\d", version) and not name.startswith(others)
    }


def begun(node):
    """Id of a saved state."""
    return node.call("saved_state", state="begun", role="gpu_driver", run="r1")["id"]


def check_change(node, wanted):
    """Previewed, applied and repeated: the requested packages are installed completely; gives the
    id of the saved state."""
    files = files_of(node)
    foretold = node.call("package_change", check=True, **wanted)
    assert foretold["changed"], foretold.get("msg")
    assert files_of(node) == files
    state_id = begun(node)
    done = node.call("package_change", state_id=state_id, **wanted)
    assert done["changed"], done.get("msg")
    assert done["changes"] == foretold["changes"]
    assert done["after"] == foretold["after"]
    assert node.shell("dpkg --audit") == ""
    files = files_of(node)
    again = node.call("package_change", state_id=state_id, **{**wanted, "update_cache": False})
    assert not again["changed"]
    assert "msg" not in again
    assert files_of(node) == files
    return state_id


def check_rollback(node, state_id, before):
    """The saved state restores every package."""
    assert node.call("state_restore", id=state_id)["changed"]
    assert node.installed() == before
    assert node.shell("dpkg --audit") == ""
    assert not node.fleet.nodes[node.name].place(PIN).exists()


def test_an_older_branch_goes_up_into_another_family_of_packages_and_comes_back(deb12):
    old = deb12.versions["old"]
    deb12.install(T470, deb12.versions["470"], f"{SOURCE}-tesla-470")
    before = deb12.installed()
    state_id = check_change(
        deb12, request(PROPRIETARY, old, SOURCE, "libnvidia-ml1", [f"{SOURCE}-*"])
    )
    assert drivers(deb12) == {driver_of(old)}
    assert not deb12.installed("nvidia-tesla-470-driver")
    check_rollback(deb12, state_id, before)


def test_a_driver_goes_up_within_its_branch_and_is_held_against_every_upgrade(deb12):
    older, old, new = (deb12.versions[age] for age in ("older", "old", "new"))
    deb12.install((*PROPRIETARY, f"{CONTROL_PACKAGE}=1"), older)
    check_change(deb12, request(PROPRIETARY, old, SOURCE, "libnvidia-ml1"))
    assert drivers(deb12) == {driver_of(old)}
    assert deb12.call("package_pin", groups=["driver"], driver_version=driver_of(old))["changed"]
    held = deb12.installed()

    deb12.fleet.plant(deb12.name, "/etc/apt/apt.conf.d/60test", UNATTENDED)
    output = deb12.shell("unattended-upgrade --verbose --debug 2>&1")
    assert deb12.installed() == {**held, CONTROL_PACKAGE: "2"}, output
    deb12.shell(f"apt-get -q -y --allow-downgrades install {CONTROL_PACKAGE}=1")
    deb12.shell("DEBIAN_FRONTEND=noninteractive apt-get -q -y full-upgrade")
    assert deb12.installed() == {**held, CONTROL_PACKAGE: "2"}

    wanted = request(PROPRIETARY, new, SOURCE, "libnvidia-ml1")
    shown = deb12.call("package_change", check=True, **wanted)
    assert "is on hold by unhang; change_held: true lets it move" in shown["msg"]
    state_id = begun(deb12)
    done = deb12.call("package_change", state_id=state_id, change_held=True, **wanted)
    assert done["changed"], done.get("msg")
    assert drivers(deb12) == {driver_of(new)}
    deb12.call("package_pin", groups=["driver"], driver_version=driver_of(new))
    deb12.shell("DEBIAN_FRONTEND=noninteractive apt-get -q -y full-upgrade")
    assert drivers(deb12) == {driver_of(new)}


def test_a_name_that_stands_for_another_driver_is_refused(deb12):
    """Debian 12's nvidia-tesla-driver has 525 in its name and installs 535."""
    offered = deb12.call("package_offers", names=["nvidia-tesla-driver"])["offers"][
        "nvidia-tesla-driver"
    ][0]["version"]
    assert offered.startswith("525.")
    wanted = {
        "install": {"nvidia-tesla-driver": offered},
        "expect": {"libnvidia-ml1": f"{driver_of(offered)}-*"},
    }
    answer = deb12.call("package_change", check=True, **wanted)
    assert any(line.startswith("libnvidia-ml1 would be 535.") for line in answer["refused"]), answer
