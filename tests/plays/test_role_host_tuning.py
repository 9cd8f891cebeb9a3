"""The role host_tuning, run by ansible-playbook on a planted node: it repairs the findings of the
audit, and a rollback restores the node."""

from __future__ import annotations

import pytest
import yaml
from fakes.ansible_module import tree
from fakes.audited import rules_of, sections_of
from fakes.node_tree import plant
from fakes.role_play import PROJECT, play_here

GIB = 1 << 30
NODE = {
    "/etc/os-release": "ID=debian\nVERSION_ID=12\n",
    "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n",
    "/proc/meminfo": "MemTotal:       67108864 kB\n",
    "/proc/self/mountinfo": "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
    "/etc/security/limits.conf": "* hard memlock 64\n* hard nofile 4096\n* soft stack unlimited\n",
    "/lib/systemd/system/ssh.service": "[Service]\n",
    "/lib/systemd/system/slurmd.service": "[Service]\n",
    "/usr/lib/systemd/systemd-logind": "",
    "/etc/default/grub": "GRUB_DEFAULT=0\n",
    "/usr/sbin/update-grub": "",
    "/var/lib/dpkg/status": "",
    "/etc/apt/apt.conf.d/50unattended-upgrades": 'Unattended-Upgrade::Automatic-Reboot "true";\n',
}
POLICY = {
    "limits": {
        "memlock_bytes": -1,
        "nofile": 131072,
        "stack_bytes": 8388608,
        "shm_bytes": 16 * GIB,
    },
    "host": {
        "numa_balancing": False,
        "iommu": "passthrough",
        "peer_memory": "nvidia_peermem",
        "nvidia_parameters": {"NVreg_EnableGpuFirmware": 0},
        "remove_ipc": False,
        "automatic_reboot": False,
    },
}
ROLE = PROJECT / "roles" / "host_tuning"
STEPS = sorted(path.stem for path in (ROLE / "tasks").glob("*.yml") if path.stem != "main")
OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build "
    " (root@builder)\n"
)


@pytest.fixture
def node(tmp_path):
    """A planted node, and how the role runs on it. NVML and systemctl would act on this machine
    itself, so the step persistence is left out."""
    plant(tmp_path / "node", NODE)

    def play(*arguments, policy=POLICY, **variables):
        places = {
            "unhang_rootfs": [str(tmp_path / "node")],
            "host_tuning_rootfs": str(tmp_path / "node"),
            "host_tuning_persistence": False,
        }
        return play_here(
            tmp_path, "host_tuning", {**places, "unhang_policy": policy, **variables}, *arguments
        )

    play.root = tmp_path / "node"
    return play


# Findings of the audit on that node under the policy, and on a node with RDMA, Slurm and GPUs that
# need a finite stack.
REPAIRED = {
    "memlock-too-low-for-rdma", "policy-memlock", "nofile-too-low-for-rdma", "policy-nofile",
    "nccl-unlimited-stack", "remove-ipc-on",
    "packages-unattended-reboot",
}  # fmt: skip


def audited(node):
    """Failed rules of the audit. No planted file shows hardware, Slurm or the upgrade timer."""
    libraries = [{"path": "/usr/lib/libnccl.so.2", "version": "2.26.2"}]
    sections = sections_of(
        node.root,
        gpus={"count": 8, "model": "NVIDIA GB200", "devices": []},
        nccl={"libraries": libraries},
    )
    sections["network"]["has_rdma"] = True
    sections["node"]["slurm"] = {"slurmd": True}
    sections["packages"]["unattended_upgrades"]["enabled"] = True
    return rules_of(sections, POLICY)


def files(found):
    """Without folders, and without saved states, which stay."""
    return {
        path: content
        for path, content in found.items()
        if content is not None and not path.startswith("/var/lib/unhang/states")
    }


def test_what_the_audit_finds_the_role_repairs_and_takes_back_and_check_mode_foretells_it(node):
    before = tree(node.root)
    assert audited(node) >= REPAIRED
    foretold = node("--check", "--diff")
    assert foretold.code == 0
    assert "+* hard memlock unlimited" in foretold.output
    assert tree(node.root) == before

    applied = node()
    assert applied.code == 0
    assert applied.changed == foretold.changed
    assert not audited(node) & REPAIRED

    after = tree(node.root)
    assert node().changed == {"planted": 0}
    assert tree(node.root) == after

    assert node(host_tuning_state="absent").code == 0
    assert files(tree(node.root)) == files(before)


@pytest.mark.parametrize("step", STEPS)
def test_file_tag_and_switch_of_a_step_are_one_word(step):
    tasks = next(
        task for task in yaml.safe_load((ROLE / "tasks/main.yml").read_text()) if "block" in task
    )["block"]
    found = [task for task in tasks if task.get("ansible.builtin.import_tasks") == f"{step}.yml"]
    assert [(task["tags"], task["when"]) for task in found] == [(step, f"host_tuning_{step}")]
    assert yaml.safe_load((ROLE / "defaults/main.yml").read_text())[f"host_tuning_{step}"] is True
    assert (
        f"host_tuning_{step}"
        in yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"][
            "options"
        ]
    )


def test_a_tag_runs_its_step_alone_and_a_key_that_is_gone_is_taken_back(node):
    before = files(tree(node.root))
    assert node("--tags", "stack").code == 0
    added = set(files(tree(node.root))) - set(before)
    assert {path for path in added if "/var/lib/unhang" not in path} == {
        "/etc/security/limits.d/00-unhang-stack.conf",
        *(
            f"/etc/systemd/system/{unit}.service.d/90-unhang-stack.conf"
            for unit in ("ssh", "slurmd")
        ),
    }
    assert node("--tags", "stack,memlock", policy={"limits": {"memlock_bytes": -1}}).code == 0
    assert "* soft stack unlimited\n" in (node.root / "etc/security/limits.conf").read_text()
    assert not list(node.root.rglob("*unhang-stack*"))
    assert list(node.root.rglob("*unhang-memlock*"))


@pytest.mark.parametrize(
    ("tag", "planted", "shown"),
    [
        ("nvidia_parameters", {"/proc/driver/nvidia/version": OPEN_MODULE},
        "the open driver modules are loaded"),
        ("peer_memory", {"/proc/driver/nvidia/version": OPEN_MODULE.replace("Open ",
        "").replace("for x86_64 ", ""), "/proc/sys/kernel/osrelease": "5.4.0\n"},
         "host.peer_memory is dmabuf, which is not possible on this node"),
    ],
)  # fmt: skip
def test_what_the_driver_cannot_do_is_refused_before_anything_is_written(node, tag, planted, shown):
    plant(node.root, planted)
    before = files(tree(node.root))
    refused = node("--tags", tag, policy={"host": {**POLICY["host"], "peer_memory": "dmabuf"}})
    assert refused.code != 0
    assert shown in refused.output
    assert files(tree(node.root)) == before


def test_in_a_virtual_machine_the_iommu_is_left_to_its_host(node):
    plant(
        node.root,
        {
            "/proc/cpuinfo": NODE["/proc/cpuinfo"].replace("fpu", "fpu hypervisor"),
            "/sys/class/dmi/id/sys_vendor": "QEMU\n",
        },
    )
    done = node("--tags", "iommu")
    assert done.code == 0
    assert "ask for it on its host" in done.output
    assert not list(node.root.rglob("zz-unhang*"))
