"""Slurm's settings for a node, read from a prepared file tree."""

from __future__ import annotations

import threading

import pytest
from recorded_roots import complaints, copied, facts, read, unread, write

from unhang_node.base.root import Root

CONF = """TaskPlugin=task/cgroup,task/affinity
ProctrackType=proctrack/cgroup
MpiDefault=pmix
PrologFlags=Contain,X11
SelectTypeParameters=CR_Core_Memory
NodeName=n[1-4] Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:a100:2
"""
GRES = "Name=gpu File=/dev/nvidia[0-1] Cores=0-31\n"


@pytest.fixture
def folder(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, "/proc/sys/kernel/hostname", "n2\n")
    write(folder, "/usr/sbin/slurmd", "")
    for name in (
        "task_cgroup",
        "task_affinity",
        "proctrack_cgroup",
        "mpi_pmix",
        "cgroup_v1",
        "cgroup_v2",
    ):
        write(folder, f"/usr/lib64/slurm/{name}.so", "")
    write(folder, "/etc/slurm/slurm.conf", CONF)
    return folder


def slurm(folder):
    assert complaints("node", facts(folder, "node")) == []
    return facts(folder, "node")["slurm"]


def test_what_decides_about_jobs_is_read(folder):
    assert slurm(folder)["config"] == {
        "path": "/etc/slurm/slurm.conf", "task_plugins": ["task/affinity", "task/cgroup"],
        "proctrack": "proctrack/cgroup", "propagate": [],
        "propagate_except": [], "prolog_flags": ["contain", "x11"],
        "select_parameters": ["cr_core_memory"], "parameters": [], "mpi_default": "pmix",
        "gres_types": [], "unkillable_step_timeout_s": 60, "message_timeout_s": 10,
        "slurmd_timeout_s": 300, "node": True, "gpus": 2,
        "memory_mib": 64000, "cores": 16, "threads_per_core": 2,
    }  # fmt: skip
    assert slurm(folder)["plugins_missing"] == []


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("", 60),
        ("MessageTimeout=100\n", 500),
        ("UnkillableStepTimeout=180\n", 180),
        ("UnkillableStepTimeout=x\n", None),
    ],
)
def test_how_long_slurm_waits_for_processes_to_end_is_what_is_in_effect(folder, lines, wanted):
    write(folder, "/etc/slurm/slurm.conf", CONF + lines)
    assert slurm(folder)["config"]["unkillable_step_timeout_s"] == wanted
    assert ("slurm.config.unkillable_step_timeout_s" in unread(folder, "node")) is (wanted is None)


def test_lines_of_included_files_count(folder):
    write(folder, "/etc/slurm/slurm.conf", "TaskPlugin=task/affinity\nInclude nodes.conf\n")
    write(folder, "/etc/slurm/nodes.conf", "NodeName=n2 RealMemory=7\n")
    assert slurm(folder)["config"]["memory_mib"] == 7


def test_device_files_that_are_not_there_are_named(folder):
    write(folder, "/etc/slurm/gres.conf", GRES)
    write(folder, "/dev/nvidia0", "")
    assert slurm(folder)["gres"] == {
        "path": "/etc/slurm/gres.conf", "autodetect": "",
        "rows": [{"type": "", "files": ["/dev/nvidia0", "/dev/nvidia1"],
        "files_missing": ["/dev/nvidia1"], "cores": "0-31", "highest_core": 31,
        "lowest_core": 0}],
    }  # fmt: skip


def test_a_range_that_is_too_large_is_unread_and_loses_no_other_line(folder):
    write(
        folder,
        "/etc/slurm/gres.conf",
        "Name=gpu File=/dev/nvidia[0-99999] Cores=9-1-2\nName=gpu File=/dev/nvidia1\n",
    )
    assert [row["files"] for row in slurm(folder)["gres"]["rows"]] == [None, ["/dev/nvidia1"]]
    assert unread(folder, "node")["slurm.gres.rows[*].files"]["status"] == "error"


def test_plugins_that_are_asked_for_and_missing_are_named(folder):
    write(folder, "/etc/slurm/slurm.conf", CONF.replace("pmix", "pmix_v5"))
    write(folder, "/etc/slurm/gres.conf", "AutoDetect=nvml\n")
    assert slurm(folder)["plugins_missing"] == ["gpu/nvml", "mpi/pmix_v5"]


