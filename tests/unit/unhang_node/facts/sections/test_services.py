"""Services of a node, from unit files, links and control groups."""

from __future__ import annotations

import os

import pytest
from recorded_roots import complaints, copied, facts, read, unread, write

SLICE = "/sys/fs/cgroup/system.slice"
UNITS = "/usr/lib/systemd/system"
ETC = "/etc/systemd/system"


def link(folder, path, target):
    place = folder / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, place)


def node(tmp_path):
    """A node on which ssh runs, so that systemd's services can be seen."""
    folder = copied("container", tmp_path)
    write(folder, SLICE + "/ssh.service/cgroup.procs", "77\n")
    return folder


def services(folder):
    return {row["name"]: row for row in facts(folder, "node")["services"]}


def test_a_service_is_enabled_by_a_link_of_a_target_and_runs_while_it_has_a_control_group(tmp_path):
    folder = node(tmp_path)
    write(folder, UNITS + "/slurmd.service", "[Service]\n")
    assert services(folder)["slurmd"] == {
        "name": "slurmd",
        "state": "disabled",
        "running": False,
        "replaced": False,
    }
    link(folder, ETC + "/multi-user.target.wants/slurmd.service", UNITS + "/slurmd.service")
    assert services(folder)["slurmd"]["state"] == "enabled"
    write(folder, SLICE + "/slurmd.service/cgroup.procs", "812\n")
    assert services(folder)["slurmd"]["running"] is True


def test_a_service_that_a_socket_starts_is_not_missed_at_boot(tmp_path):
    folder = node(tmp_path)
    write(folder, UNITS + "/docker.service", "[Service]\n")
    link(folder, ETC + "/sockets.target.wants/docker.socket", UNITS + "/docker.socket")
    assert services(folder)["docker"] == {
        "name": "docker",
        "state": "on_demand",
        "running": False,
        "replaced": False,
    }


def test_units_of_a_separate_lib_are_seen_too(tmp_path):
    folder = node(tmp_path)
    write(folder, "/lib/systemd/system/munge.service", "")
    assert services(folder)["munge"]["state"] == "disabled"


def test_a_script_of_init_d_is_a_service_of_the_generator(tmp_path):
    folder = node(tmp_path)
    link(
        folder,
        "/run/systemd/generator.late/multi-user.target.wants/nv_peer_mem.service",
        "../nv_peer_mem.service",
    )
    write(folder, "/run/systemd/generator.late/nv_peer_mem.service", "[Service]\n")
    assert services(folder)["nv_peer_mem"]["state"] == "enabled"


def test_a_unit_that_leads_to_nowhere_is_masked(tmp_path):
    folder = node(tmp_path)
    link(folder, ETC + "/nvidia-fabricmanager.service", "/dev/null")
    assert services(folder)["nvidia-fabricmanager"]["state"] == "masked"


@pytest.mark.parametrize(
    ("target", "wanted"), [("/usr/bin/containerd (deleted)", True), ("/usr/bin/containerd", False)]
)
def test_a_daemon_whose_file_was_replaced_is_told(tmp_path, target, wanted):
    folder = node(tmp_path)
    write(folder, SLICE + "/containerd.service/cgroup.procs", "900\n901\n")
    link(folder, "/proc/900/exe", target)
    assert services(folder)["containerd"]["replaced"] is wanted


def test_services_that_nobody_asked_for_are_left_out(tmp_path):
    folder = node(tmp_path)
    write(folder, UNITS + "/whoopsie.service", "")
    assert sorted(services(folder)) == ["ssh"]


def test_without_control_groups_nothing_is_said_of_services(tmp_path):
    folder = copied("container", tmp_path)
    write(folder, UNITS + "/slurmd.service", "")
    assert facts(folder, "node")["services"] is None
    assert unread(folder, "node")["services"]["status"] == "absent"


def test_firewalls_are_those_that_are_on(tmp_path):
    folder = node(tmp_path)
    write(folder, "/etc/ufw/ufw.conf", "# comment\nENABLED=no\n")
    assert facts(folder, "network")["firewalls"] == []
    write(folder, "/etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low\n")
    write(folder, SLICE + "/firewalld.service/cgroup.procs", "5\n")
    assert facts(folder, "network")["firewalls"] == ["firewalld", "ufw"]


