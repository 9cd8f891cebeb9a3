"""Settings of the host: frequencies, idle states, clock source, time daemon, control groups, its
name, huge pages."""

from __future__ import annotations

import pytest
from recorded_roots import copied, facts, unread, write

from unhang_node.facts.parse.addresses import shared_subnets
from unhang_node.facts.parse.host_state import parse_choice, parse_host_addresses

CPU = "/sys/devices/system/cpu"
SERVICES = "/sys/fs/cgroup/system.slice"


def with_policies(folder, governors):
    for number, governor in enumerate(governors):
        write(folder, f"{CPU}/cpufreq/policy{number}/scaling_governor", governor + "\n")
        write(folder, f"{CPU}/cpufreq/policy{number}/scaling_driver", "acpi-cpufreq\n")
    return folder


def with_idle_states(folder, states):
    write(folder, CPU + "/cpuidle/current_driver", "intel_idle\n")
    write(folder, CPU + "/cpuidle/current_governor_ro", "menu\n")
    for number, (name, latency, disabled) in enumerate(states):
        for file, text in (("name", name), ("latency", latency), ("disable", disabled)):
            write(folder, f"{CPU}/cpu0/cpuidle/state{number}/{file}", f"{text}\n")
    return folder


def test_governors_of_all_parts_of_the_node_are_told_once_each(tmp_path):
    folder = with_policies(copied("h200x8", tmp_path), ["performance"] * 120 + ["schedutil"] * 104)
    frequency = facts(folder, "node")["cpu"]["frequency"]
    assert (frequency["driver"], frequency["governors"]) == (
        "acpi-cpufreq",
        ["performance", "schedutil"],
    )


def test_a_machine_that_scales_no_frequencies_says_so(tmp_path):
    folder = copied("h200x8", tmp_path)
    assert facts(folder, "node")["cpu"]["frequency"] is None
    assert unread(folder, "node")["cpu.frequency"]["status"] == "absent"


def test_deepest_idle_state_is_the_deepest_that_is_not_switched_off(tmp_path):
    states = [("POLL", 0, 0), ("C1", 2, 0), ("C1E", 4, 0), ("C6", 290, 1)] + [
        (f"X{number}", 300, 1) for number in range(4, 11)
    ]
    idle = facts(with_idle_states(copied("h200x8", tmp_path), states), "node")["cpu"]["idle"]
    assert idle == {
        "driver": "intel_idle",
        "governor": "menu",
        "deepest_state": "C1E",
        "deepest_latency_us": 4,
    }


def test_clock_source_is_read(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
    assert facts(folder, "node")["clock_source"] == "hpet"


@pytest.mark.parametrize(
    ("units", "synchronized", "wanted"),
    [
        (["chronyd"], False, {"daemon": "chronyd", "synchronized": None}),
        (["systemd-timesyncd"], True, {"daemon": "systemd-timesyncd", "synchronized": True}),
        (["systemd-timesyncd"], False, {"daemon": "systemd-timesyncd", "synchronized": False}),
        (["ssh"], False, {"daemon": "none", "synchronized": None}),
    ],
)
def test_time_daemon_is_the_one_that_runs(tmp_path, units, synchronized, wanted):
    folder = copied("container", tmp_path)
    (folder / ".dockerenv").unlink()
    for unit in units:
        write(folder, f"{SERVICES}/{unit}.service/cgroup.procs", "650\n")
    if synchronized:
        write(folder, "/run/systemd/timesync/synchronized", "")
    assert facts(folder, "node")["time"] == {**wanted, "kernel_in_step": None, "max_error_ms": None}


def test_without_systemds_control_groups_nobody_says_whether_a_daemon_runs(tmp_path):
    folder = copied("container", tmp_path)
    node = facts(folder, "node")
    assert (node["time"], node["irqbalance"]) == (None, None)
    assert unread(folder, "node")["time"]["status"] == "absent"


def test_irqbalance_is_seen_by_its_control_group(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, f"{SERVICES}/ssh.service/cgroup.procs", "1\n")
    assert facts(folder, "node")["irqbalance"] is False
    write(folder, f"{SERVICES}/irqbalance.service/cgroup.procs", "2\n")
    assert facts(folder, "node")["irqbalance"] is True


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["cgroup.controllers"], "v2"),
        (["memory/tasks"], "v1"),
        (["memory/tasks", "unified/cgroup.procs"], "hybrid"),
    ],
)
def test_control_groups_are_told_by_what_lies_in_their_folder(tmp_path, paths, wanted):
    folder = copied("container", tmp_path)
    for path in paths:
        write(folder, "/sys/fs/cgroup/" + path, "")
    assert facts(folder, "node")["cgroup"] == wanted


def test_addresses_of_the_nodes_own_name_stand_in_its_hosts_file(tmp_path):
    folder = copied("h200x8", tmp_path)
    name = facts(folder, "node")["hostname"]
    write(
        folder,
        "/etc/hosts",
        f"127.0.0.1 localhost\n127.0.1.1 {name}.example.org {name.upper()} # made by"
        " cloud-init\n10.0.0.9 other\n",
    )
    assert facts(folder, "node")["name_addresses"] == ["127.0.1.1"]


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("10.0.0.1 a a.b\n::1 a\n10.0.0.1 a\n", "a", ["10.0.0.1", "::1"]),
        ("10.0.0.1 a.b\n", "a.b", ["10.0.0.1"]), ("10.0.0.1 a\n", "a.b", ["10.0.0.1"]),
        ("# 10.0.0.1 a\n", "a", []), ("\x00\n10.0.0.1\n", "a", []),
    ],
)  # fmt: skip
def test_a_hosts_file_is_read_by_short_and_long_names(text, name, wanted):
    assert parse_host_addresses(text, name) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("always [madvise] never\n", "madvise"),
        ("never\n", "never"),
        ("[a] [b]\n", None),
        ("", None),
        ("always madvise\n", None),
        ("[]\n", None),
    ],
)
def test_the_chosen_word_of_a_switch(text, wanted):
    assert parse_choice(text) == wanted


