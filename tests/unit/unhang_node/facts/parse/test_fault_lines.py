"""Faults in messages of the kernel: each kind is recognised in its line, and messages of a healthy
machine are no fault."""

from __future__ import annotations

import re

import pytest

from unhang_node.facts.parse.fault_lines import (
    MESSAGES,
    PATTERNS,
    Fault,
    normal_address,
    parse_fault,
)

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def other(subject, pci_address=None):
    return Fault("other", None, pci_address, subject, None)


FAULTS = [
    (XID, Fault("xid", 79, "0000:3b:00.0", None, None)),
    (
        (
            "NVRM: Xid (PCI:0000:86:00): 31, pid=4242, name=python3, Ch 00000008, intr 10000000."
            " MMU Fault"
        ),
        Fault("xid", 31, "0000:86:00.0", "python3", None),
    ),
    (
        "NVRM: Xid (0000:03:00): 13, Graphics Exception: ESR 0x405840=0xa2040a02",
        Fault("xid", 13, "0000:03:00.0", None, None),
    ),
    (
        "NVRM: Xid (PCI:0000:c1:00): 145, RLW_SRC_TRACK, Nonfatal XC0 i0 Link 02",
        Fault("xid", 145, "0000:c1:00.0", None, None),
    ),
    (
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore"
            " MCTO (First)"
        ),
        Fault("sxid", 28006, "0000:c1:00.0", "nvidia-nvswitch3", "non-fatal"),
    ),
    (
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, Fatal, Link 29 sourcetrack timeout"
            " error (First)"
        ),
        Fault("sxid", 24007, "0000:05:00.0", "nvidia-nvswitch0", "fatal"),
    ),
    (
        (
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer,"
            " (Receiver ID)"
        ),
        Fault("aer", None, "0000:3b:00.0", "nvidia", "corrected"),
    ),
    (
        (
            "pcieport 10000:00:01.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal),"
            " type=Transaction Layer, (Requester ID)"
        ),
        Fault("aer", None, "10000:00:01.0", "pcieport", "non-fatal"),
    ),
    (
        (
            "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal),"
            " type=Transaction Layer"
        ),
        Fault("aer", None, "0000:00:01.0", "pcieport", "fatal"),
    ),
    (
        "INFO: task kworker/u8:2:1234 blocked for more than 120 seconds.",
        Fault("hung_task", None, None, "kworker/u8:2", None),
    ),
    (
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4242]",
        Fault("soft_lockup", None, None, "python3", None),
    ),
    (
        "NMI watchdog: BUG: soft lockup - CPU#113 stuck for 23s! [nvidia-modeset/:901]",
        Fault("soft_lockup", None, None, "nvidia-modeset/", None),
    ),
    (
        "Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB",
        Fault("oom", None, None, "python3", None),
    ),
    (
        "Memory cgroup out of memory: Killed process 7 (pt_data_worker) total-vm:1kB",
        Fault("oom", None, None, "pt_data_worker", None),
    ),
    (
        "Out of memory: Kill process 9 (java) score 900 or sacrifice child",
        Fault("oom", None, None, "java", None),
    ),
    (
        (
            "python3[4242]: segfault at 0 ip 00007f1200000000 sp 00007ffe00000000 error 4 in"
            " libnccl.so.2.21.5[7f1200000000+1000]"
        ),
        Fault("segfault", None, None, "libnccl.so.2.21.5", None),
    ),
    (
        (
            "traps: python3[4242] general protection fault ip:7f12 sp:7ffe error:0 in"
            " libcuda.so.535.161.08[7f12+1000]"
        ),
        Fault("segfault", None, None, "libcuda.so.535.161.08", None),
    ),
    (
        "mlx5_core 0000:3b:00.0 ens1np0: Link down",
        Fault("link_down", None, "0000:3b:00.0", "ens1np0", None),
    ),
    (
        "ixgbe 0000:01:00.0 eth0: NIC Link is Down",
        Fault("link_down", None, "0000:01:00.0", "eth0", None),
    ),
    (
        "igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down",
        Fault("link_down", None, "0000:01:00.0", "eth0", None),
    ),
    ("e1000e: eno1 NIC Link is Down", Fault("link_down", None, None, "eno1", None)),
    ("tg3 0000:02:00.0 eno1: Link is down", Fault("link_down", None, "0000:02:00.0", "eno1", None)),
    ("infiniband mlx5_0: Port: 1 Link DOWN", Fault("link_down", None, None, "mlx5_0", None)),
    (
        "pcieport 0000:14:01.0: pciehp: Slot(17): Link Down",
        Fault("link_down", None, "0000:14:01.0", "Slot(17)", None),
    ),
    (
        "bond0: (slave eth1): link status definitely down, disabling slave",
        Fault("link_down", None, None, "eth1", None),
    ),
    (
        "bonding: bond0: link status definitely down for interface eth1, disabling it",
        Fault("link_down", None, None, "eth1", None),
    ),
    (
        "mlx5_core 0000:3b:00.1: Port module event: module 1, Cable unplugged",
        Fault("link_down", None, "0000:3b:00.1", None, None),
    ),
    (
        "NVRM: API mismatch: the client has the version 535.161.08, but",
        Fault("driver_mismatch", None, None, None, None),
    ),
    (
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2477)",
        Fault("other", None, "0000:3b:00.0", "RmInitAdapter", None),
    ),
    (
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
        Fault("other", None, None, "probe routine", None),
    ),
    (
        "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
        Fault("other", None, None, "nvidia_peermem", None),
    ),
    (
        "nvidia-uvm: request_free_mem_region() err -34",
        Fault("other", None, None, "nvidia-uvm", None),
    ),
    (
        "watchdog: Watchdog detected hard LOCKUP on cpu 7",
        Fault("other", None, None, "hard LOCKUP", None),
    ),
    (
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        Fault("other", None, None, "rcu_sched", None),
    ),
    (
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        Fault("other", None, None, "gpu-bar-invalid", None),
    ),
    (
        "NVRM: installed in this system is not supported by open",
        Fault("other", None, None, "gpu-not-for-open-modules", None),
    ),
    (
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        Fault("other", None, None, "gpu-needs-open-modules", None),
    ),
    (
        (
            "NVRM: installed in this system is supported through the NVIDIA 470.xx Legacy drivers."
            " Please"
        ),
        Fault("other", None, None, "gpu-of-older-branch", None),
    ),
    (
        "NVRM: The NVIDIA probe routine was not called for 8 device(s).",
        Fault("other", None, None, "gpu-bound-elsewhere", None),
    ),
    (
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"
            " further processing"
        ),
        Fault("other", None, None, "peermem-context", None),
    ),
    (
        (
            "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): device's health compromised - reached"
            " miss count"
        ),
        Fault("other", None, "0000:3b:00.0", "rdma-card-health", None),
    ),
    (
        (
            "mlx5_core 0000:3b:00.0: wait_func:1152:(pid 9): ACCESS_REG(0x805) timeout. Will cause"
            " a leak of a command resource"
        ),
        Fault("other", None, "0000:3b:00.0", "rdma-card-command", None),
    ),
    (
        (
            "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Bus stuck"
            " (I2C or data shorted)"
        ),
        Fault("other", None, "0000:3b:00.0", "rdma-card-cable", None),
    ),
    (
        (
            "mlx5_core 0000:3b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe"
            " x8 link at 0000:3a:00.0"
        ),
        Fault("other", None, "0000:3b:00.0", "rdma-card-slot", None),
    ),
    (
        (
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power"
            " on the PCIe slot (27W)."
        ),
        Fault("other", None, "0000:5c:00.0", "rdma-card-power", None),
    ),
    (
        "NVRM: something new could not: unable to map the frobnicator",
        Fault("other", None, None, "driver-complaint", None),
    ),
    (
        "nvidia-nvswitch3: open failed, of a new kind",
        Fault("other", None, None, "driver-complaint", None),
    ),
    ("nvidia-uvm: new thing timed out", Fault("other", None, None, "driver-complaint", None)),
    (
        "mlx5_core 0000:5c:00.0: a_new_function:299:(pid 12): Refused by the firmware",
        Fault("other", None, "0000:5c:00.0", "driver-complaint", None),
    ),
    (
        "bnxt_en 0000:5c:00.0 eth2: a new error",
        Fault("other", None, "0000:5c:00.0", "driver-complaint", None),
    ),
    (
        "efa 0000:5c:00.0: Failed to do something new",
        Fault("other", None, "0000:5c:00.0", "driver-complaint", None),
    ),
    (
        "efa 0000:5c:00.0: insufficient of something new",
        Fault("other", None, "0000:5c:00.0", "driver-complaint", None),
    ),
    (
        "ib0: multicast join failed for ff12:401b:ffff:0000:0000:0000:ffff:ffff, status -22",
        Fault("other", None, None, "ipoib-join", None),
    ),
    (
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        Fault("other", None, None, "transmit-queue", None),
    ),
    (
        "neighbour: arp_cache: neighbor table overflow!",
        Fault("other", None, None, "neighbour-table", None),
    ),
    (
        "nf_conntrack: nf_conntrack: table full, dropping packet",
        Fault("other", None, None, "connection-table", None),
    ),
    (
        "cgroup: fork rejected by pids controller in /system.slice/slurmd.service",
        Fault("other", None, None, "processes-limit", None),
    ),
    (
        (
            "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0xa4000000 [fault reason"
            " 0x06] PTE Read access is not set"
        ),
        Fault("other", None, None, "iommu-fault", None),
    ),
    (
        (
            "nvidia 0000:81:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0022"
            " address=0xd0000000 flags=0x0020]"
        ),
        Fault("other", None, None, "iommu-fault", None),
    ),
    (
        "nfs: server fs01 not responding, still trying",
        Fault("other", None, None, "nfs-server", None),
    ),
    (
        "EXT4-fs (sda2): Remounting filesystem read-only",
        Fault("other", None, None, "filesystem-read-only", None),
    ),
    (
        (
            "XFS (nvme0n1p2): Corruption of in-memory data (0x8) detected at"
            " xfs_trans_cancel+0x12d/0x150 [xfs].  Shutting down filesystem."
        ),
        Fault("other", None, None, "filesystem-read-only", None),
    ),
    (
        "TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:29500. Sending cookies.",
        Fault("other", None, None, "connection-requests", None),
    ),
    (
        "x86/PAT: python3:4242 freeing invalid memtype [mem 0x00000000-0x00000fff]",
        Fault("other", None, None, "memory-type-freed", None),
    ),
    (
        "x86/split lock detection: #AC: python3/4242 took a split_lock trap at address: 0x7f1c2e",
        Fault("other", None, None, "split-lock", None),
    ),
    ("VFS: file-max limit 65536 reached", Fault("other", None, None, "open-files-limit", None)),
    (
        (
            "pcieport 0000:40:01.1: broken device, retraining non-functional downstream link at"
            " 2.5GT/s"
        ),
        Fault("other", None, "0000:40:01.1", "link-retrained", None),
    ),
    (
        (
            'audit: type=1400 audit(1763.5:61): apparmor="DENIED" operation="userns_create"'
            ' class="namespace" profile="unconfined" comm="enroot"'
        ),
        Fault("other", None, None, "namespace-restricted", None),
    ),
    (
        (
            "mlx5_core 0000:0c:00.0: swiotlb buffer is full (sz: 4096 bytes), total 32768 (slots),"
            " used 32768 (slots)"
        ),
        Fault("other", None, None, "bounce-buffers-full", None),
    ),
    (
        "NFS: server fs01 error: fileid changed",
        Fault("other", None, None, "nfs-file-changed", None),
    ),
    (
        "bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond",
        Fault("other", None, None, "bond-without-partner", None),
    ),
    (
        (
            "IPv6: bond0: IPv6 duplicate address fe80::a00:27ff:fe1a:1 used by 08:00:27:1a:00:01"
            " detected!"
        ),
        Fault("other", None, None, "address-taken", None),
    ),
    (
        (
            "LustreError: 167-0: scratch-MDT0000-mdc-ffff9a: This client was evicted by"
            " scratch-MDT0000; in progress operations using this service will fail."
        ),
        Fault("other", None, None, "lustre-server", None),
    ),
    (
        "blk_update_request: I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x0",
        Fault("other", None, None, "disk-error", None),
    ),
    (
        (
            "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm python3:"
            " reading directory lblock 0"
        ),
        Fault("other", None, None, "disk-error", None),
    ),
    (
        (
            "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting"
            " req_op:READ(0) size:4096"
        ),
        Fault("other", None, None, "disk-timeout", None),
    ),
    (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
        Fault("other", None, None, "memory-uncorrected", None),
    ),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
        Fault("other", None, None, "memory-corrected", None),
    ),
    (
        "mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)",
        Fault("other", None, None, "processor-hot", None),
    ),
    (
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        Fault("other", None, None, "module-refused", None),
    ),
    ("Loading of unsigned module is rejected", Fault("other", None, None, "module-refused", None)),
    (
        (
            "clocksource: timekeeping watchdog on CPU12: Marking clocksource 'tsc' as unstable"
            " because the skew is too large:"
        ),
        Fault("other", None, None, "clock-unstable", None),
    ),
    (
        (
            "python3: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP),"
            " nodemask=(null)"
        ),
        Fault("other", None, None, "page-allocation", None),
    ),
    (
        "pcieport 0000:14:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        Fault("other", None, "0000:14:01.0", "pcie-contained", None),
    ),
    (
        "mlx5_core 0000:3b:00.0: mlx5_handle_bad_state:138:(pid 7): handling bad device here",
        Fault("other", None, "0000:3b:00.0", "rdma-card-health", None),
    ),
    (
        (
            "Lustre: scratch-OST0001-osc: Connection to scratch-OST0001 (at 10.0.0.1@o2ib) was"
            " lost; in progress operations using this service will wait"
        ),
        Fault("other", None, None, "lustre-server", None),
    ),
    (
        "Memory failure: 0x1234abc: recovery action for dirty LRU page: Recovered",
        Fault("other", None, None, "memory-uncorrected", None),
    ),
    (
        "Loading of module with unavailable key is rejected",
        Fault("other", None, None, "module-refused", None),
    ),
    (
        "nvme nvme0: I/O 12 QID 4 timeout, reset controller",
        Fault("other", None, None, "disk-timeout", None),
    ),
    (
        (
            "mlx5_core 0000:5c:00.0: print_health_info:442:(pid 0): synd 0x8: unrecoverable"
            " hardware error"
        ),
        other("rdma-card-health", "0000:5c:00.0"),
    ),
    (
        "mlx5_core 0000:65:00.0 eth0: NETDEV WATCHDOG: CPU: 5: transmit queue 0 timed out 5032 ms",
        other("transmit-queue", "0000:65:00.0"),
    ),
    ("mlx5_core 0000:5c:00.0 ens3: TX timeout detected", other("transmit-queue", "0000:5c:00.0")),
    (
        "mlx5_core 0000:5c:00.0 ens3: RX timeout on channel: 3, ICOSQ: 0x1 RQ: 0x2, CQ: 0x3",
        other("transmit-queue", "0000:5c:00.0"),
    ),
    (
        (
            "infiniband rdmap16s27: The device didn't send any completion for admin cmd"
            " GET_FEATURE(8) status 0"
        ),
        other("efa-card"),
    ),
    ("infiniband efa_0: Admin queue is closed", other("efa-card")),
    ("efa 0000:10:1b.0: Reset indication didn't turn on", other("efa-card", "0000:10:1b.0")),
    ("efa 0000:10:1b.0: Device isn't ready, abort com init 0x0", other("efa-card", "0000:10:1b.0")),
    (
        "infiniband rdmap16s27: Failed to process command CREATE_QP (opcode 1) err -12",
        other("efa-command"),
    ),
    (
        "infiniband rdmap16s27: Failed to submit command CREATE_QP (opcode 1) err -12",
        other("efa-command"),
    ),
    ("Buffer I/O error on dev nvme0n1p1, logical block 1234, async page read", other("disk-error")),
    ("Buffer I/O error on device sda1, logical block 1234", other("disk-error")),
    ("EXT4-fs (nvme0n1p1): I/O error while writing superblock", other("disk-error")),
    ("nvme0n1p1: attempt to access beyond end of device", other("disk-error")),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        other("disk-timeout"),
    ),
    ("block nvme0n1: no available path - failing I/O", other("disk-lost")),
    ("nvme nvme0: Disabling device after reset failure: -19", other("disk-lost")),
    ("nvme nvme12: Removing after probe failure status: -19", other("disk-lost")),
    ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", other("disk-lost")),
    ("md/raid1:md0: Disk failure on nvme1n1p1, disabling device.", other("array-lost-disk")),
    ("NFS: nfs4_reclaim_open_state: Lock reclaim failed!", other("nfs-lock")),
    (
        (
            "LustreError: 15c-8: MGC10.0.0.9@tcp: Confguration from log work-client failed from MGS"
            " -5. Communication error between node & MGS"
        ),
        other("lustre-not-mounted"),
    ),
    (
        (
            "LNetError: 4242:0:(o2iblnd_cb.c:3359:kiblnd_check_txs_locked()) Timed out tx:"
            " active_txs, 1 seconds"
        ),
        other("lustre-network"),
    ),
    ("BUG: unable to handle page fault for address: ffffb1e2c0e0f000", other("kernel-oops")),
    (
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000008",
        other("kernel-oops"),
    ),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000008", other("kernel-oops")),
    ("kernel BUG at mm/slub.c:435!", other("kernel-oops")),
    ("divide error: 0000 [#1] SMP NOPTI", other("kernel-oops")),
    (
        (
            "Oops: general protection fault, probably for non-canonical address 0xdead000000000122:"
            " 0000 [#1] PREEMPT SMP"
        ),
        other("kernel-oops"),
    ),
    (
        "mce: [Hardware Error]: CPU 4: Machine Check Exception: 5 Bank 7: be00000000800400",
        other("machine-check"),
    ),
    ("mce: [Hardware Error]: Machine check events logged", other("machine-check-logged")),
    ("{1}[Hardware Error]: event severity: recoverable", other("firmware-error")),
    ("BERT: [Hardware Error]: event severity: fatal", other("firmware-error")),
    ("{12}[Hardware Error]: event severity: corrected", other("firmware-error-corrected")),
    (
        "unregister_netdevice: waiting for eth0 to become free. Usage count = 3",
        other("interface-not-freed"),
    ),
    (
        "pci 0000:5d:00.0: BAR 2 [mem size 0x2000000000 64bit pref]: can't assign; no space",
        other("gpu-bar-no-space", "0000:5d:00.0"),
    ),
    (
        "nvidia 0000:5d:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space",
        other("gpu-bar-no-space", "0000:5d:00.0"),
    ),
    (
        "pci 0000:5d:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]",
        other("gpu-bar-no-space", "0000:5d:00.0"),
    ),
    ("NVRM: RmFetchGspRmImages: No firmware image found", other("gpu-firmware-missing")),
    (" uvm_ioctl+0x1a7/0x2a0 [nvidia_uvm]", other("gpu-driver-trace")),
    (" ? os_acquire_mutex+0x2d/0x40 [nvidia]", other("gpu-driver-trace")),
    ("RIP: 0010:uvm_pmm_gpu_alloc+0x1f3/0x6c0 [nvidia_uvm]", other("gpu-driver-trace")),
    (
        "NVRM: knvlinkTrainLinks: NVLink 3 training failed",
        Fault("nvlink", None, None, "NVRM", None),
    ),
]

