"""GPUs and interconnect as read from NVML: from recordings, and through the real nvidia-ml-py with
the fake library."""

from __future__ import annotations

import pytest
from case_rows import case_rows
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X2, H200X8, collect_in_process, schema_faults, write_recording

from unhang_node.base.nvml import names
from unhang_node.facts.collect import collect

ROWS = case_rows(__file__)

PATIENT = ("--silence-s", "120", "--deadline-s", "120")
NVML_SECTIONS = "!all,gpus,interconnect,driver"


def recorded(path, **options):
    """Sections of the document from a recording."""
    options = {
        "nvml_recording": str(path),
        "gather_subset": ["!all", "gpus", "interconnect", "driver"],
        "silence_s": 120.0,
        "deadline_s": 120.0,
        **options,
    }
    document = collect(options, load_pynvml=None)
    assert schema_faults(document) == []
    return document["sections"]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake-nvml")
    build_fake_nvml(str(folder))
    return folder


def live(fake_nvml, tmp_path, recording, *arguments):
    """Sections of the document from the fake library, with a profile made from the recording."""
    profile = write_profile(str(recording), str(tmp_path / "profile"))
    env = {"LD_LIBRARY_PATH": str(fake_nvml), "UNHANG_FAKE_NVML_PROFILE": profile}
    document = collect_in_process(
        "--gather-subset", NVML_SECTIONS, *(arguments or PATIENT), env=env
    )
    assert schema_faults(document) == []
    return document["sections"]


def reasons(section):
    return {row["field"]: (row["status"], row["reason"]) for row in section["probe"]["unread"]}


def without_times(sections):
    """Values that must be equal in a live and a recorded session."""
    picked = {name: dict(sections[name]) for name in ("gpus", "interconnect")}
    for section in picked.values():
        section.pop("first_handle_ms", None)
        section["probe"] = {
            key: value for key, value in section["probe"].items() if key != "duration_ms"
        }
    picked["driver"] = {
        key: sections["driver"].get(key) for key in ("cuda_version", "nvml_version", "gsp_firmware")
    }
    return picked


@pytest.fixture(scope="module")
def h200x8():
    return recorded(H200X8)


def test_a_healthy_node_of_eight_gpus_has_the_numbers_that_its_tools_printed(h200x8):
    gpus = h200x8["gpus"]
    assert (gpus["probe"]["status"], gpus["count"], gpus["model"], len(gpus["devices"])) == (
        "ok",
        8,
        "NVIDIA H200",
        8,
    )
    for gpu in gpus["devices"]:
        assert (gpu["architecture"], gpu["compute_capability"], gpu["vbios"]) == (
            "hopper",
            "9.0",
            "96.00.A5.00.1A",
        )
        link = {
            "generation_now": 5,
            "generation_max": 5,
            "generation_card": 5,
            "width_now": 16,
            "width_max": 16,
            "replays": 0,
        }
        assert gpu["pcie"] == {**link, "errors_fatal": None, "errors_nonfatal": None}
        assert (gpu["memory_total_mib"], gpu["bar1_total_mib"]) == (143771.0, 262144.0)
        assert (gpu["power_limit_w"], gpu["power_limit_max_w"], gpu["clocks"]["sm_max_mhz"]) == (
            700.0,
            700.0,
            1980,
        )
        assert gpu["ecc"]["enabled"] is True
        assert gpu["row_remap"] == {
            "corrected": 0,
            "uncorrected": 0,
            "pending": False,
            "failed": False,
            "banks_without_spare": 0,
        }
        assert (gpu["persistence"], gpu["compute_mode"], gpu["processes"], gpu["error"]) == (
            True,
            "default",
            [],
            None,
        )
    assert [gpu["pci_address"] for gpu in gpus["devices"]][:5] == [
        "0000:00:06.0",
        "0000:00:07.0",
        "0000:00:08.0",
        "0000:00:09.0",
        "0000:00:0a.0",
    ]


def test_a_healthy_node_has_all_links_up_and_every_pair_reads(h200x8):
    interconnect = h200x8["interconnect"]
    assert len(interconnect["links"]) == 8 * 18
    assert {
        (row["active"], row["version"], row["remote"], row["speed_mb_s"])
        for row in interconnect["links"]
    } == {(True, "4.0", "switch", 26562)}
    assert [
        (row["nvlinks"], row["nvlinks_active"], row["errors_total"])
        for row in interconnect["by_gpu"]
    ] == [(18, 18, 0)] * 8
    assert [(row["a"], row["b"]) for row in interconnect["pairs"]] == [
        (a, b) for a in range(8) for b in range(a + 1, 8)
    ]
    assert {
        (row["read"], row["write"], row["topology"], row["nvlinks"])
        for row in interconnect["pairs"]
    } == {("ok", None, "hostbridge", 18)}
    assert interconnect["p2p_ok"] is True


