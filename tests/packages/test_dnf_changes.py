"""package_change with the real dnf 4 and rpm on a booted node whose packages are rpm's, with a
repository of packages built here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import module_calls
import pytest
import rpms
from four_nodes import CACHE
from testbed import Testbed

from unhang_node.change.package.dnf.consistency import parse_checked

OLD, NEW = "3:570.86.15-1.el9", "3:580.95.05-1.el9"
NAMES = ("nvidia-driver", "nvidia-driver-cuda-libs")
MORE = ("dnf", "rpm", "dnf-plugins-core")

SITE_PLUGIN = """\
import subprocess
import dnf
class Site(dnf.Plugin):
    name = "site"
    def transaction(self):
        subprocess.run(["rpm", "--erase", "--nodeps", "site-helper"], check=True)
"""


def build_rpms(folder):
    """A repository with both versions of both packages; the driver requires its own libraries."""
    for version in (OLD, NEW):
        bare = version.split(":")[1].split("-")[0]
        for name in NAMES:
            rpms.build(
                folder, name, bare, f"Requires: {NAMES[1]} = 3:{bare}" if name == NAMES[0] else ""
            )
    rpms.build(folder, "site-tool", "1.0", f"Requires: {NAMES[1]} >= {NEW.rsplit('-', 1)[0]}")
    rpms.build(folder, "site-stray", "1.0", "Requires: nothing-has-this")
    rpms.build(folder, "site-helper", "1.0")
    rpms.build(folder, "site-user", "1.0", "Requires: site-helper")
    for version in ("5.14.1", "5.14.2", "5.14.3"):
        rpms.build(folder, "kernel-core", version, "Provides: installonlypkg(kernel)")
    rpms.build(folder, "kmod-site", "1.0", "Requires: kernel-core >= 3:5.14.3")
    return rpms.index(folder)


@pytest.fixture
def node(tmp_path):
    """A booted node whose packages are rpm's: Debian's own database is moved away. Has the old
    driver."""
    repository = build_rpms(tmp_path)

    with Testbed(
        CACHE,
        ["rpm1"],
        prepare=lambda node: rpms.make_rpm_node(node, repository),
        trees={"rpm1": ("bookworm", MORE)},
    ) as bed:
        booted = bed.nodes["rpm1"]
        rpms.begin_rpm(booted)
        booted.shell(f"dnf -q -y install {NAMES[0]}-{OLD}", timeout_s=rpms.DEADLINE_S)
        yield SimpleNamespace(bed=bed, nodes=bed.nodes, work=tmp_path)


def call(node, module, check=False, **options):
    return module_calls.call_module(node, "rpm1", module, check, **options)


def versions(node):
    """Installed versions of the driver's packages, as rpm reports them."""
    return sorted(
        node.nodes["rpm1"]
        .shell("rpm -q --qf '%{EPOCH}:%{VERSION}-%{RELEASE}\n' " + " ".join(NAMES))
        .split()
    )


def test_a_driver_goes_up_and_down_and_comes_back(node):
    assert [
        row["version"]
        for row in call(node, "package_offers", names=["nvidia-driver"])["offers"]["nvidia-driver"]
    ] == [NEW, OLD]
    wanted = {"install": {"nvidia-driver": NEW}, "expect": {NAMES[1]: NEW}}
    before = rpms.state_of(node.nodes["rpm1"])
    foretold = call(node, "package_change", check=True, **wanted)
    assert rpms.state_of(node.nodes["rpm1"]) == before
    assert [(row["name"], row["action"]) for row in foretold["changes"]] == [
        (name, "upgrade") for name in NAMES
    ]
    state_id = call(node, "saved_state", state="begun", role="gpu_driver", run="r1")["id"]
    done = call(node, "package_change", state_id=state_id, **wanted)
    assert done["changed"], done
    assert done["changes"] == foretold["changes"]
    assert versions(node) == [NEW, NEW]
    assert not call(node, "package_change", state_id=state_id, **wanted)["changed"]

    refused = call(node, "package_change", check=True, install={"nvidia-driver": OLD})
    assert "allow_downgrade: true allows it" in refused["msg"]
    refused = call(node, "package_change", check=True, install={"nvidia-driver": "3:525.1-1.el9"})
    assert f"nvidia-driver has on offer: {NEW}, {OLD}" in refused["msg"]

    second = call(node, "saved_state", state="begun", role="fabric_manager", run="r1")["id"]
    down = call(
        node,
        "package_change",
        state_id=second,
        install={"nvidia-driver": OLD},
        allow_downgrade=True,
    )
    assert {row["action"] for row in down["changes"]} == {"downgrade"}
    assert versions(node) == [OLD, OLD]
    assert call(node, "state_restore", id=second)["changed"]
    assert versions(node) == [NEW, NEW]
    node.nodes["rpm1"].shell("rm -r /srv/repository")
    assert call(node, "state_restore", id=state_id)["changed"]
    assert versions(node) == [OLD, OLD]


