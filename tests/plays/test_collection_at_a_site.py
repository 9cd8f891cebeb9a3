"""The collection unhang.ops from its archive, in a folder that knows no checkout: the example of each
role, the audit as a playbook, and the documentation of each module."""

from __future__ import annotations

import json
import shlex
import subprocess

import installed_collection
import pytest
import yaml
from documented_command import as_typed
from fakes.ansible_module import tree
from fakes.node_tree import dpkg_status, nccl_library, plant
from installed_collection import AUDIT, PROJECT, blocks_of

ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir())
FRAMES = {"drain", "node_change", "undo"}  # parts of other playbooks, which show tasks or nothing
PACKAGES = {
    "nvidia-driver": "535.261.03-1", "linux-image-amd64": "6.1.140-1", "libnccl2": "2.18.3-1",
}  # fmt: skip
ROUTE = "bond0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
# What a node has to have for the example of a role: files, further variables, and the line of the
# preview's difference that shows that the role reached its aim.
APPLIED = {
    "package_hold": (
        {
            "/var/lib/dpkg/status": dpkg_status(PACKAGES) + "\n",
            "/var/lib/dpkg/available": "",
            "/var/lib/dpkg/updates/": "",
        },
        "+nvidia-driver:amd64",
    ),
    "nccl_profile": (
        {
            "/etc/os-release": "ID=debian\n",
            "/var/lib/": "",
            "/usr/lib/x86_64-linux-gnu/libnccl.so.2": nccl_library("2.27.5"),
            "/sys/class/net/bond0/operstate": "up\n",
            "/sys/class/net/bond0/type": "1\n",
            "/proc/net/route": f"Iface\tDestination\tGateway\tFlags\n{ROUTE}",
            "/proc/net/fib_trie": (
                "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.7\n        /32 host LOCAL\n"
            ),
            "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "/sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp\n",
            "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        },
        "+NCCL_DEBUG=WARN",
    ),
    "host_tuning": (
        {
            "/etc/os-release": "ID=debian\nVERSION_ID=12\n",
            "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n",
            "/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
            "/proc/sys/kernel/numa_balancing": "1\n",
            "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
            "/etc/security/limits.conf": "* hard memlock 64\n",
            "/etc/default/grub": "GRUB_DEFAULT=0\n",
            "/usr/sbin/update-grub": "",
            "/var/lib/dpkg/status": "",
        },
        "+* hard memlock unlimited",
    ),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return installed_collection.build(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def site(archive, tmp_path_factory):
    return installed_collection.install(archive, tmp_path_factory.mktemp("site"))


def example(site, role, group="training"):
    """Writes the files that the role's page shows."""
    shown = blocks_of(role)
    assert "site.yml" in shown, role
    (play,) = yaml.safe_load(shown["site.yml"])
    assert f"unhang.ops.{role}" in json.dumps(play["roles"])
    for name, text in shown.items():
        site.write(name, text)
    return play["hosts"]


@pytest.mark.parametrize("role", [role for role in ROLES if role not in FRAMES])
def test_the_example_of_each_role_is_a_playbook_of_a_site(site, role):
    site.inventory(example(site, role))
    done = site("playbook", "site.yml", "-i", "hosts.yml", "--syntax-check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", sorted(APPLIED))
def test_the_example_is_previewed_applied_and_then_changes_nothing(site, role, tmp_path):
    files, wanted = APPLIED[role]
    node = tmp_path / "node"
    plant(node, files)
    site.inventory(
        example(site, role),
        **{
            "unhang_rootfs": [str(node)],
            f"{role}_rootfs": str(node),
            "host_tuning_persistence": False,  # NVML and systemctl are those of this machine
        },
    )
    before = tree(node)
    preview = site("playbook", "site.yml", "-i", "hosts.yml", "--check", "--diff")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert wanted in preview.stdout
    assert tree(node) == before
    applied = site("playbook", "site.yml", "-i", "hosts.yml")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert tree(node) != before
    again = site("playbook", "site.yml", "-i", "hosts.yml")
    assert "changed=0" in again.stdout, again.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in (PROJECT / "library").glob("*.py")))
def test_ansible_doc_describes_each_module_by_its_full_name(site, name):
    done = site("doc", "-t", "module", "-j", f"unhang.ops.{name}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)[f"unhang.ops.{name}"]
    assert told["doc"]["collection"] == "unhang.ops"
    examples = yaml.safe_load(told["examples"]) or []
    assert f"unhang.ops.{name}" in {key for task in examples for key in task} or not examples


def test_ansible_doc_describes_each_role_and_playbooks_are_found(site):
    done = site("doc", "-t", "role", "--list", "-j", "unhang.ops")
    assert done.returncode == 0, done.stderr
    assert {f"unhang.ops.{role}" for role in ROLES} == {*json.loads(done.stdout)}
    for path in (PROJECT / "playbooks").glob("*.yml"):
        site.inventory()
        checked = site("playbook", f"unhang.ops.{path.stem}", "-i", "hosts.yml", "--syntax-check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_audit_is_a_playbook_that_writes_its_run_where_it_is_called(archive, tmp_path):
    site = installed_collection.install(archive, tmp_path, AUDIT)
    site.inventory()
    typed = as_typed("ansible-playbook unhang.ops.audit -i hosts.yml")
    done = site("playbook", *typed[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "judged" in done.stdout and "1 node: " in done.stdout, done.stdout + done.stderr
    (node,) = (site.folder / "runs" / "latest" / "nodes").glob("*.json")
    assert json.loads(node.read_text())["status"] == "ok"
    assert not list(site.collection.rglob("runs"))
    shown = done.stdout.replace("\\\n", " ")
    pasted = shlex.split(shown.partition("  run ")[2].partition("\n")[0])
    previewed = site("playbook", *pasted[1:])
    asked = "ansible-playbook unhang.ops.remediate -e unhang_roles=host_tuning -i hosts.yml"
    assert pasted == [*asked.split(), "--limit", "here"]
    assert previewed.returncode == 0, previewed.stdout + previewed.stderr
    every = shlex.split(shown.partition("every finding:")[2].split("next:")[0])
    told = subprocess.run(
        every, cwd=site.folder, env=site.environment(), capture_output=True, text=True
    )
    assert "found" in told.stdout, told.stderr


def test_the_audit_without_its_packages_stops_before_a_node_is_asked(site):
    site.inventory()
    done = site("playbook", "unhang.ops.audit", "-i", "hosts.yml")
    said = done.stdout + done.stderr
    again = f"-P -m pip install -r {site.collection}/requirements.txt\n"
    assert said == f"unhang: No module named 'ClusterShell'; next: {site.python} {again}"
    assert done.returncode != 0
    assert not (site.folder / "runs").exists()