def test_the_plugin_for_control_groups_follows_the_kernel(folder):
    write(folder, "/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    (folder / "usr/lib64/slurm/cgroup_v2.so").unlink()
    assert slurm(folder)["plugins_missing"] == ["cgroup/v2"]
    write(folder, "/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    assert slurm(folder)["plugins_missing"] == []


def test_a_node_is_found_by_the_short_form_of_its_name(folder):
    write(folder, "/proc/sys/kernel/hostname", "n2.example.org\n")
    assert slurm(folder)["config"]["gpus"] == 2


def test_a_node_that_no_line_names_has_no_counts(folder):
    write(folder, "/proc/sys/kernel/hostname", "m9.example.org\n")
    assert (slurm(folder)["config"]["node"], slurm(folder)["config"]["gpus"]) == (False, None)


def test_without_a_file_slurms_defaults_hold(folder):
    assert slurm(folder)["cgroup"] == {
        "path": "", "plugin": "autodetect", "constrain_devices": False, "constrain_cores": False,
        "constrain_ram": False, "allowed_ram_percent": 100
    }  # fmt: skip
    assert slurm(folder)["gres"] == {"path": "", "autodetect": "", "rows": []}


def test_without_slurm_conf_nothing_is_said_about_it(folder):
    (folder / "etc/slurm/slurm.conf").unlink()
    found = slurm(folder)
    assert (
        found["slurmd"],
        found["config"],
        found["cgroup"],
        found["gres"],
        found["plugins_missing"],
    ) == (True, None, None, None, None)
    assert unread(folder, "node")["slurm.config"]["reason"].startswith("FileNotFoundError")


@pytest.fixture
def shared(folder):
    """slurm.conf lies on NFS, as at most sites."""
    (folder / "etc/slurm/slurm.conf").unlink()
    (folder / "etc/slurm").rmdir()
    (folder / "etc/slurm").symlink_to("/shared/slurm")
    write(
        folder,
        "/proc/self/mountinfo",
        "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /shared rw - nfs4 s:/ rw\n",
    )
    write(folder, "/shared/slurm/slurm.conf", CONF)
    return folder


def test_a_configuration_on_a_network_file_system_is_read(shared):
    found = slurm(shared)
    assert (
        found["config"]["gpus"],
        found["cgroup"]["path"],
        found["gres"]["rows"],
        found["plugins_missing"],
    ) == (2, "", [], [])
    assert [field for field in unread(shared, "node") if field.startswith("slurm.c")] == []


@pytest.mark.parametrize("runs", [True, False])
def test_a_slurmd_on_a_network_file_system_counts_while_its_unit_runs(shared, runs):
    (shared / "usr/sbin/slurmd").unlink()
    write(shared, "/opt/slurm/sbin/slurmd", "")
    write(
        shared,
        "/proc/self/mountinfo",
        "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /shared rw - nfs4 s:/ rw\n7 9 0:3 / /opt/slurm rw -"
        " nfs4 s:/ rw\n",
    )
    if runs:
        (shared / "sys/fs/cgroup/system.slice/slurmd.service").mkdir(parents=True)
    assert slurm(shared)["slurmd"] is runs


class GoneServer(Root):
    """A root whose folder /shared does not answer until `back` is set."""

    back = threading.Event()

    def candidates(self, path):
        if path.startswith("/shared"):
            self.back.wait(60)
        return super().candidates(path)


def test_a_server_that_does_not_answer_costs_only_the_configuration(shared):
    fields = ("slurm.config", "slurm.cgroup", "slurm.gres", "slurm.plugins_missing")
    node, rows = read(GoneServer([str(shared)]), ("node",), silence_s=0.5)["node"]
    GoneServer.back.set()
    assert (node["slurm"]["slurmd"], node["slurm"]["config"]) == (True, None)
    assert node["hostname"] == "n2"
    assert {field: rows[field]["status"] for field in fields} == dict.fromkeys(fields, "timeout")


def test_short_names_of_plugins_are_those_that_slurm_loads(folder):
    write(
        folder,
        "/etc/slurm/slurm.conf",
        CONF.replace("task/cgroup,task/affinity", "affinity,cgroup").replace(
            "proctrack/cgroup", "cgroup"
        ),
    )
    assert (slurm(folder)["config"]["task_plugins"], slurm(folder)["config"]["proctrack"]) == (
        ["task/affinity", "task/cgroup"],
        "proctrack/cgroup",
    )


def test_sessions_that_ssh_adopts_are_seen(folder):
    assert slurm(folder)["ssh_adopted"] is False
    write(folder, "/etc/pam.d/sshd", "# account required pam_slurm_adopt.so\n")
    assert slurm(folder)["ssh_adopted"] is False
    write(folder, "/etc/pam.d/sshd", "-account required pam_slurm_adopt.so\n")
    assert slurm(folder)["ssh_adopted"] is True
