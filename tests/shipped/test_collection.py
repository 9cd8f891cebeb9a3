"""The collection unhang.ops in a folder that knows no checkout: what README shows of host_tuning,
the names in the files, and what is there of a collection's own files."""

from __future__ import annotations

import json
import re
import tarfile

import installed_collection
import pytest
import yaml
from fakes.node_tree import plant
from installed_collection import PROJECT, blocks_of

from unhang import __version__

NODE = {
    "/etc/os-release": "ID=debian\nVERSION_ID=12\n",
    "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n",
    "/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
    "/etc/security/limits.conf": "* hard memlock 64\n",
    "/etc/default/grub": "GRUB_DEFAULT=0\n",
    "/usr/sbin/update-grub": "",
    "/var/lib/dpkg/status": "",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return installed_collection.build(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def site(archive, tmp_path_factory):
    """ansible-core and the collection, nothing else."""
    return installed_collection.install(archive, tmp_path_factory.mktemp("elsewhere"))


def test_the_example_of_host_tuning_works_with_ansible_core_alone_and_its_defaults(site):
    shown = blocks_of("host_tuning")
    plant(site.folder / "node", NODE)
    node = str(site.folder / "node")
    # NVML and systemctl would act on this machine itself
    site.inventory(unhang_rootfs=[node], host_tuning_rootfs=node, host_tuning_persistence=False)
    for name, text in shown.items():
        site.write(name, text)
    done = site("playbook", "site.yml", "-i", "hosts.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    written = site.folder / "node/etc/security/limits.d/00-unhang-memlock.conf"
    assert "* hard memlock unlimited" in written.read_text()
    assert not (site.folder / "runs").exists()


def test_every_name_of_the_tree_that_the_collection_qualifies_is_qualified(site):
    """No short name of a module, a role or a filter is left in the tasks, and no import of
    ansible.module_utils.unhang_node in a module."""
    modules = [path.stem for path in (PROJECT / "library").glob("*.py")]
    tasks = [
        path
        for folder in ("roles/*/tasks", "playbooks")
        for path in site.collection.glob(f"{folder}/**/*.yml")
    ]
    assert len(tasks) > 80
    short = rf"^\s+(?:- )?(?:{'|'.join(modules)}):\s*$|\|\s*unhang_(?!policy)\w+"
    left = [
        f"{path.relative_to(site.collection)}: {found.strip()}"
        for path in tasks
        for found in re.findall(short, path.read_text(), re.M)
    ]
    assert left == []
    texts = [path.read_text() for path in site.collection.glob("plugins/modules/*.py")]
    assert [text for text in texts if "ansible.module_utils.unhang_node" in text] == []


def test_it_says_of_itself_what_a_collection_has_to(archive):
    with tarfile.open(archive) as packed:
        names = packed.getnames()

        def content(name):
            return packed.extractfile(name).read().decode()

        told = json.loads(content("MANIFEST.json"))["collection_info"]
        assert (told["namespace"], told["name"], told["version"]) == ("unhang", "ops", __version__)
        assert yaml.safe_load(content("meta/runtime.yml")) == {
            "requires_ansible": ">=2.19.0,<2.23.0"
        }
        changes = yaml.safe_load(content("changelogs/changelog.yaml"))["releases"]["0.1.0"]
        assert changes["release_date"] == "2026-11-21"
        assert changes["changes"]["minor_changes"][0].startswith("`make audit`")
        assert {"LICENSE", "README.md", "CHANGELOG.md", "plugins/module_utils/pynvml.py"} <= {
            *names
        }
        page = content("README.md")
    for link in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", page):
        assert link in names, link
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
