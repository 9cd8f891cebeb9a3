"""The driver's kernel modules are built by DKMS against the headers of Debian's real kernels; where the branch is too old for the kernel, why is told."""

from __future__ import annotations

import conftest
from test_driver_transitions import begun, driver_of

from unhang_node.change.dkms.state import has_headers, read_builds, why_not_built
from unhang_node.root import Root


def root_of(node):
    """The node's files."""
    return Root([str(node.fleet.nodes[node.name].root)])


def install_headers(node, version):
    """Headers of a real kernel; gives its release."""
    node.shell(f"DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install linux-headers-amd64={version}")
    (release,) = node.shell("ls /lib/modules").split()
    assert has_headers(root_of(node), release)
    return release


def change(node, words, version, source, **options):
    """package_change to the modules of one source."""
    pin = {"file": "/etc/apt/preferences.d/unhang-driver", "stanzas": [{"package": f"src:{source}", "version": version}]}
    return node.call("package_change", install=dict.fromkeys(words, version), pin=pin, root_free_min_mib=50, deadline_s=3000, **options)


def test_the_branch_is_built_for_its_releases_own_kernel(deb12):
    kernel = install_headers(deb12, deb12.versions["headers"])
    old = deb12.versions["old"]
    done = change(deb12, ("nvidia-kernel-dkms",), old, conftest.SOURCE, state_id=begun(deb12))
    assert done["changed"], done.get("msg")
    builds = read_builds(root_of(deb12))
    assert [(build.version, build.kernel, build.state) for build in builds] == [(driver_of(old), kernel, "installed")]
    assert why_not_built(builds, "nvidia*", kernel, driver_of(old)) == ""


def test_a_branch_too_old_for_the_kernel_is_told_with_the_line_of_the_log_and_comes_back(deb12):
    kernel = install_headers(deb12, deb12.versions["new headers"])
    before, state_id = deb12.installed(), begun(deb12)
    failed = change(deb12, conftest.T470[1:], deb12.versions["470"], f"{conftest.SOURCE}-tesla-470", state_id=state_id)
    builds = read_builds(root_of(deb12))
    told = why_not_built(builds, "nvidia*", kernel)
    assert f"does not build for kernel {kernel}" in told
    assert "make.log line" in told
    assert failed["stopped_at"] == "applying"
    assert deb12.call("state_restore", id=state_id)["changed"]
    assert deb12.installed() == before
    assert deb12.shell("dpkg --audit") == ""
