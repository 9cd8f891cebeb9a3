"""Section fabric_manager: NVSwitches, the daemon, its log."""

from __future__ import annotations

import pytest
from fakes.node_tree import Link, context, dpkg_status, merged, plant

from unhang_node.facts.sections.fabric_manager import last_error_of
from unhang_node.facts.sources import software

SWITCH = "pci:v000010DEd000022A3sv000010DEsd00001796bc06sc80i00\n"
GPU = "pci:v000010DEd00002335sv000010DEsd000018BEbc03sc02i00\n"
NIC = "pci:v000015B3d00001021sv000015B3sd00000040bc02sc07i00\n"
BUS = "/sys/bus/pci/devices/{}/modalias"
PACKAGE = {
    "/var/lib/dpkg/status": dpkg_status(
        {
            "nvidia-fabricmanager-535": "535.161.08-0ubuntu3",
            "nvidia-fabricmanager-dev-535": "535.161.08",
        }
    )
}
LOG = """[Nov 20 2026 03:41:00] [INFO] [tid 1] started
[Nov 20 2026 03:41:02] [ERROR] [tid 1] detected NVSwitch fatal error 20034
[Nov 20 2026 03:41:03] [INFO] [tid 1] bye
"""


def read(tmp_path, files):
    return merged(
        software.read(context(plant(tmp_path, files), ["fabric_manager"])), "fabric_manager"
    )


def devices(listing=True):
    files = {
        BUS.format("0000:07:00.0"): SWITCH,
        BUS.format("0001:07:00.0"): SWITCH,
        BUS.format("0000:1b:00.0"): GPU,
        BUS.format("0000:5c:00.0"): NIC,
    }
    if listing:
        files["/proc/bus/pci/devices"] = "0700\t10de22a3\t0\n1b00\t10de2335\t0\n5c00\t15b31021\t0\n"
    return files


@pytest.mark.parametrize("listing", [True, False])
def test_switches_are_counted_in_all_pci_domains(tmp_path, listing):
    section, _unread = read(tmp_path, {**devices(listing), "/sys/bus/pci/devices/": ""})
    assert (section["nvswitch_present"], section["nvswitch_count"]) == (True, 2)


def test_gpus_are_no_switches(tmp_path):
    section, _unread = read(
        tmp_path, {BUS.format("0000:1b:00.0"): GPU, "/proc/bus/pci/devices": "1b00\t10de2335\t0\n"}
    )
    assert (section["nvswitch_present"], section["installed"], section["running"]) == (
        False,
        False,
        False,
    )


def test_version_is_the_packages_without_its_revision(tmp_path):
    section, _unread = read(tmp_path, PACKAGE)
    assert (section["installed"], section["package"], section["version"]) == (
        True,
        "nvidia-fabricmanager-535",
        "535.161.08",
    )


def test_binary_without_a_package_has_no_version_and_says_why(tmp_path):
    section, unread = read(tmp_path, {"/usr/bin/nv-fabricmanager": "x"})
    assert (section["installed"], section["version"]) == (True, None)
    assert "version" in [row["field"] for row in unread]


@pytest.mark.parametrize(
    ("files", "running"),
    [
        (
            {
                "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "42",
                "/proc/42/comm": "nv-fabricmanage\n",
            },
            True,
        ),
        ({"/sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs": "42\n"}, True),
        ({"/sys/fs/cgroup/system.slice/": ""}, False),
        ({"/proc/42/comm": "nv-fabricmanage\n"}, True),
        ({"/proc/42/comm": "bash\n"}, False),
    ],
)
def test_running_daemon_is_seen(tmp_path, files, running):
    assert read(tmp_path, {**PACKAGE, **files})[0]["running"] is running


@pytest.mark.parametrize(("comm", "running"), [("nv-fabricmanage\n", True), ("bash\n", False)])
def test_daemon_of_a_container_is_seen_on_a_host_with_switches(tmp_path, comm, running):
    files = {**devices(), "/sys/fs/cgroup/system.slice/": "", "/proc/42/comm": comm}
    assert read(tmp_path, files)[0]["running"] is running


@pytest.mark.parametrize("target", ["/lib/systemd/system/nvidia-fabricmanager.service", "/gone"])
def test_enabled_is_the_link_and_not_what_it_leads_to(tmp_path, target):
    link = "/etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"
    assert read(tmp_path, {**PACKAGE, link: Link(target)})[0]["enabled"] is True


def test_last_error_of_the_log_is_reported_verbatim(tmp_path):
    section, _unread = read(tmp_path, {**PACKAGE, "/var/log/fabricmanager.log": LOG})
    assert (
        section["last_error"]
        == "[Nov 20 2026 03:41:02] [ERROR] [tid 1] detected NVSwitch fatal error 20034"
    )


def test_log_without_errors_is_null():
    assert last_error_of("[INFO] fine\n") is None


def test_terminal_escapes_in_the_log_are_taken_out():
    assert "\x1b" not in last_error_of("[ERROR] \x1b[31mred\x1b[0m\n")


def test_imex_is_told_apart(tmp_path):
    files = {
        "/var/lib/dpkg/status": dpkg_status({"nvidia-imex-580": "580.65.06-1"}),
        "/run/nvidia-imex/nvidia-imex.pid": "9",
        "/proc/9/comm": "nvidia-imex\n",
    }
    assert read(tmp_path, files)[0]["imex"] == {
        "installed": True,
        "version": "580.65.06",
        "running": True,
        "channels": [],
    }


@pytest.mark.parametrize(("mode", "open_to_all"), [(0o666, True), (0o640, False)])
def test_imex_channels_tell_who_may_write_to_them(tmp_path, mode, open_to_all):
    root = plant(tmp_path, {"/dev/nvidia-caps-imex-channels/channel0": ""})
    (channel,) = tmp_path.rglob("channel0")
    channel.chmod(mode)
    imex = merged(software.read(context(root, ["fabric_manager"])), "fabric_manager")[0]["imex"]
    assert imex["channels"] == [
        {
            "path": "/dev/nvidia-caps-imex-channels/channel0",
            "mode": f"{mode:04o}",
            "open_to_all": open_to_all,
        }
    ]


def test_start_of_the_running_daemon_is_told_from_the_boot(tmp_path):
    stat = "9 (nv-fabric (x)) S " + " ".join(["0"] * 18) + " 861234 0 0\n"
    files = {
        **PACKAGE,
        "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "9",
        "/proc/9/comm": "nv-fabricmanage\n",
        "/proc/9/stat": stat,
    }
    section, _unread = read(tmp_path, files)
    assert (section["running"], section["started_s"]) == (True, 8612)


def test_a_daemon_that_does_not_run_has_no_start(tmp_path):
    assert read(tmp_path, PACKAGE)[0]["started_s"] is None


def test_pci_bus_that_cannot_be_listed_is_null_with_a_reason(tmp_path):
    section, unread = read(tmp_path, {"/sys/bus/pci/devices": Link("/sys/bus/pci/devices")})
    assert section["nvswitch_count"] is None
    assert {"nvswitch_count", "nvswitch_present"} <= {row["field"] for row in unread}
