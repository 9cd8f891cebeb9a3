"""Section limits: locked memory, open files, shared memory, scratch space."""

from __future__ import annotations

import os

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.base.parse.resource_limits import (
    parse_limits_conf,
    parse_proc_limits,
    parse_systemd_limit,
)


def scope(limits, name):
    return next((row for row in limits["scopes"] if row["scope"] == name), None)


def test_each_scope_shows_its_limits_and_where_they_stand(tmp_path):
    limits = facts(copied("a6000x3-kernel-5.4", tmp_path), "limits")
    assert scope(limits, "sshd") == {
        "scope": "sshd", "evidence": "/proc/812/limits", "memlock_soft_bytes": 67108864,
        "memlock_hard_bytes": 67108864,
        "nofile_soft": 1024, "nofile_hard": 524288,
        "stack_soft_bytes": scope(limits, "sshd")["stack_soft_bytes"],
        "stack_hard_bytes": scope(limits, "sshd")["stack_hard_bytes"],
        "nproc_soft": scope(limits, "sshd")["nproc_soft"],
        "nproc_hard": scope(limits, "sshd")["nproc_hard"],
    }  # fmt: skip
    assert scope(limits, "systemd_default")["memlock_hard_bytes"] == -1
    assert scope(limits, "systemd_default")["nofile_hard"] == 1 << 20
    assert scope(limits, "limits.conf @gpu")["memlock_soft_bytes"] == -1


def test_a_later_limits_file_wins(tmp_path):
    row = scope(facts(copied("a6000x3-kernel-5.4", tmp_path), "limits"), "limits.conf")
    assert row["memlock_hard_bytes"] == 8192 * 1024
    assert row["nofile_soft"] == 4096
    assert row["evidence"] == "/etc/security/limits.d/90-shm.conf:1"


