"""The five situations that the project exists for, each as the real state of a booted node that the
audit meets over ssh."""

from __future__ import annotations

import dataclasses

import hardware
import nccl_libraries
import pytest
from hardware import H200X8, consumer_gpus

RTX_3090 = "NVIDIA GeForce RTX 3090"
RTX_A6000 = "NVIDIA RTX A6000"
PAIR = {"training": ["gpu001", "gpu002"]}
TORCH = "/opt/envs/train/lib/python3.11/site-packages"
ENVIRONMENTS = {
    "unhang_policy": {"torch": {"environments": ["/opt/envs/train"]}, "build": {"extensions": True}}
}


def second_interface(fleet, name):
    """A further network interface with an address, as nodes with several have them."""
    up = (
        "ip link add eth1 type veth peer name eth2 && ip address add 10.99.0.2/24 dev eth1 && ip"
        " link set eth1 up && ip link set eth2 up"
    )
    fleet.shell(name, up, undo="ip link del eth1")


class TestOldKernelAndWorkstationGpus:
    """Situation 1: kernel 5.4, three RTX A6000 of which one is below x16, no InfiniBand, several
    interfaces and none named.

    One and not all: the nodes may lie in a virtual machine, where a width that all GPUs have is how
    its host passes them through.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def audit(cls, class_fleet):
        machine = consumer_gpus(RTX_A6000, 3, "535.154.05", kernel="5.4.0-150-generic")
        machine.answers["devices"] = {"1": {"nvmlDeviceGetCurrPcieLinkWidth": 8}}
        class_fleet.equip("gpu001", machine)
        second_interface(class_fleet, "gpu001")
        return class_fleet.audit(groups=PAIR)

    @pytest.mark.parametrize(
        "rule", ["kernel-below-5-5", "pcie-width-below-max", "nccl-interface-not-named"]
    )
    def test_finding(self, audit, rule):
        assert rule in audit.rules("gpu001")

    def test_the_weak_evidence_says_that_it_is_weak(self, audit):
        (kernel,) = [entry for entry in audit.of("gpu001") if entry["rule"] == "kernel-below-5-5"]
        assert kernel["confidence"] != "documented"
        assert "5.4.0-150-generic" in kernel["found"]

    def test_the_neighbour_has_none_of_it(self, audit):
        assert {"kernel-below-5-5", "pcie-width-below-max", "nccl-interface-not-named"}.isdisjoint(
            audit.rules("gpu002")
        )


class TestDriverThatDeadlocksPeerToPeer:
    """Situation 2: driver 545.23.08 with several RTX 3090, another driver in the development group,
    the workaround in force."""

    @pytest.fixture(scope="class")
    @classmethod
    def audit(cls, class_fleet):
        class_fleet.equip("gpu001", consumer_gpus(RTX_3090, 4, "545.23.08"))
        class_fleet.equip("gpu002", consumer_gpus(RTX_3090, 4, "535.154.05"))
        class_fleet.plant("gpu001", "/etc/nccl.conf", "NCCL_P2P_DISABLE=1\n")
        linked = {name: {"unhang_policy": {"same_as": "production"}} for name in ("gpu002",)}
        return class_fleet.audit(
            groups={"production": ["gpu001"], "development": ["gpu002"]}, host_variables=linked
        )

    def test_the_known_bad_driver_is_critical_and_names_a_good_one(self, audit):
        (entry,) = [
            entry
            for entry in audit.of("gpu001")
            if entry["rule"] == "driver-545-23-08-p2p-deadlock"
        ]
        assert entry["severity"] == "critical"
        assert "545.23.08" in entry["found"]
        assert "535.154.05" in entry["expected"]
        assert entry["remedy"]["role"] == "gpu_driver"

    def test_the_known_good_driver_is_not_blamed(self, audit):
        assert "driver-545-23-08-p2p-deadlock" not in audit.rules("gpu002")

    def test_the_workaround_that_stayed_is_a_finding(self, audit):
        assert "nccl-p2p-disabled" in audit.rules("gpu001")

    def test_development_and_production_disagree(self, audit):
        assert "group-driver-differs" in audit.rules()


class TestTimeoutFolkloreAndDisagreement:
    """Situation 3: variables that do nothing or were renamed, processes on GPUs, a link down, NCCL
    versions that differ."""

    @pytest.fixture(scope="class")
    @classmethod
    def audit(cls, class_fleet, nccl):
        class_fleet.plant("gpu001", "/etc/nccl.conf", "# from a forum\nNCCL_TIMEOUT=1200000\n")
        class_fleet.plant(
            "gpu001",
            "/etc/profile.d/training.sh",
            "export NCCL_BLOCKING_WAIT=1\nexport NCCL_ASYNC_ERROR_HANDLING=1\n",
        )
        other = f"{nccl_libraries.PLACE}/libnccl.so.{nccl_libraries.OTHER}"
        # runs when the file is gone again
        class_fleet.undo.callback(class_fleet.shell, "gpu002", "ldconfig")
        class_fleet.plant("gpu002", f"/{other}", (nccl[nccl_libraries.OTHER] / other).read_bytes())
        class_fleet.shell("gpu002", "ldconfig")
        down = {"devices": {"2": {"nvlink": {"all": {"state": 1}, "3": {"state": 0}}}}}
        class_fleet.answer("gpu003", **down)
        return class_fleet.audit()

    def test_a_variable_that_exists_in_no_release_is_found_with_file_and_line(self, audit):
        (entry,) = [
            entry for entry in audit.of("gpu001") if entry["rule"] == "nccl-setting-not-real"
        ]
        assert "NCCL_TIMEOUT" in entry["found"]
        settings = audit.section("gpu001", "nccl")["settings"]
        assert [
            (row["file"], row["line"]) for row in settings if row["name"] == "NCCL_TIMEOUT"
        ] == [("/etc/nccl.conf", 2)]

    def test_renamed_variables_are_found_under_their_old_names(self, audit):
        found = " ".join(
            entry["found"]
            for entry in audit.of("gpu001")
            if entry["rule"] == "torch-setting-renamed"
        )
        assert "NCCL_BLOCKING_WAIT" in found
        assert "NCCL_ASYNC_ERROR_HANDLING" in found

    def test_the_node_with_another_nccl_is_the_outlier_of_its_group(self, audit):
        (entry,) = [
            entry
            for entry in audit.findings
            if entry["rule"] == "group-nccl-differs" and entry["verdict"] == "fail"
        ]
        assert nccl_libraries.OTHER in entry["found"]
        assert (
            "gpu002" in str(entry["found"])
            or entry.get("host") == "gpu002"
            or entry["hosts"] == ["gpu002"]
        )

    def test_a_link_that_is_down_is_found_on_its_gpu(self, audit):
        assert "nvlink-some-inactive" in audit.rules("gpu003")
        assert "nvlink-some-inactive" not in audit.rules("gpu004")


class TestFusedKernelsThatCannotBeBuilt:
    """Situation 4: extensions are compiled at start, and nothing to compile with is there; a lock
    of a dead build stays."""

    @pytest.fixture(scope="class")
    @classmethod
    def audit(cls, class_fleet):
        class_fleet.plant(
            "gpu001",
            f"{TORCH}/torch/version.py",
            "__version__ = '2.3.0+cu121'\ncuda: Optional[str] = '12.1'\nhip: Optional[str] ="
            " None\n",
        )
        class_fleet.plant(
            "gpu001", "/opt/envs/train/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n"
        )
        lock = class_fleet.plant(
            "gpu001", "/root/.cache/torch_extensions/py311_cu121/fused_kernels/lock", ""
        )
        class_fleet.shell(
            "gpu001",
            "touch -d '3 hours ago' /root/.cache/torch_extensions/py311_cu121/fused_kernels/lock",
        )
        assert lock.exists()
        return class_fleet.audit(groups=PAIR, host_variables={"gpu001": ENVIRONMENTS})

    @pytest.mark.parametrize(
        "rule",
        [
            "extension-lock-stale",
            "build-nvcc-missing",
            "build-compiler-missing",
            "build-ninja-missing",
        ],
    )
    def test_finding(self, audit, rule):
        assert rule in audit.rules("gpu001")
        assert rule not in audit.rules("gpu002")

    def test_the_lock_is_named(self, audit):
        (entry,) = [
            entry for entry in audit.of("gpu001") if entry["rule"] == "extension-lock-stale"
        ]
        assert "torch_extensions" in str(entry["evidence"]) + entry["found"]


class TestEveryRankOnTheFirstGpu:
    """Situation 5: CUDA_VISIBLE_DEVICES pinned in a unit file and in a profile, exclusive compute
    mode, four processes on one GPU."""

    @pytest.fixture(scope="class")
    @classmethod
    def audit(cls, class_fleet):
        class_fleet.plant(
            "gpu001",
            "/etc/systemd/system/trainer.service",
            "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0\nExecStart=/bin/true\n",
        )
        class_fleet.plant("gpu002", "/etc/profile.d/gpu.sh", "export CUDA_VISIBLE_DEVICES=0\n")
        ranks = [{"pid": pid, "usedGpuMemory": 498073600} for pid in (1, 2, 3, 4)]
        one_gpu = {
            "nvmlDeviceGetComputeRunningProcesses": ranks,
            "nvmlDeviceGetComputeRunningProcesses_v3": ranks,
        }
        exclusive = dataclasses.replace(
            H200X8,
            answers={"all_devices": {"nvmlDeviceGetComputeMode": 3}, "devices": {"0": one_gpu}},
        )
        class_fleet.undo.callback(
            hardware.install_profile, class_fleet.nodes["gpu003"], H200X8, class_fleet.work
        )
        hardware.install_profile(class_fleet.nodes["gpu003"], exclusive, class_fleet.work)
        return class_fleet.audit()

    @pytest.mark.parametrize(
        ("name", "file"),
        [("gpu001", "/etc/systemd/system/trainer.service"), ("gpu002", "/etc/profile.d/gpu.sh")],
    )
    def test_a_pinned_device_is_found_with_its_file(self, audit, name, file):
        entries = [
            entry for entry in audit.of(name) if entry["rule"] == "cuda-visible-devices-pinned"
        ]
        assert entries
        assert file in str(entries)

    def test_exclusive_compute_mode_is_found(self, audit):
        assert "gpu-compute-mode-exclusive" in audit.rules("gpu003")

    def test_all_ranks_on_the_first_gpu_are_found(self, audit):
        assert "all-ranks-on-one-gpu" in audit.rules("gpu003")

    def test_the_node_without_any_of_it_is_clean(self, audit):
        assert {
            "cuda-visible-devices-pinned",
            "gpu-compute-mode-exclusive",
            "all-ranks-on-one-gpu",
        }.isdisjoint(audit.rules("gpu004"))
