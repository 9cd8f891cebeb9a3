"""A severity above info rests on more than one report, or on a fact of the node that proves it."""

from __future__ import annotations

from unhang.audit.rules.compiled_catalogue import load_catalogue

RULES = load_catalogue().rules

# Rules above info that rest on one report: what proves them on the node that they speak of. Such a rule without a line here is info.
ONE_REPORT = {
    "acs-on-amd-root-bridges-rtx-5880": "ACS is on above the GPUs, which acs-on-bare-metal calls an error on any node",
    "containerd-default-runtime-not-configured": "the file of containerd names a runtime that it does not have",
    "driver-590-48-01-lockup": "the report has three models of GPU",
    "driver-deadlock-while-a-gpu-closes": "the trace of the hung process is in the kernel log",
    "driver-gsp-does-not-answer": "Xid 119 or 120 is in the kernel log",
    "driver-next-load-differs": "the version on disk is not the one that is loaded",
    "driver-release-has-fault": "each fault has sources of its own in its table, where a test wants two reports",
    "driver-release-known-to-hang": "the driver does not answer",
    "driver-without-package-kernel-modules": "the driver is not loaded",
    "fabric-manager-guest-without-switches": "the fabric has not come up",
    "fabric-manager-version-differs": "the two versions differ, with which the manager refuses to start",
    "gb200-nvlink-flaps": "Xid 149 is in the kernel log",
    "gpu-hot-without-work": "the temperature of an idle GPU",
    "gpu-library-crashed": "the crash is in the kernel log",
    "gpu-not-taken-by-open-modules": "more GPUs on the PCI bus than the driver has",
    "gpus-without-room-in-guest": "the kernel log says that a GPU has no address space",
    "group-driver-differs": "the versions differ",
    "group-fabric-manager-differs": "the versions differ",
    "iommu-on-with-rtx-pro-6000-and-amd": "the vendor asks for it to be off on these cards",
    "geforce-p2p-forced-in-virtual-machine": "the driver was loaded with the parameter that forces it",
    "kernel-soft-lockup": "the lockup is in the kernel log",
    "kubelet-static-cpus-with-one-offline": "a CPU is offline beside a static CPU manager",
    "mig-change-held-by-display-module": "the change is pending and the module is loaded",
    "modules-545-on-kernel-6-8": "a kernel from 6.8 on is installed and has no module",
    "nccl-graph-file-of-four-gpus": "the file is for another number of GPUs than the node has",
    "nccl-nvls-under-cuda-12-2-driver": "NCCL and driver are of the two releases",
    "network-link-went-down": "the link's losses are in the kernel log",
    "packages-cuda-drivers-is-empty": "the driver is not loaded",
    "peermem-not-registered": "the module is loaded and not registered, and there is no DMA-BUF",
}
# Errors that are our own conclusion: the fact from which it follows.
OUR_CONCLUSION = {
    "admission-nics-missing": "the admission names the device, and the kernel has fewer",
    "cudnn-drops-gpu": "the compute capability is below the lowest of this cuDNN",
    "gpu-bar1-smaller-than-memory": "BAR1 and memory are read",
    "gpu-count-not-the-boards": "the number of GPUs is read, and the board's is in its table",
    "gpu-gone-since-earlier-run": "an earlier run of this machine read the GPU, and the PCI bus has fewer",
    "gpu-memory-below-model": "the memory is read, and the model's is in its table",
    "gpu-slow-under-load": "clock and utilization are read under load",
    "group-fabric-differs": "fabric manager, IMEX or switches are there on other nodes",
    "group-gpudirect-path-differs": "GPUDirect is there on other nodes",
    "group-nccl-differs": "the versions differ, and init refuses that",
    "group-nvlinks-differ": "the links are active on other nodes",
    "nvswitch-gone-since-earlier-run": "an earlier run of this machine read the switch, and the PCI bus has fewer",
    "rdma-card-gone-since-earlier-run": "an earlier run of this machine read the card, and the kernel has fewer",
    "rdma-port-down-since-earlier-run": "the port was active in an earlier run of this machine",
    "rdma-port-without-subnet-manager": "the port has no subnet manager",
    "temp-full": "the free space is read",
}


def test_a_rule_above_info_that_rests_on_one_report_has_a_fact_that_proves_it():
    found = {rule.id for rule in RULES if rule.severity != "info" and rule.row["confidence"] == "reported" and len(rule.row["sources"]) == 1}
    assert found == set(ONE_REPORT)


def test_an_error_that_is_our_own_conclusion_has_a_fact_from_which_it_follows():
    assert {rule.id for rule in RULES if rule.severity in ("error", "critical") and rule.row["confidence"] == "inferred"} == set(OUR_CONCLUSION)