NFT_DROP = """\
#!/usr/sbin/nft -f
flush ruleset
table inet filter {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established accept
    }
    chain forward { type filter hook forward priority 0; policy drop; }
}
"""
IPTABLES_DROP = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"


@pytest.mark.parametrize(
    ("service", "file", "text", "is_found"),
    [
        ("nftables", "/etc/nftables.conf", NFT_DROP, True),
        ("nftables", "/etc/nftables.conf", NFT_DROP.replace("0; policy", "filter\npolicy"), True),
        ("nftables", "/etc/nftables.conf", NFT_DROP.replace("0; policy drop", "0", 1), False),
        ("nftables", "/etc/nftables.conf", NFT_DROP.replace("    ", "# "), False),
        ("netfilter-persistent", "/etc/iptables/rules.v4", IPTABLES_DROP, True),
        ("iptables", "/etc/sysconfig/iptables", "-A INPUT -j REJECT --reject-with x\n", True),
        ("iptables", "/etc/sysconfig/iptables", "-A INPUT -p tcp --dport 22 -j ACCEPT\n", False),
    ],
)
def test_rules_at_boot_that_drop_what_comes_in_are_a_firewall(
    tmp_path, service, file, text, is_found
):
    folder = node(tmp_path)
    write(folder, file, text)
    assert facts(folder, "network")["firewalls"] == []  # nothing loads them
    wants = f"/etc/systemd/system/multi-user.target.wants/{service}.service"
    link(folder, wants, f"/usr/lib/systemd/system/{service}.service")
    assert facts(folder, "network")["firewalls"] == ([service] if is_found else [])


def test_name_services_and_servers_are_read(tmp_path):
    folder = node(tmp_path)
    write(
        folder,
        "/etc/nsswitch.conf",
        "passwd: files\nhosts:  files mdns4_minimal [NOTFOUND=return] dns # as shipped\n",
    )
    write(
        folder,
        "/etc/resolv.conf",
        "search example.org\nnameserver 10.0.0.53\nnameserver\n#nameserver 10.0.0.54\n",
    )
    assert facts(folder, "node")["name_service"] == {
        "hosts": ["files", "mdns4_minimal", "dns"],
        "servers": ["10.0.0.53"],
    }


def test_the_profile_of_tuned_is_read(tmp_path):
    folder = node(tmp_path)
    assert facts(folder, "node")["tuned_profile"] == ""
    write(folder, "/etc/tuned/active_profile", "throughput-performance\n")
    assert facts(folder, "node")["tuned_profile"] == "throughput-performance"


CPU = "/sys/devices/system/cpu"


def test_cpus_that_are_off_or_isolated_are_counted(tmp_path):
    folder = node(tmp_path)
    for name, text in (
        ("present", "0-127"),
        ("online", "0-63,96-127"),
        ("isolated", "2-5"),
        ("smt/control", "on"),
    ):
        write(folder, f"{CPU}/{name}", text + "\n")
    assert facts(folder, "node")["cpu_state"] == {"offline": 32, "isolated": 4, "smt": "on"}


def test_numa_nodes_that_have_cpus_and_no_memory_are_named(tmp_path):
    folder = node(tmp_path)
    write(folder, "/sys/devices/system/node/has_cpu", "0-1\n")
    write(folder, "/sys/devices/system/node/has_memory", "0,2-33\n")
    assert facts(folder, "node")["numa_without_memory"] == ["node1"]


def test_errors_of_the_hosts_memory_are_summed_over_its_controllers(tmp_path):
    folder = node(tmp_path)
    assert unread(folder, "node")["memory_errors"]["status"] == "absent"
    for number, (corrected, uncorrected) in enumerate([(3, 0), (4, 1)]):
        write(folder, f"/sys/devices/system/edac/mc/mc{number}/ce_count", f"{corrected}\n")
        write(folder, f"/sys/devices/system/edac/mc/mc{number}/ue_count", f"{uncorrected}\n")
    assert facts(folder, "node")["memory_errors"] == {
        "controllers": 2,
        "corrected": 7,
        "uncorrected": 1,
    }


def test_what_is_read_fits_the_schema(tmp_path):
    folder = node(tmp_path)
    write(folder, "/etc/nsswitch.conf", "hosts: files dns\n")
    fragment, rows = read(folder, ("node",))["node"]
    assert complaints("node", fragment, rows.values()) == []
