"""The module package_change on a booted node: real apt and dpkg, a repository of small packages, real systemd around them."""

from __future__ import annotations

import pytest
from module_calls import call_module
from repository import APT, build_package, serve
from role_plays import state_of

NODE = "gpu001"
OLD, NEW = "535.261.03-1", "535.309.01-1"
STATE = "20261120T070000Z-gpu_driver"
FOLDER = f"/var/lib/unhang/states/{STATE}"
PIN = "/etc/apt/preferences.d/unhang-driver"


def driver(folder, version, **scripts):
    """The packages of a driver: the library carries a file, the driver wants the library of its own version."""
    library = build_package(folder, "libnvidia-ml1", version, ["/usr/lib/nvidia/libnvidia-ml.so.1"])
    return [library, build_package(folder, "nvidia-driver", version, ["/usr/share/nvidia/version"], f"Depends: libnvidia-ml1 (= {version})\n", **scripts)]


@pytest.fixture
def node(fleet, tmp_path):
    """A node with the old driver, whose repository has both."""
    serve(fleet, NODE, [*driver(tmp_path, OLD), *driver(tmp_path, NEW)])
    fleet.shell(NODE, f"{APT} install nvidia-driver={OLD} libnvidia-ml1={OLD}")
    return fleet


def change(fleet, check=False, **options):
    """package_change with a saved state."""
    return call_module(fleet, NODE, "package_change", check, **{"state_id": STATE, **options})


def request(version):
    """What the driver's role asks for."""
    stanzas = [{"package": "src:nvidia-driver", "version": version}]
    return {"install": {"nvidia-driver": version}, "expect": {"libnvidia-ml1": version}, "pin": {"file": PIN, "stanzas": stanzas}}


def versions(fleet):
    """{package: version} of the driver."""
    said = fleet.shell(NODE, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' nvidia-driver libnvidia-ml1")
    return {line.split()[0]: line.split()[1] for line in said.splitlines() if line.split()[2] == "ii"}


RESTORE = (
    "import json, sys; sys.path.insert(0, '/srv/unhang'); from unhang_node.change.package_restore import restore_packages; "
    "print(json.dumps(restore_packages('/', '{folder}', 20, {check})))"
)


def restore(fleet, check=False):
    """What rollback calls, on the node."""
    import json
    from pathlib import Path

    import audits

    for path in (audits.PROJECT / "module_utils").rglob("*.py"):
        fleet.nodes[NODE].write(f"/srv/unhang/{path.relative_to(audits.PROJECT / 'module_utils')}", Path(path).read_text())
    code = RESTORE.format(folder=FOLDER, check=check)
    return json.loads(fleet.shell(NODE, f'python3 -c "{code}"; rm -rf /srv/unhang').splitlines()[-1])


def test_a_driver_goes_up_with_its_library_and_comes_back(node):
    before = state_of(node, NODE)
    foretold = change(node, check=True, **request(NEW))
    assert state_of(node, NODE) == before
    done = change(node, **request(NEW))
    assert done["changed"]
    assert done["changes"] == foretold["changes"]
    assert [(row["name"], row["action"], row["after"]) for row in done["changes"]] == [("libnvidia-ml1", "upgrade", NEW), ("nvidia-driver", "upgrade", NEW)]
    assert versions(node) == {"nvidia-driver": NEW, "libnvidia-ml1": NEW}
    again = state_of(node, NODE)
    assert not change(node, **request(NEW))["changed"]
    assert state_of(node, NODE) == again
    assert len(restore(node, check=True)) == 2
    assert versions(node) == {"nvidia-driver": NEW, "libnvidia-ml1": NEW}
    assert len(restore(node)) == 2
    assert versions(node) == {"nvidia-driver": OLD, "libnvidia-ml1": OLD}
    assert restore(node) == []