def test_transparent_huge_pages_are_read(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
    write(
        folder,
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "always defer [defer+madvise] madvise never\n",
    )
    assert facts(folder, "limits")["transparent_hugepages"] == {
        "enabled": "always",
        "defrag": "defer+madvise",
    }


def port(name, *addresses, kind="physical", state="up"):
    return {"name": name, "kind": kind, "state": state, "addresses": list(addresses)}


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([port("a", "10.0.0.1/24"), port("b", "10.0.0.2/24")], ["10.0.0.0/24"]),
        ([port("a", "10.0.0.1/24"), port("b", "10.0.1.2/24")], []),
        ([port("a", "10.0.0.1/24", "10.0.0.7/24")], []),
        ([port("a", "10.0.0.1/24"), port("b", "10.0.0.2/24", state="down")], []),
        ([port("a", "10.0.0.1/24"), port("docker0", "10.0.0.2/24", kind="bridge")], []),
        ([port("a", "10.0.0.1/32"), port("b", "10.0.0.1/32")], []),
        ([port("a", "fe80::1/64"), port("b", "fe80::2/64")], []),
        ([port("a"), {"name": "b", "kind": "physical", "state": "up", "addresses": None}], []),
    ],
)
def test_ports_that_share_a_subnet_are_told_by_it(rows, wanted):
    assert shared_subnets(rows) == wanted


def with_specification(folder, path, driver):
    mounts = "".join(
        f"  - containerPath: /usr/lib/x86_64-linux-gnu/lib{name}.so.{driver}\n"
        for name in ("nvidia-eglcore", "cuda", "nvidia-ml")
    )
    write(
        folder,
        path,
        "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n" + mounts,
    )


def test_a_specification_for_containers_tells_of_which_driver_its_libraries_are(tmp_path):
    folder = copied("h200x8", tmp_path)
    assert facts(folder, "node")["cdi"] == []
    with_specification(folder, "/etc/cdi/nvidia.yaml", "535.161.07")
    with_specification(folder, "/var/run/cdi/nvidia.yaml", "580.95.05")
    write(folder, "/etc/cdi/other.yaml", "kind: example.com/card\n")
    write(folder, "/etc/cdi/README", "/usr/lib/libcuda.so.470.57.02")
    assert facts(folder, "node")["cdi"] == [
        {
            "path": "/etc/cdi/nvidia.yaml",
            "driver": "535.161.07",
            "kind": "nvidia.com/gpu",
            "devices_missing": [],
        },
        {
            "path": "/var/run/cdi/nvidia.yaml",
            "driver": "580.95.05",
            "kind": "nvidia.com/gpu",
            "devices_missing": [],
        },
    ]


NODES = (
    "devices:\n- name: '0'\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n    -"
    " path: /dev/nvidia9\n    - path: /dev/dri/card0\n"
)
OTHER_ROOT = "    - hostPath: /run/nvidia/driver/dev/nvidia0\n      path: /dev/nvidia0\n"
JSON = (
    '{"kind": "nvidia.com/gpu", "mounts": "/x/libcuda.so.580.95.05", "deviceNodes": [{"path":'
    ' "/dev/nvidia0"}, {"path":"/dev/nvidia7"}]}'
)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("# libs\n" + NODES, ["/dev/dri/card0", "/dev/nvidia9"]),
        (OTHER_ROOT, ["/run/nvidia/driver/dev/nvidia0"]),
        (JSON, ["/dev/nvidia7"]),
    ],
)
def test_devices_that_a_specification_names_and_the_node_lacks_are_told(tmp_path, text, missing):
    folder = copied("h200x8", tmp_path)
    write(folder, "/dev/nvidia0", "")
    write(folder, "/etc/cdi/nvidia.yaml", text + "# /usr/lib/libcuda.so.580.95.05\n")
    assert [row["devices_missing"] for row in facts(folder, "node")["cdi"]] == [missing]


@pytest.mark.parametrize(
    ("enforce", "boolean", "wanted"),
    [
        (None, None, {"mode": "disabled", "container_use_devices": None}),
        ("0", "0 0", {"mode": "permissive", "container_use_devices": False}),
        ("1", "1 0", {"mode": "enforcing", "container_use_devices": True}),
        ("1", None, {"mode": "enforcing", "container_use_devices": None}),
        ("x", None, None),
    ],
)
def test_selinux_is_told_with_what_it_lets_containers_do(tmp_path, enforce, boolean, wanted):
    folder = copied("h200x8", tmp_path)
    for name, text in (("enforce", enforce), ("booleans/container_use_devices", boolean)):
        if text is not None:
            write(folder, "/sys/fs/selinux/" + name, text)
    assert facts(folder, "node")["selinux"] == wanted
