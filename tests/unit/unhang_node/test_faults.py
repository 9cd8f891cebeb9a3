"""Section faults: what the kernel's log says, in each shape in which it is kept, and what a healthy machine prints is no fault."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_roots import complaints, copied, facts, place, read, unread, write

from unhang_node.parse.fault_lines import MESSAGES, NEEDLES, PATTERNS, Fault, normal_address, parse_fault
from unhang_node.parse.kernel_log import CANDIDATES, GROUPS, find_faults, split_line
from unhang_node.section import Absent

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = "[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP\n"

FAULTS = [
    (XID, Fault("xid", 79, "0000:3b:00.0", None, None)),
    ("NVRM: Xid (PCI:0000:86:00): 31, pid=4242, name=python3, Ch 00000008, intr 10000000. MMU Fault", Fault("xid", 31, "0000:86:00.0", "python3", None)),
    ("NVRM: Xid (0000:03:00): 13, Graphics Exception: ESR 0x405840=0xa2040a02", Fault("xid", 13, "0000:03:00.0", None, None)),
    ("NVRM: Xid (PCI:0000:c1:00): 145, RLW_SRC_TRACK, Nonfatal XC0 i0 Link 02", Fault("xid", 145, "0000:c1:00.0", None, None)),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
        Fault("sxid", 28006, "0000:c1:00.0", "nvidia-nvswitch3", "non-fatal"),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, Fatal, Link 29 sourcetrack timeout error (First)",
        Fault("sxid", 24007, "0000:05:00.0", "nvidia-nvswitch0", "fatal"),
    ),
    ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", Fault("aer", None, "0000:3b:00.0", "nvidia", "corrected")),
    (
        "pcieport 10000:00:01.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
        Fault("aer", None, "10000:00:01.0", "pcieport", "non-fatal"),
    ),
    ("pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", Fault("aer", None, "0000:00:01.0", "pcieport", "fatal")),
    ("INFO: task kworker/u8:2:1234 blocked for more than 120 seconds.", Fault("hung_task", None, None, "kworker/u8:2", None)),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4242]", Fault("soft_lockup", None, None, "python3", None)),
    ("NMI watchdog: BUG: soft lockup - CPU#113 stuck for 23s! [nvidia-modeset/:901]", Fault("soft_lockup", None, None, "nvidia-modeset/", None)),
    ("Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB", Fault("oom", None, None, "python3", None)),
    ("Memory cgroup out of memory: Killed process 7 (pt_data_worker) total-vm:1kB", Fault("oom", None, None, "pt_data_worker", None)),
    ("Out of memory: Kill process 9 (java) score 900 or sacrifice child", Fault("oom", None, None, "java", None)),
    (
        "python3[4242]: segfault at 0 ip 00007f1200000000 sp 00007ffe00000000 error 4 in libnccl.so.2.21.5[7f1200000000+1000]",
        Fault("segfault", None, None, "libnccl.so.2.21.5", None),
    ),
    (
        "traps: python3[4242] general protection fault ip:7f12 sp:7ffe error:0 in libcuda.so.535.161.08[7f12+1000]",
        Fault("segfault", None, None, "libcuda.so.535.161.08", None),
    ),
    ("mlx5_core 0000:3b:00.0 ens1np0: Link down", Fault("link_down", None, "0000:3b:00.0", "ens1np0", None)),
    ("ixgbe 0000:01:00.0 eth0: NIC Link is Down", Fault("link_down", None, "0000:01:00.0", "eth0", None)),
    ("igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down", Fault("link_down", None, "0000:01:00.0", "eth0", None)),
    ("e1000e: eno1 NIC Link is Down", Fault("link_down", None, None, "eno1", None)),
    ("tg3 0000:02:00.0 eno1: Link is down", Fault("link_down", None, "0000:02:00.0", "eno1", None)),
    ("pcieport 0000:14:01.0: pciehp: Slot(17): Link Down", Fault("link_down", None, "0000:14:01.0", "Slot(17)", None)),
    ("bond0: (slave eth1): link status definitely down, disabling slave", Fault("link_down", None, None, "eth1", None)),
    ("bonding: bond0: link status definitely down for interface eth1, disabling it", Fault("link_down", None, None, "eth1", None)),
    ("mlx5_core 0000:3b:00.1: Port module event: module 1, Cable unplugged", Fault("link_down", None, "0000:3b:00.1", None, None)),
    ("NVRM: API mismatch: the client has the version 535.161.08, but", Fault("driver_mismatch", None, None, None, None)),
    ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", Fault("other", None, "0000:3b:00.0", "RmInitAdapter", None)),
    ("NVRM: The NVIDIA probe routine failed for 1 device(s).", Fault("other", None, None, "probe routine", None)),
    ("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", Fault("other", None, None, "nvidia_peermem", None)),
    ("nvidia-uvm: request_free_mem_region() err -34", Fault("other", None, None, "nvidia-uvm", None)),
    ("watchdog: Watchdog detected hard LOCKUP on cpu 7", Fault("other", None, None, "hard LOCKUP", None)),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", Fault("other", None, None, "rcu_sched", None)),
    ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", Fault("other", None, None, "gpu-bar-invalid", None)),
    ("NVRM: installed in this system is not supported by open", Fault("other", None, None, "gpu-not-for-open-modules", None)),
    ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", Fault("other", None, None, "gpu-needs-open-modules", None)),
    ("NVRM: installed in this system is supported through the NVIDIA 470.xx Legacy drivers. Please", Fault("other", None, None, "gpu-of-older-branch", None)),
    ("NVRM: The NVIDIA probe routine was not called for 8 device(s).", Fault("other", None, None, "gpu-bound-elsewhere", None)),
    (
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        Fault("other", None, None, "peermem-context", None),
    ),
    (
        "mlx5_core 0000:3b:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
        Fault("other", None, "0000:3b:00.0", "rdma-card-health", None),
    ),
    (
        "mlx5_core 0000:3b:00.0: wait_func:1152:(pid 9): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
        Fault("other", None, "0000:3b:00.0", "rdma-card-command", None),
    ),
    (
        "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
        Fault("other", None, "0000:3b:00.0", "rdma-card-cable", None),
    ),
    (
        "mlx5_core 0000:3b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:3a:00.0",
        Fault("other", None, "0000:3b:00.0", "rdma-card-slot", None),
    ),
    (
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        Fault("other", None, "0000:5c:00.0", "rdma-card-power", None),
    ),
    ("NVRM: something new could not: unable to map the frobnicator", Fault("other", None, None, "driver-complaint", None)),
    ("nvidia-nvswitch3: open failed, of a new kind", Fault("other", None, None, "driver-complaint", None)),
    ("nvidia-uvm: new thing timed out", Fault("other", None, None, "driver-complaint", None)),
    ("mlx5_core 0000:5c:00.0: a_new_function:299:(pid 12): Refused by the firmware", Fault("other", None, "0000:5c:00.0", "driver-complaint", None)),
    ("bnxt_en 0000:5c:00.0 eth2: a new error", Fault("other", None, "0000:5c:00.0", "driver-complaint", None)),
    ("efa 0000:5c:00.0: Failed to do something new", Fault("other", None, "0000:5c:00.0", "driver-complaint", None)),
    ("efa 0000:5c:00.0: insufficient of something new", Fault("other", None, "0000:5c:00.0", "driver-complaint", None)),
    ("ib0: multicast join failed for ff12:401b:ffff:0000:0000:0000:ffff:ffff, status -22", Fault("other", None, None, "ipoib-join", None)),
    ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out", Fault("other", None, None, "transmit-queue", None)),
    ("neighbour: arp_cache: neighbor table overflow!", Fault("other", None, None, "neighbour-table", None)),
    ("nf_conntrack: nf_conntrack: table full, dropping packet", Fault("other", None, None, "connection-table", None)),
    ("cgroup: fork rejected by pids controller in /system.slice/slurmd.service", Fault("other", None, None, "processes-limit", None)),
    (
        "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0xa4000000 [fault reason 0x06] PTE Read access is not set",
        Fault("other", None, None, "iommu-fault", None),
    ),
    (
        "nvidia 0000:81:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0022 address=0xd0000000 flags=0x0020]",
        Fault("other", None, None, "iommu-fault", None),
    ),
    ("nfs: server fs01 not responding, still trying", Fault("other", None, None, "nfs-server", None)),
    ("EXT4-fs (sda2): Remounting filesystem read-only", Fault("other", None, None, "filesystem-read-only", None)),
    (
        "XFS (nvme0n1p2): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x12d/0x150 [xfs].  Shutting down filesystem.",
        Fault("other", None, None, "filesystem-read-only", None),
    ),
    ("TCP: request_sock_TCP: Possible SYN flooding on port 0.0.0.0:29500. Sending cookies.", Fault("other", None, None, "connection-requests", None)),
    ("x86/split lock detection: #AC: python3/4242 took a split_lock trap at address: 0x7f1c2e", Fault("other", None, None, "split-lock", None)),
    ("VFS: file-max limit 65536 reached", Fault("other", None, None, "open-files-limit", None)),
    (
        "pcieport 0000:40:01.1: broken device, retraining non-functional downstream link at 2.5GT/s",
        Fault("other", None, "0000:40:01.1", "link-retrained", None),
    ),
    (
        'audit: type=1400 audit(1763.5:61): apparmor="DENIED" operation="userns_create" class="namespace" profile="unconfined" comm="enroot"',
        Fault("other", None, None, "namespace-restricted", None),
    ),
    (
        "mlx5_core 0000:0c:00.0: swiotlb buffer is full (sz: 4096 bytes), total 32768 (slots), used 32768 (slots)",
        Fault("other", None, None, "bounce-buffers-full", None),
    ),
    ("NFS: server fs01 error: fileid changed", Fault("other", None, None, "nfs-file-changed", None)),
    ("bond0: Warning: No 802.3ad response from the link partner for any adapters in the bond", Fault("other", None, None, "bond-without-partner", None)),
    ("IPv6: bond0: IPv6 duplicate address fe80::a00:27ff:fe1a:1 used by 08:00:27:1a:00:01 detected!", Fault("other", None, None, "address-taken", None)),
    (
        "LustreError: 167-0: scratch-MDT0000-mdc-ffff9a: This client was evicted by scratch-MDT0000; in progress operations using this service will fail.",
        Fault("other", None, None, "lustre-server", None),
    ),
    ("blk_update_request: I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x0", Fault("other", None, None, "disk-error", None)),
    (
        "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm python3: reading directory lblock 0",
        Fault("other", None, None, "disk-error", None),
    ),
    ("nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096", Fault("other", None, None, "disk-timeout", None)),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", Fault("other", None, None, "memory-uncorrected", None)),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", Fault("other", None, None, "memory-corrected", None)),
    ("mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)", Fault("other", None, None, "processor-hot", None)),
    ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", Fault("other", None, None, "module-refused", None)),
    ("Loading of unsigned module is rejected", Fault("other", None, None, "module-refused", None)),
    (
        "clocksource: timekeeping watchdog on CPU12: Marking clocksource 'tsc' as unstable because the skew is too large:",
        Fault("other", None, None, "clock-unstable", None),
    ),
    ("python3: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)", Fault("other", None, None, "page-allocation", None)),
    ("pcieport 0000:14:01.0: DPC: containment event, status:0x1f01 source:0x0000", Fault("other", None, "0000:14:01.0", "pcie-contained", None)),
    ("mlx5_core 0000:3b:00.0: mlx5_handle_bad_state:138:(pid 7): handling bad device here", Fault("other", None, "0000:3b:00.0", "rdma-card-health", None)),
    (
        "Lustre: scratch-OST0001-osc: Connection to scratch-OST0001 (at 10.0.0.1@o2ib) was lost; in progress operations using this service will wait",
        Fault("other", None, None, "lustre-server", None),
    ),
    ("Memory failure: 0x1234abc: recovery action for dirty LRU page: Recovered", Fault("other", None, None, "memory-uncorrected", None)),
    ("Loading of module with unavailable key is rejected", Fault("other", None, None, "module-refused", None)),
    ("nvme nvme0: I/O 12 QID 4 timeout, reset controller", Fault("other", None, None, "disk-timeout", None)),
    ("NVRM: knvlinkTrainLinks: NVLink 3 training failed", Fault("nvlink", None, None, "NVRM", None)),
]

HEALTHY = [
    "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:815:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3), syndrome (0x0), err(-22)",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
    "NVRM: Persistence mode is deprecated and will be removed in a future release. Please use nvidia-persistenced instead.",
    "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0 IMC#0: DEV 0000:7e:0c.0 (INTERRUPT)",
    "DMAR: [Firmware Bug]: No firmware reserved region can cover this RMRR",
    "mlx5_core 0000:3b:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)",
    "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable plugged",
    "nfs: server fs01 OK",
    "pci 0000:9d:00.0: BAR 13: no space for [io size 0x1000]",
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
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 24007, Severity 1 Engine instance 29 Sub-engine instance 00",
    'audit: type=1400 comm="NVRM: Xid (PCI:0000:3b:00): 79, x"',
    "myjob: NVRM: Xid (PCI:0000:3b:00): 79, printed by a job",
    "NVRM: Xid (PCI:0000:3b:00): x79, no number",
    "systemd[1]: Out of memory: Killed process 1 (x) said somebody",
    "",
]


@pytest.mark.parametrize(("line", "fault"), FAULTS, ids=lambda value: None if isinstance(value, str) else f"{value.kind}-{value.code or value.subject}")
def test_a_fault_is_told_from_its_line(line, fault):
    assert parse_fault(line) == fault


@pytest.mark.parametrize("line", HEALTHY)
def test_what_a_healthy_machine_or_another_program_prints_is_no_fault(line):
    assert parse_fault(line) is None


def test_every_kind_of_the_schema_has_a_row_and_every_row_a_proof():
    assert {kind for kind, _needles, _pattern in PATTERNS} == {fault.kind for _line, fault in FAULTS}
    for kind, needles, pattern in PATTERNS:
        assert any(fault.kind == kind and re.match(pattern, line) and any(needle in line for needle in needles) for line, fault in FAULTS), pattern
    for subject, needles, _pattern in MESSAGES:
        for needle in needles:
            assert any(fault.subject == subject and needle in line for line, fault in FAULTS), (subject, needle)


def test_patterns_have_no_repeat_without_a_bound():
    for _kind, _needles, pattern in PATTERNS + MESSAGES:
        assert not re.search(r"[+*](?![^\[]*\])", pattern.replace("\\+", "").replace("[\\w ()-]", "")), pattern


@pytest.mark.parametrize(
    ("line", "stamp", "message"),
    [
        ("4,1234,5678901,-;" + XID, 5.678901, XID),
        ("[    5.678901] " + XID, 5.678901, XID),
        ("<4>[    5.678901] " + XID, 5.678901, XID),
        ("[    5.678901][ T1234] " + XID, 5.678901, XID),
        ("[    5.678901] gpu001 kernel: " + XID, 5.678901, XID),
        ("[Thu Nov 20 03:49:11 2026] " + XID, None, XID),
        ("Nov 20 03:49:11 gpu001 kernel: [    5.678901] " + XID, 5.678901, XID),
        ("Nov  2 03:49:11 gpu001 kernel: " + XID, None, XID),
        ("2026-11-20T03:49:11.123456+00:00 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T03:49:11+0000 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T05:49:11+02:00 gpu001 kernel: " + XID, 100.0, XID),
        ("2026-11-20T03:49:11Z gpu001 kernel: [   77.500000] " + XID, 77.5, XID),
        (XID, None, XID),
        ("12,1234,5678901,-;" + XID, 5.678901, ""),  # facility 1: a process wrote it
        ("Nov 20 03:49:11 gpu001 sshd[123]: " + XID, None, ""),
        ("2026-11-20T03:49:11Z gpu001 python3: " + XID, 100.0, ""),
    ],
)
def test_every_shape_of_a_log_gives_the_message_and_the_seconds_since_boot(line, stamp, message):
    assert split_line(line, 1795146451) == (stamp, message)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0000:3b:00", "0000:3b:00.0"), ("00000000:3B:00.0", "0000:3b:00.0"), ("0000:3b", "0000:3b:00.0"), ("10000:e1:00.0", "10000:e1:00.0"), (None, None)],
)
def test_addresses_are_written_as_sysfs_writes_them(text, wanted):
    assert normal_address(text) == wanted


def test_like_faults_are_counted_once_with_first_and_last_time():
    lines = [BOOT] + [f"[{second:5d}.000000] NVRM: Xid (PCI:0000:3b:00): 94, pid=1{second}, name=python3, Contained\n" for second in (10, 20, 30)]
    lines.append("[   40.000000] NVRM: Xid (PCI:0000:5e:00): 94, pid=7, name=python3, Contained\n")
    found = find_faults("".join(lines).encode())
    assert [(event["pci_address"], event["count"], event["first_s"], event["last_s"]) for event in found["events"]] == [
        ("0000:3b:00.0", 3, 10.0, 30.0),
        ("0000:5e:00.0", 1, 40.0, 40.0),
    ]
    assert found["events"][0]["line"] == "[   10.000000] NVRM: Xid (PCI:0000:3b:00): 94, pid=110, name=python3, Contained"
    assert found["complete"] is True
    assert found["lines_read"] == 5


def test_a_log_file_of_several_boots_counts_only_the_newest():
    text = BOOT + "[    9.000000] " + XID + "\n" + BOOT + "[    8.000000] mlx5_core 0000:3b:00.0 ens1np0: Link down\n"
    assert [event["kind"] for event in find_faults(text.encode())["events"]] == ["link_down"]


def test_a_line_that_quotes_the_boot_banner_is_no_boot():
    text = BOOT + "[    9.000000] " + XID + '\n[   10.000000] audit: comm="Linux version 6.8"\n'
    assert [event["kind"] for event in find_faults(text.encode())["events"]] == ["xid"]


def test_a_log_that_does_not_reach_back_to_the_boot_is_not_complete():
    found = find_faults(b"[  900.000000] audit: backlog\n")
    assert (found["events"], found["complete"]) == ([], False)


def test_terminal_escapes_in_a_line_are_written_out():
    found = find_faults(("[    1.000000] " + XID + "\x1b]0;owned\x07\n").encode())
    assert found["events"][0]["line"].endswith("bus.\\x1b]0;owned\\x07")


def test_a_flood_is_bounded_and_says_so():
    flood = "".join(f"[    1.000000] NVRM: Xid (PCI:0000:3b:00): {number}, x\n" for number in range(CANDIDATES * 2))
    found = find_faults((BOOT + flood).encode())
    assert len(found["events"]) == GROUPS
    assert found["complete"] is False
    assert found["cut"]
    assert found["lines_read"] == CANDIDATES * 2 + 1


def test_xids_are_kept_when_a_flood_of_lesser_faults_is_cut():
    flood = "".join(f"[    1.000000] mlx5_core 0000:3b:00.0 ens{number}: Link down\n" for number in range(GROUPS * 2))
    assert find_faults((BOOT + flood + "[    2.000000] " + XID + "\n").encode())["events"][0]["code"] == 79


@pytest.mark.parametrize("filler", [b"x", b"\n", b"\0", b"Xid (", b"Linux version ", b"[", b"1,", b"NVRM: nvlink "])
def test_ten_megabytes_of_anything_end(filler):
    found = find_faults(filler * (10_000_000 // len(filler)))
    assert set(found) == {"events", "lines_read", "complete", "cut"}


@given(
    st.lists(
        st.sampled_from([*NEEDLES, "NVRM: ", "0000:3b:00.0", "(PCI:", "): ", " ", ":", "[1]", "a" * 300, "\x1b", "é", "9" * 30, "segfault at "]), max_size=40
    )
)
def test_no_mixture_of_telling_words_breaks_the_reader(words):
    line = "".join(words)
    found = find_faults((BOOT + "[    1.000000] " + line + "\n").encode())
    for event in found["events"]:
        assert event["count"] == 1
        assert event["line"].isprintable()


@given(st.binary(max_size=2000))
def test_no_bytes_break_the_reader(log):
    found = find_faults(log, 0)
    assert found["lines_read"] <= log.count(b"\n") + 1
    assert all(event["count"] >= 1 and event["line"].isprintable() for event in found["events"])


def test_a_healthy_h200_nodes_log_has_no_fault():
    faults = facts(place("h200x8"), "faults")
    assert faults == {"source": "kmsg", "lines_read": 18, "complete": True, "events": []}


def test_a_workstations_ring_buffer_shows_its_faults(tmp_path):
    folder = copied("a6000x3-kernel-5.4", tmp_path)
    fragment, rows = read(folder, ("faults",))["faults"]
    assert complaints("faults", fragment, rows.values()) == []
    assert [(event["kind"], event["code"], event["count"]) for event in fragment["events"]] == [("xid", 31, 2), ("hung_task", None, 1)]
    assert fragment["complete"] is False
    assert fragment["events"][0]["line"].startswith("NVRM: Xid (PCI:0000:43:00): 31")


def test_a_named_file_stands_for_the_kernels_log(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("2026-11-20T03:49:11+00:00 gpu001 kernel: " + XID + "\n")
    folder = copied("h200x8", tmp_path)
    write(folder, "/proc/stat", "cpu 1\nbtime 1795146451\n")
    faults = facts(folder, "faults", kernel_log=str(log))
    assert faults["source"] == "file"
    assert faults["events"][0]["first_s"] == 100.0


def test_only_the_end_of_an_endless_file_is_read(tmp_path):
    log = tmp_path / "kern.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)  # sparse: no disk is used
        file.seek(0, os.SEEK_END)
        file.write(("\n[    1.000000] " + XID + "\n").encode())
    assert facts(place("h200x8"), "faults", kernel_log=str(log))["events"][0]["code"] == 79


def test_a_flood_is_reported_in_the_sections_unread_rows(tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("".join(f"[    1.000000] NVRM: Xid (PCI:0000:3b:00): {number}, x\n" for number in range(GROUPS + 1)))
    assert unread(place("h200x8"), "faults", kernel_log=str(log))["events"]["status"] == "error"


@pytest.mark.parametrize(("make", "error"), [("missing", FileNotFoundError), ("folder", ValueError), ("fifo", ValueError)])
def test_a_named_log_that_is_no_file_is_an_error_not_an_empty_log(tmp_path, make, error):
    path = tmp_path / "log"
    if make == "folder":
        path.mkdir()
    elif make == "fifo":
        os.mkfifo(path)
    with pytest.raises(error):
        facts(place("h200x8"), "faults", kernel_log=str(path))


def test_a_node_without_a_kernel_log_has_none():
    with pytest.raises(Absent, match="/dev/kmsg"):
        facts(place("container"), "faults")