def test_a_limit_that_a_file_does_not_set_is_absent(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/etc/security/limits.d/95-memlock.conf", "* - memlock unlimited\n")
    assert scope(facts(folder, "limits"), "limits.conf")["nofile_hard"] is None
    assert unread(folder, "limits")["scopes[*].nofile_hard"]["status"] == "absent"


def test_processes_of_one_user_are_limited_by_the_service_the_configuration_and_systemd(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    own = (folder / "proc/812/limits").read_text()
    write(
        folder,
        "/proc/812/limits",
        own + "Max processes             4096                 8192                 processes \n",
    )
    write(folder, "/etc/security/limits.d/95-threads.conf", "@students hard nproc 4096\n")
    write(
        folder,
        "/etc/systemd/system.conf.d/90-threads.conf",
        "[Manager]\nDefaultLimitNPROC=2048:infinity\n",
    )
    limits = facts(folder, "limits")
    assert [scope(limits, "sshd")[key] for key in ("nproc_soft", "nproc_hard")] == [4096, 8192]
    assert scope(limits, "limits.conf @students")["nproc_hard"] == 4096
    assert [scope(limits, "systemd_default")[key] for key in ("nproc_soft", "nproc_hard")] == [
        2048,
        -1,
    ]


def test_a_stale_pid_file_of_another_process_is_not_believed(tmp_path):
    assert scope(facts(copied("a6000x3-kernel-5.4", tmp_path), "limits"), "slurmd") is None


def test_a_pid_file_serves_where_there_is_no_control_group(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/proc/900/comm", "slurmd\n")
    write(folder, "/proc/900/limits", (folder / "proc/812/limits").read_text())
    assert scope(facts(folder, "limits"), "slurmd")["evidence"] == "/proc/900/limits"


def test_unlimited_is_minus_one(tmp_path):
    limits = facts(copied("rdma-h100", tmp_path), "limits")
    assert scope(limits, "slurmd")["memlock_soft_bytes"] == -1
    assert scope(limits, "systemd_default") is None


def test_memory_swap_and_huge_pages_are_read(tmp_path):
    limits = facts(copied("rdma-h100", tmp_path), "limits")
    assert limits["hugepages_total"] == 1024
    assert limits["swap_total_bytes"] == 0
    assert limits["memory_available_bytes"] == 2000000000 * 1024
    assert limits["overcommit_memory"] == 1


def test_a_kernel_too_old_for_available_memory_says_so(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(
        folder,
        "/proc/meminfo",
        "MemTotal: 1 kB\nSwapTotal: 2 kB\nSwapFree: 2 kB\nHugePages_Total: 0\n",
    )
    assert facts(folder, "limits")["memory_available_bytes"] is None
    assert unread(folder, "limits")["memory_available_bytes"]["status"] == "absent"


@pytest.mark.parametrize(("text", "wanted"), [("0\n", False), ("1\n", True), ("2\n", True)])
def test_numa_balancing(tmp_path, text, wanted):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/proc/sys/kernel/numa_balancing", text)
    assert facts(folder, "limits")["numa_balancing"] is wanted


def test_a_kernel_without_numa_balancing_does_not_balance(tmp_path):
    assert facts(copied("h200x8", tmp_path), "limits")["numa_balancing"] is False


def test_kernel_settings_are_those_that_the_kernel_has(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    write(folder, "/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    write(folder, "/proc/sys/fs/file-max", "9223372036854775807\n")
    write(folder, "/proc/sys/fs/protected_fifos", "1\n")
    found = facts(folder, "limits")["sysctls"]
    assert (found["net.ipv4.ip_local_port_range"], found["fs.file-max"]) == (
        "32768 60999",
        "9223372036854775807",
    )
    assert "fs.protected_fifos" not in found


def test_a_network_file_system_is_never_asked_for_its_size(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    limits = facts(folder, "limits")
    assert limits["temp"] == [
        {"path": "/tmp", "size_bytes": 4294967296, "free_bytes": 1073741824, "noexec": True},
        {"path": "/var/tmp", "size_bytes": None, "free_bytes": None, "noexec": False},
    ]
    assert "nfs4" in unread(folder, "limits")["temp[/var/tmp].free_bytes"]["reason"]


def test_shared_memory_of_a_container_is_the_small_default(tmp_path):
    assert facts(copied("container", tmp_path), "limits")["shm"] == {
        "size_bytes": 64 << 20,
        "used_bytes": 0,
    }


def test_this_machines_shared_memory_is_what_statvfs_says():
    found = os.statvfs("/dev/shm")
    assert facts("/", "limits")["shm"]["size_bytes"] == found.f_blocks * found.f_frsize


@pytest.mark.parametrize(
    ("name", "files", "wanted"),
    [
        ("a6000x3-kernel-5.4", {}, True),  # Ubuntu's default
        ("rdma-h100", {}, False),  # Red Hat's default
        ("rdma-h100", {"/etc/systemd/logind.conf": "[Login]\nRemoveIPC=yes\n"}, True),
        (
            "a6000x3-kernel-5.4",
            {"/etc/systemd/logind.conf.d/ipc.conf": "[Login]\nRemoveIPC=no\n"},
            False,
        ),
        (
            "a6000x3-kernel-5.4",
            {
                "/usr/lib/systemd/logind.conf.d/10-x.conf": "[Login]\nRemoveIPC=no\n",
                "/etc/systemd/logind.conf.d/10-x.conf": "[Login]\n",
            },
            True,
        ),
        (
            "a6000x3-kernel-5.4",
            {
                "/usr/lib/systemd/logind.conf.d/90-x.conf": "[Login]\nRemoveIPC=no\n",
                "/etc/systemd/logind.conf.d/10-x.conf": "[Login]\nRemoveIPC=yes\n",
            },
            False,
        ),
        (
            "a6000x3-kernel-5.4",
            {"/etc/systemd/logind.conf": "[Manager]\nRemoveIPC=no\n[Login]\n;RemoveIPC=no\n"},
            True,
        ),
        ("container", {}, None),
    ],
)
def test_logind_removes_shared_memory_unless_told_otherwise(tmp_path, name, files, wanted):
    folder = copied(name, tmp_path)
    for path, text in files.items():
        write(folder, path, text)
    assert facts(folder, "limits")["remove_ipc"] is wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("infinity", (-1, -1)),
        ("8M", (8 << 20, 8 << 20)),
        ("1024:524288", (1024, 524288)),
        ("64K:infinity", (65536, -1)),
        ("much", (None, None)),
        ("", (None, None)),
        ("8MM", (None, None)),
    ],
)
def test_systemds_limits(value, wanted):
    assert parse_systemd_limit(value) == wanted


def test_lines_that_are_no_limits_are_left_out():
    text = (
        "* soft memlock\n* soft memlock x\n#* - memlock 1\n* - memlock 1 # why\n* hard core 0\n*"
        " both memlock 1\nroot hard nofile -1\n"
    )
    assert parse_limits_conf(text, "/f") == [
        {"domain": "*", "evidence": "/f:4", "memlock_soft_bytes": 1024, "memlock_hard_bytes": 1024},
        {"domain": "root", "evidence": "/f:7", "nofile_hard": -1},
    ]


def test_a_limits_table_cut_short_gives_what_it_has():
    assert parse_proc_limits("Max open files            1024\nMax locked memory") == {
        "memlock_soft_bytes": None, "memlock_hard_bytes": None, "nofile_soft": 1024,
        "nofile_hard": None, "stack_soft_bytes": None, "stack_hard_bytes": None,
        "nproc_soft": None, "nproc_hard": None,
    }  # fmt: skip


@pytest.mark.parametrize(("soft", "bytes_"), [("8388608", 8388608), ("unlimited", -1)])
def test_the_stack_limit_is_read_in_bytes(soft, bytes_):
    values = parse_proc_limits(
        f"Max stack size            {soft}              unlimited            bytes\n"
    )
    assert (values["stack_soft_bytes"], values["stack_hard_bytes"]) == (bytes_, -1)
    assert (
        parse_limits_conf("* soft stack unlimited\n* hard stack 8192\n", "/f")[0][
            "stack_hard_bytes"
        ]
        == 8192 * 1024
    )


@pytest.mark.parametrize(
    ("groups", "files", "memory", "tasks"),
    [
        (
            "0::/jobs.slice/one.scope\n",
            {"jobs.slice/memory.max": 400 << 20, "jobs.slice/one.scope/memory.max": "max",
             "jobs.slice/one.scope/pids.max": 12, "jobs.slice/pids.max": 9000},
            400 << 20, 12,
        ),
        ("0::/\n", {"memory.max": 1 << 30, "pids.max": "max"}, 1 << 30, None),
        (
            "5:cpu,memory:/docker/c1\n4:pids:/docker/c1\n0::/\n",
            {"memory/memory.limit_in_bytes": 2 << 30, "pids/docker/c1/pids.max": 64,
             "cpu/pids.max": 1},
            2 << 30, 64,
        ),
        (
            "4:memory:/\n3:pids:/\n",
            {"memory/memory.limit_in_bytes": 9223372036854771712, "pids/pids.max": "max"},
            None, None,
        ),
    ],
)  # fmt: skip
def test_the_place_where_the_collector_runs_has_the_lowest_limit_of_its_groups(
    tmp_path, groups, files, memory, tasks
):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    write(folder, "/proc/self/limits", (folder / "proc/812/limits").read_text())
    write(folder, "/proc/self/cgroup", groups)
    for path, value in files.items():
        write(folder, f"/sys/fs/cgroup/{path}", f"{value}\n")
    own = scope(facts(folder, "limits"), "collector")
    assert (own["memory_max_bytes"], own["tasks_max"]) == (memory, tasks)