@pytest.mark.nightly
def test_a_rollback_that_would_break_what_an_admin_has_installed_since_names_it(node):
    booted = node.nodes["rpm1"]
    # its requirements were unmet before, so they are no fault of a change
    booted.shell("rpm --upgrade --nodeps /srv/repository/site-stray-*.rpm")
    assert parse_checked(booted.shell("dnf -q check --dependencies || true")) == [
        "site-stray-3:1.0-1.el9.noarch: needs nothing-has-this"
    ]
    state_id = call(node, "saved_state", state="begun", role="gpu_driver", run="r1")["id"]
    done = call(
        node,
        "package_change",
        state_id=state_id,
        install={"nvidia-driver": NEW},
        expect={NAMES[1]: NEW},
    )
    assert done["changed"], done
    booted.shell("dnf -q -y install site-tool", timeout_s=rpms.DEADLINE_S)
    for check in (True, False):
        before = rpms.state_of(booted) if check else None
        refused = call(node, "state_restore", check=check, id=state_id)
        assert "the rollback would break other packages" in refused["msg"]
        assert check or refused["untouched"] is True
        assert f"site-tool-3:1.0-1.el9.noarch: needs {NAMES[1]} >= 3:580.95.05" in refused["msg"]
        assert "remove site-tool first" in refused["msg"]
        assert versions(node) == [NEW, NEW]
        assert before is None or rpms.state_of(booted) == before
    booted.shell("rpm --erase site-tool")
    kept = (
        f"/var/lib/unhang/states/{state_id}/packages/old/{NAMES[1]}-{OLD.split(':')[1]}.noarch.rpm"
    )
    booted.shell(f"truncate -s 200 {kept} && mv /srv/repository /srv/away")
    refused = call(node, "state_restore", id=state_id)
    assert "it is 200 bytes with SHA-256" in refused["msg"]
    assert versions(node) == [NEW, NEW]
    booted.shell("mv /srv/away /srv/repository")
    assert call(node, "state_restore", id=state_id)["changed"], "a repository has the very file"
    assert versions(node) == [OLD, OLD]


@pytest.mark.nightly
def test_a_change_after_which_dnf_check_fails_is_no_success_and_can_be_rolled_back(node):
    """dnf's own transaction is complete; a plugin of dnf that the site added removes something."""
    booted = node.nodes["rpm1"]
    booted.shell("dnf -q -y install site-user", timeout_s=rpms.DEADLINE_S)
    booted.write("/usr/lib/python3/dist-packages/dnf-plugins/site.py", SITE_PLUGIN)
    state_id = call(node, "saved_state", state="begun", role="gpu_driver", run="r1")["id"]
    failed = call(
        node,
        "package_change",
        state_id=state_id,
        install={"nvidia-driver": NEW},
        expect={NAMES[1]: NEW},
    )
    assert failed["stopped_at"] == "applying"
    assert "site-user-3:1.0-1.el9.noarch: needs site-helper" in failed["msg"]
    assert (
        json.loads(booted.shell(f"cat /var/lib/unhang/states/{state_id}/packages.json"))["status"]
        == "failed"
    )
    assert versions(node) == [NEW, NEW]
    assert call(node, "state_restore", id=state_id)["changed"]
    assert versions(node) == [OLD, OLD]


@pytest.mark.nightly
def test_a_kernel_that_dnf_would_install_beside_others_is_refused_for_rpm_would_take_those_away_in_a_rollback(
    node,
):
    booted = node.nodes["rpm1"]
    booted.shell(
        "dnf -q -y install kernel-core-3:5.14.1 && dnf -q -y install kernel-core-3:5.14.2",
        timeout_s=rpms.DEADLINE_S,
    )
    kernels = "rpm -q --qf '%{VERSION}\n' kernel-core | sort"
    assert booted.shell(kernels).split() == ["5.14.1", "5.14.2"]
    state_id = call(node, "saved_state", state="begun", role="gpu_driver", run="r1")["id"]
    answer = call(node, "package_change", state_id=state_id, install={"kmod-site": "3:1.0-1.el9"})
    if answer["changed"]:
        call(node, "state_restore", id=state_id)
    assert booted.shell(kernels).split() == ["5.14.1", "5.14.2"]
    assert "kernel-core 3:5.14.3-1.el9 would be installed beside 3:5.14." in answer["msg"]
    assert booted.shell("rpm -q kmod-site || :").strip() == "package kmod-site is not installed"