HEALTHY = [
    "Modules linked in: nvidia_uvm(OE) nvidia_drm(OE) nvidia(OE) [last unloaded: nvidia_modeset]",
    "containerd: level=info msg=loaded+0x1/0x2 [nvidia]",
    (
        "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:815:(pid 7): ACCESS_REG(0x805) op_mod(0x1)"
        " failed, status bad parameter(0x3), syndrome (0x0), err(-22)"
    ),
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
    (
        "NVRM: Persistence mode is deprecated and will be removed in a future release. Please use"
        " nvidia-persistenced instead."
    ),
    (
        "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV"
        " 0000:7e:0c.0 (INTERRUPT)"
    ),
    "DMAR: [Firmware Bug]: No firmware reserved region can cover this RMRR",
    "mlx5_core 0000:3b:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
    "nfs: server fs01 OK",
    "pci 0000:9d:00.0: BAR 13: no space for [io size 0x1000]",
    "pci 0000:9d:00.0: BAR 14: no space for [mem size 0x00200000 64bit pref]",
    "pci 0000:5d:00.0: BAR 2 [mem size 0x00200000 64bit pref]: can't assign; no space",
    "pci 0000:00:01.0: BAR 15: no space for [mem size 0x800000000 64bit pref]",
    "pcieport 0000:00:1d.4: BAR 15: no space for [mem size 0xc00000000 64bit pref]",
    (
        "NVRM: RmFetchGspRmImages: Failed to load gsp_log_*.bin, no GSP-RM logs will be printed"
        " (non-fatal)"
    ),
    "Buffer I/O error on dev loop3, logical block 0, async page read",
    "loop3: attempt to access beyond end of device",
    "nvme nvme0: 128/0/0 default/read/poll queues",
    "LNet: Added LNI 10.0.0.1@o2ib [8/256/0/180]",
    "infiniband mlx5_0: Port: 1 Link ACTIVE",
    "ghes: [Hardware Error]: no event severity: a text of something else",
    "workqueue: BUG: unable to handle is a text of something else",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "clocksource: Switched to clocksource tsc",
    "I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x800 phys_seg 1 prio class 2",
    "nvidia: loading out-of-tree module taints kernel.",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04",
    "NVRM: GPU0 FBHUB Interrupt detected. Clearing it.",
    "NVRM: Persistence mode is deprecated and will be removed in a future release.",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
    "nvidia-nvlink: Unregistered Nvlink Core, major device number 234",
    "nvidia-nvswitch0: open (major=507)",
    "pcieport 0000:00:1c.0: AER: enabled with IRQ 122",
    "pcieport 0000:00:01.1: AER: Corrected error received: 0000:01:00.0",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
    "mlx5_core 0000:3b:00.0 ens1np0: Link up",
    "docker0: port 1(veth1a2b3c4) entered disabled state",
    "hung_task: tasks blocked for more than 120 seconds are reported",
    "python3[1]: segfault at 0 ip 00007f sp 00007f error 4 in libfoo.so.1[7f12+1000]",
    "python3[1]: segfault at 0 ip 00007f sp 00007f error 4 in python3.11[55+1000]",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=1,uid=0",
    "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-4000-8000-000000000000",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, Data {0x50610002, 0x10100030}",
    (
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, Severity 1 Engine instance 29 Sub-engine"
        " instance 00"
    ),
    'audit: type=1400 comm="NVRM: Xid (PCI:0000:3b:00): 79, x"',
    "myjob: NVRM: Xid (PCI:0000:3b:00): 79, printed by a job",
    "NVRM: Xid (PCI:0000:3b:00): x79, no number",
    "systemd[1]: Out of memory: Killed process 1 (x) said somebody",
    "",
]