def test_what_the_driver_serves_comes_from_nvml(h200x8):
    assert h200x8["driver"]["cuda_version"] == "13.0"
    assert h200x8["driver"]["nvml_version"] == "13.580.159.04"
    assert h200x8["driver"]["gsp_firmware"] == {"enabled": True, "version": "580.159.04"}


def test_a_value_that_no_gpu_has_is_null_with_one_reason_for_all(h200x8):
    assert h200x8["gpus"]["devices"][3]["retired_pages"] is None
    assert reasons(h200x8["gpus"])["devices[*].retired_pages"] == (
        "absent",
        "NVML_ERROR_NOT_SUPPORTED from NVML_FI_DEV_RETIRED_SBE",
    )


def test_the_fabric_of_an_nvswitch_machine_is_completed():
    sections = recorded(H200X2)
    assert sections["interconnect"]["fabric_state"] == "completed"
    fabric = sections["gpus"]["devices"][0]["fabric"]
    assert fabric == {
        "state": "completed",
        "status": "success",
        "clique": 0,
        "cluster": None,
        "health_mask": 0,
    }


DIFFERENCES = ROWS["DIFFERENCES"]


@pytest.mark.parametrize("base", [H200X8, H200X2], ids=["h200x8", "h200x2"])
@pytest.mark.parametrize("differences", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_live_session_answers_as_the_recorded_one(fake_nvml, tmp_path, base, differences):
    recording = write_recording(tmp_path, base, **differences)
    assert without_times(live(fake_nvml, tmp_path, recording)) == without_times(recorded(recording))


def test_a_link_that_is_down_is_seen_on_its_gpu_and_in_its_pairs(tmp_path):
    interconnect = recorded(write_recording(tmp_path, **DIFFERENCES["link down"]))["interconnect"]
    assert [row["nvlinks_active"] for row in interconnect["by_gpu"]] == [
        18,
        18,
        18,
        17,
        18,
        18,
        18,
        18,
    ]
    assert [(row["gpu"], row["link"]) for row in interconnect["links"] if not row["active"]] == [
        (3, 5)
    ]
    assert {row["nvlinks"] for row in interconnect["pairs"] if 3 in (row["a"], row["b"])} == {17}


def test_links_that_counted_errors_are_reported_one_by_one(tmp_path):
    interconnect = recorded(write_recording(tmp_path, **DIFFERENCES["link errors"]))["interconnect"]
    noisy = [row for row in interconnect["links"] if any(row["errors"].values())]
    assert [(row["gpu"], row["link"], row["errors"]) for row in noisy] == [
        (2, 7, {"replay": 12, "recovery": 0, "crc": 3})
    ]
    assert [row["errors_total"] for row in interconnect["by_gpu"]] == [0, 0, 15, 0, 0, 0, 0, 0]


def test_a_pair_that_cannot_read_is_asked_for_the_rest(tmp_path):
    interconnect = recorded(write_recording(tmp_path, **DIFFERENCES["pair refused"]))[
        "interconnect"
    ]
    first, second = interconnect["pairs"][:2]
    assert (first["read"], first["write"], first["nvlink"], first["atomics"]) == (
        "disabled_by_regkey",
        "disabled_by_regkey",
        "not_supported",
        "not_supported",
    )
    assert (second["read"], second["write"]) == ("ok", None)
    assert interconnect["p2p_ok"] is False


def test_the_full_matrix_asks_each_pair_for_everything():
    pairs = recorded(H200X8, p2p_matrix="full")["interconnect"]["pairs"]
    assert {(row["read"], row["write"], row["nvlink"], row["atomics"]) for row in pairs} == {
        ("ok", "ok", "ok", "ok")
    }


def test_nodes_without_nvlink_have_no_links_and_still_their_pairs(tmp_path):
    interconnect = recorded(write_recording(tmp_path, **DIFFERENCES["no NVLink"]))["interconnect"]
    assert interconnect["links"] == []
    assert {
        (row["nvlinks"], row["nvlinks_active"], row["remote"]) for row in interconnect["by_gpu"]
    } == {(0, 0, "none")}
    assert {row["nvlinks"] for row in interconnect["pairs"]} == {0}


@pytest.mark.parametrize(
    "state, cluster, expected",
    [
        (3, [0xAB] + [0] * 15, {"state": "completed", "clique": 0, "cluster": "ab" + "00" * 15}),
        # a single GPU, as a virtual machine has it
        (0, [0] * 16, {"state": "not_supported", "clique": None, "cluster": None}),
    ],
)
def test_a_clique_is_reported_only_where_there_is_a_fabric(tmp_path, state, cluster, expected):
    answer = {"state": state, "status": 0, "cliqueId": 0, "clusterUuid": cluster, "healthMask": 0}
    devices = recorded(
        write_recording(tmp_path, all_devices={"nvmlDeviceGetGpuFabricInfoV:v2": {"v": answer}})
    )["gpus"]["devices"]
    assert {tuple(gpu["fabric"][key] for key in expected) for gpu in devices} == {
        tuple(expected.values())
    }


def test_one_gpu_has_no_pairs_and_no_claim_about_them(tmp_path):
    interconnect = recorded(write_recording(tmp_path, device_count=1))["interconnect"]
    assert (interconnect["pairs"], interconnect["p2p_ok"]) == ([], None)


def test_sixteen_gpus_are_told_apart(tmp_path):
    sections = recorded(write_recording(tmp_path, device_count=16))
    devices = sections["gpus"]["devices"]
    assert sections["gpus"]["count"] == 16
    for key in ("uuid", "pci_address", "minor"):
        assert len({device[key] for device in devices}) == 16
    assert len(sections["interconnect"]["pairs"]) == 120
    assert sections["interconnect"]["p2p_ok"] is True


@pytest.mark.parametrize("case", ["GPU lost at once", "GPU lost on the way"])
def test_a_lost_gpu_costs_itself_only(tmp_path, case):
    sections = recorded(write_recording(tmp_path, **DIFFERENCES[case]))
    devices = sections["gpus"]["devices"]
    assert (sections["gpus"]["probe"]["status"], sections["gpus"]["count"], len(devices)) == (
        "ok",
        8,
        8,
    )
    assert devices[5]["error"].startswith("NVML_ERROR_GPU_IS_LOST from nvmlDevice")
    assert [device["error"] for device in devices if device["index"] != 5] == [None] * 7
    assert all(device["pcie"]["width_now"] == 16 for device in devices if device["index"] != 5)
    pairs = sections["interconnect"]["pairs"]
    assert {row["read"] for row in pairs if 5 in (row["a"], row["b"])} == {None}
    assert {row["read"] for row in pairs if 5 not in (row["a"], row["b"])} == {"ok"}
    assert sections["interconnect"]["p2p_ok"] is None
    assert sections["gpus"]["model"] == "NVIDIA H200"
    assert reasons(sections["gpus"])["devices[5]"] == ("absent", devices[5]["error"])
    with_it = [place for place, row in enumerate(pairs) if 5 in (row["a"], row["b"])]
    assert {reasons(sections["interconnect"])[f"pairs[{place}]"] for place in with_it} == {
        ("absent", "GPU 5 does not answer")
    }


def test_an_old_driver_gives_null_with_a_reason_and_the_older_call_where_there_is_one(tmp_path):
    sections = recorded(write_recording(tmp_path, H200X2, **DIFFERENCES["old driver"]))
    gpu = sections["gpus"]["devices"][0]
    assert sections["gpus"]["probe"]["status"] == "ok"
    assert (gpu["memory_total_mib"], gpu["memory_reserved_mib"]) == (143771.0, None)
    assert gpu["row_remap"]["corrected"] == 0  # nvmlDeviceGetRemappedRows
    # nvmlDeviceGetCurrentClocksThrottleReasons
    assert gpu["clocks"]["throttle_reasons"] == ["gpu_idle"]
    assert gpu["processes"] == []
    assert gpu["gsp_version"] is None
    assert reasons(sections["gpus"])["devices[*].gsp_version"] == (
        "absent",
        "NVML_ERROR_FUNCTION_NOT_FOUND from nvmlDeviceGetGspFirmwareVersion",
    )
    assert sections["driver"]["cuda_version"] == "13.0"
    assert len(sections["interconnect"]["links"]) == 2 * 18
    # nvmlDeviceGetNvLinkErrorCounter
    assert sections["interconnect"]["links"][0]["errors"] == {"replay": 0, "recovery": 0, "crc": 0}


def test_what_needs_root_is_denied(tmp_path):
    gpus = recorded(write_recording(tmp_path, **DIFFERENCES["no right"]))["gpus"]
    assert gpus["devices"][2]["compute_mode"] is None
    assert reasons(gpus)["devices[2].compute_mode"] == (
        "denied",
        "NVML_ERROR_NO_PERMISSION from nvmlDeviceGetComputeMode",
    )
    assert gpus["devices"][1]["compute_mode"] == "default"


STALLS = [
    ("nvmlInitWithFlags", "nvmlInitWithFlags", 0, None),
    ("nvmlDeviceGetHandleByIndex_v2(1)", "nvmlDeviceGetHandleByIndex_v2(GPU 1)", 0, None),
    ("nvmlDeviceGetUUID(1)", "nvmlDeviceGetUUID(GPU 1)", 0, None),
    ("nvmlDeviceGetMemoryInfo(1)", "nvmlDeviceGetMemoryInfo(GPU 1 0000:00:07.0)", 1, None),
    ("nvmlDeviceGetNvLinkState(1)", "nvmlDeviceGetNvLinkState(GPU 1 0000:00:07.0)", 2, None),
    ("nvmlDeviceGetP2PStatus(0,1)", "nvmlDeviceGetP2PStatus(GPU 0, GPU 1)", 2, 2),
]


@pytest.mark.parametrize("how", ["recorded", "live"])
@pytest.mark.parametrize(
    ("stall", "named", "whole_gpus", "linked_gpus"), STALLS, ids=[row[0] for row in STALLS]
)
def test_a_call_that_never_returns_is_named_and_what_was_read_before_stands(
    fake_nvml, tmp_path, how, stall, named, whole_gpus, linked_gpus
):
    recording = write_recording(tmp_path, H200X2, stall=stall)
    if how == "recorded":
        sections = recorded(recording, silence_s=2.0)
    else:
        sections = live(fake_nvml, tmp_path, recording, "--silence-s", "5")
    gpus, interconnect = sections["gpus"], sections["interconnect"]
    assert interconnect["probe"]["status"] == "timeout"
    assert named + " did not return within" in interconnect["probe"]["error"]
    assert gpus["probe"]["status"] == ("ok" if whole_gpus == 2 else "timeout")
    assert [device["index"] for device in gpus.get("devices", []) if "pcie" in device] == list(
        range(whole_gpus)
    )
    assert (len(interconnect["by_gpu"]) if "by_gpu" in interconnect else None) == linked_gpus
    assert "pairs" not in interconnect
    if stall.startswith(("nvmlInit", "nvmlDeviceGetHandle")):
        assert reasons(sections["driver"])["cuda_version"][0] == "timeout"
    else:
        assert sections["driver"]["cuda_version"] == "13.0"


def test_which_gpus_there_are_stands_even_when_the_first_one_stalls(tmp_path):
    gpus = recorded(
        write_recording(tmp_path, stall="nvmlDeviceGetUtilizationRates(0)"), silence_s=2.0
    )["gpus"]
    assert gpus["probe"]["status"] == "timeout"
    assert (gpus["count"], gpus["model"], len({device["uuid"] for device in gpus["devices"]})) == (
        8,
        "NVIDIA H200",
        8,
    )


@pytest.mark.parametrize("how", ["recorded", "live"])
def test_a_crash_inside_the_library_costs_the_gpus_alone(fake_nvml, tmp_path, how):
    recording = write_recording(tmp_path, crash="nvmlDeviceGetMigMode(4)")
    sections = recorded(recording) if how == "recorded" else live(fake_nvml, tmp_path, recording)
    assert sections["gpus"]["probe"]["status"] == "error"
    assert sections["gpus"]["probe"]["error"] == (
        "killed by SIGSEGV in nvmlDeviceGetMigMode(GPU 4 0000:00:0a.0)"
    )
    assert [device["index"] for device in sections["gpus"]["devices"] if "pcie" in device] == [
        0,
        1,
        2,
        3,
    ]
    assert sections["node"]["probe"]["status"] == "ok"


def test_a_library_that_does_not_fit_the_module_is_a_mismatch(fake_nvml, tmp_path):
    recording = write_recording(tmp_path, system={"nvmlInitWithFlags": {"nvml_error": 18}})
    for sections in (recorded(recording), live(fake_nvml, tmp_path, recording)):
        assert (sections["driver"]["mismatch"], sections["driver"]["mismatch_text"]) == (
            True,
            "NVML_ERROR_LIB_RM_VERSION_MISMATCH from nvmlInitWithFlags",
        )
        assert sections["gpus"]["probe"]["status"] == "error"
        assert "NVML_ERROR_LIB_RM_VERSION_MISMATCH" in sections["gpus"]["probe"]["error"]


def test_no_library_is_absent_and_no_driver_loaded_too(fake_nvml, tmp_path):
    document = collect_in_process(
        "--gather-subset", NVML_SECTIONS, *PATIENT, env={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    gpus = document["sections"]["gpus"]["probe"]
    assert (gpus["status"], gpus["error"]) == (
        "absent",
        "libnvidia-ml.so.1 is not in the loader's paths",
    )
    env = {"LD_LIBRARY_PATH": str(fake_nvml), "UNHANG_FAKE_NVML_PROFILE": str(tmp_path / "none")}
    document = collect_in_process("--gather-subset", NVML_SECTIONS, *PATIENT, env=env)
    gpus = document["sections"]["gpus"]["probe"]
    assert gpus["status"] == "absent"
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in gpus["error"]


def test_gpus_on_the_bus_without_a_driver_are_an_error_not_an_absence(tmp_path):
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2335")):
        (device / name).write_text(value + "\n")
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    document = collect_in_process(
        "--gather-subset", NVML_SECTIONS, "--sysfs", str(tmp_path / "sys"), *PATIENT, env=env
    )
    gpus = document["sections"]["gpus"]
    assert gpus["probe"]["status"] == "error"
    assert "no driver installed" in gpus["probe"]["error"]
    assert gpus["pci_count"] == 1


def test_the_time_of_the_first_handle_is_a_fact(fake_nvml, tmp_path):
    recording = write_recording(tmp_path, H200X2, slow={"nvmlDeviceGetHandleByIndex_v2(0)": 1.5})
    for sections in (recorded(recording), live(fake_nvml, tmp_path, recording)):
        assert sections["gpus"]["first_handle_ms"] >= 1500


def test_a_sleeping_gpu_gets_the_time_that_it_needs(fake_nvml, tmp_path):
    proc = tmp_path / "proc"
    gpu = proc / "driver/nvidia/gpus/0000:00:06.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA H200\nVideo BIOS: \t ??.??.??.??.??\n")
    recording = write_recording(tmp_path, H200X2, slow={"nvmlDeviceGetHandleByIndex_v2(0)": 4})
    sections = live(fake_nvml, tmp_path, recording, "--silence-s", "2", "--procfs", str(proc))
    assert sections["gpus"]["probe"]["status"] == "ok"
    assert sections["gpus"]["first_handle_ms"] >= 4000


def test_processes_of_a_gpu_have_an_owner_but_never_a_command_line(tmp_path):
    root = tmp_path / "root"
    for pid, comm, uid, cgroup in (
        (71, "python3", 1000, "0::/user.slice"),
        (72, "ray::worker", 1001, "0::/kubepods.slice/cri-containerd-1"),
    ):
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(comm + "\n")
        (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (folder / "cgroup").write_text(cgroup + "\n")
        (folder / "cmdline").write_text("python3\0--token=secret\0")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n"
    )
    rows = [
        {"pid": pid, "usedGpuMemory": memory}
        for pid, memory in ((71, 2 * 1048576), (72, None), (73, 1048576))
    ]
    recording = write_recording(
        tmp_path, H200X2, devices=[{"nvmlDeviceGetComputeRunningProcesses_v3": {"v": rows}}]
    )
    gpus = recorded(recording, rootfs=[str(root)])["gpus"]
    assert gpus["devices"][0]["processes"] == [
        {
            "pid": 71,
            "user": "ana",
            "command": "python3",
            "where": "host",
            "memory_mib": 2.0,
            "use": "compute",
        },
        {
            "pid": 72,
            "user": "1001",
            "command": "ray::worker",
            "where": "container",
            "memory_mib": None,
            "use": "compute",
        },
        {
            "pid": 73,
            "user": None,
            "command": None,
            "where": None,
            "memory_mib": 1.0,
            "use": "compute",
        },
    ]


def test_the_numbers_are_those_of_nvidia_ml_py():
    import pynvml

    for name, number in names.FIELDS.items():
        assert getattr(pynvml, name) == number, name
    for number, name in names.ERROR_NAMES.items():
        assert getattr(pynvml, name) == number, name
    assert pynvml.nvmlMemory_v2 == names.MEMORY_V2