@pytest.mark.parametrize(
    ("line", "fault"),
    FAULTS,
    ids=lambda value: (
        None if isinstance(value, str) else f"{value.kind}-{value.code or value.subject}"
    ),
)
def test_a_fault_is_told_from_its_line(line, fault):
    assert parse_fault(line) == fault


@pytest.mark.parametrize("line", HEALTHY)
def test_what_a_healthy_machine_or_another_program_prints_is_no_fault(line):
    assert parse_fault(line) is None


def test_every_kind_of_the_schema_has_a_row_and_every_row_a_proof():
    assert {kind for kind, _needles, _pattern in PATTERNS} == {
        fault.kind for _line, fault in FAULTS
    }
    for kind, needles, pattern in PATTERNS:
        assert any(
            fault.kind == kind
            and re.match(pattern, line)
            and any(needle in line for needle in needles)
            for line, fault in FAULTS
        ), pattern
    for subject, needles, _pattern in MESSAGES:
        for needle in needles:
            assert any(fault.subject == subject and needle in line for line, fault in FAULTS), (
                subject,
                needle,
            )


def test_patterns_have_no_repeat_without_a_bound():
    for _kind, _needles, pattern in PATTERNS + MESSAGES:
        assert not re.search(
            r"[+*](?![^\[]*\])", pattern.replace("\\+", "").replace("[\\w ()-]", "")
        ), pattern


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b", "0000:3b:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        (None, None),
    ],
)
def test_addresses_are_written_as_sysfs_writes_them(text, wanted):
    assert normal_address(text) == wanted
