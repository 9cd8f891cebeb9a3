"""Recognises a fault in one message of the kernel. Values in, values out.

Each row: kind; literals, one of which is in every such line (searched first, because a log is long
and faults are few); a pattern that must match from the beginning of the message, so that the same
text logged by a process is no fault. Patterns have no nested repeats, and every repeat is bounded.
Sources: NVIDIA "Xid Errors" guide and open-gpu-kernel-modules (NVRM, SXid lines); kernel sources:
drivers/pci/pcie/aer.c, kernel/hung_task.c, kernel/watchdog.c, mm/oom_kill.c, arch/x86/mm/fault.c,
drivers/net/bonding/bond_main.c and the network drivers' own "link is down".
"""

from __future__ import annotations

import re

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Fault(NamedTuple):
    """A fault from one line of the kernel log. subject: a process, a device or a library."""

    kind: str
    code: int | None
    pci_address: str | None
    subject: str | None
    severity: str | None


MESSAGE_LIMIT = 1024  # as long as one printk record
_PCI = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:?[0-9a-fA-F]{0,2}(?:\.[0-7])?)"
_DEVICE = (
    r"(?:(?P<driver>\w[\w.-]{0,63})"
    r" )?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
)
_EFA = r"(?:infiniband (?:rdmap|efa_)[\w.-]{1,32}|efa " + _PCI + r"): "
_NAME = r"(?P<subject>[\w.@-]{1,32})"
_DOWN = r"[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b"
_DOWN_TEXTS = ("ink down", "ink Down", "ink is down", "ink is Down", "ink DOWN", "ink is DOWN")
_FAILED = r"(?:[Ff]ail|[Ee]rror|[Ff]atal|timed out)"
_COMPLAINT = (
    r"(?:[Ff]ail|[Ee]rror|[Ff]atal|[Ii]nsufficient|[Uu]nable|[Cc]annot|[Cc]orrupt|[Rr]efus|[Oo]verheat|[Tt]ime(?:d"
    r" |-)?out|not respond)"
)

PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("xid", ("Xid (",), r"NVRM: Xid \(" + _PCI + r"\): (?P<code>\d{1,6})(?:,|$)"),
    (
        "sxid",
        ("SXid (",),
        r"(?P<subject>nvidia-nvswitch\d{1,4}): SXid \("
        + _PCI
        + r"\): (?P<code>\d{1,6}), (?P<severity>Non-fatal|Fatal)\b",
    ),
    (
        "aer",
        ("PCIe Bus Error: severity=",),
        _DEVICE + r": (?:AER: )?PCIe Bus Error: severity=(?P<severity>[\w ()-]{1,40}), type=",
    ),
    (
        "hung_task",
        ("blocked for more than",),
        r"INFO: task (?P<subject>.{1,64}):\d{1,10} blocked for more than \d{1,9} seconds",
    ),
    (
        "soft_lockup",
        ("soft lockup",),
        (
            r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,9}s!"
            r" \[(?P<subject>.{1,64}):\d{1,10}\]"
        ),
    ),
    (
        "oom",
        ("Killed process", "Kill process"),
        (
            r"(?:Out of memory|Memory cgroup out of memory)(?: \([^)]{1,40}\))?: Kill(?:ed)?"
            r" process \d{1,10} \((?P<subject>[^)]{1,64})\)"
        ),
    ),
    (
        "segfault",
        (" in lib",),
        (
            r".{1,64}\[\d{1,10}\](?:: segfault at | general protection| trap )[^\[]{1,200} in"
            r" (?P<subject>lib[^\s\[]{1,120})\["
        ),
    ),
    ("driver_mismatch", ("API mismatch",), r"NVRM: API mismatch: "),
    (
        "link_down",
        _DOWN_TEXTS,
        _DEVICE + r":? (?:[\w.-]{1,32}: ){0,2}(?!NIC )" + _NAME + r":? (?:NIC )?" + _DOWN,
    ),
    ("link_down", _DOWN_TEXTS, r"(?:\w{1,32}: )?" + _NAME + r":? NIC " + _DOWN),
    ("link_down", ("Link DOWN",), r"infiniband " + _NAME + r": Port: \d{1,3} Link DOWN"),
    ("link_down", _DOWN_TEXTS, _DEVICE + r": pciehp: (?P<subject>Slot\([\w-]{1,16}\)): " + _DOWN),
    (
        "link_down",
        ("definitely down",),
        r"(?:bonding: )?[\w.-]{1,32}: \(slave " + _NAME + r"\): link status definitely down",
    ),
    (
        "link_down",
        ("definitely down",),
        r"(?:bonding: )?[\w.-]{1,32}: link status definitely down for interface " + _NAME,
    ),
    (
        "link_down",
        ("Cable unplugged",),
        _DEVICE + r": Port module event(?:\[error\])?: module \d{1,3}, Cable unplugged",
    ),
    (
        "other",
        ("RmInitAdapter failed",),
        r"NVRM: GPU " + _PCI + r": (?P<subject>RmInitAdapter) failed",
    ),
    (
        "other",
        ("probe routine failed",),
        r"NVRM: The NVIDIA (?P<subject>probe routine) failed for \d",
    ),
    (
        "other",
        ("disagrees about version of symbol",),
        r"(?P<subject>nvidia[\w-]{0,32}|nv_peer_mem): disagrees about version of symbol ",
    ),
    (
        "other",
        ("request_free_mem_region",),
        r"(?P<subject>nvidia-uvm): .{0,200}request_free_mem_region",
    ),
    (
        "other",
        ("hard LOCKUP",),
        r"(?:NMI )?watchdog: Watchdog detected (?P<subject>hard LOCKUP) on cpu ",
    ),
    (
        "other",
        ("detected stall",),
        r"(?:rcu: )?INFO: (?P<subject>rcu_\w{1,20}) (?:self-)?detected stalls? on ",
    ),
    (
        "nvlink",
        ("nvlink", "NVLink", "Nvlink"),
        r"(?P<subject>NVRM|nvidia-nvlink|nvidia-nvswitch\d{0,4}): (?!S?Xid"
        r" )(?=.{0,200}?[Nn][Vv][Ll]ink)(?=.{0,400}?" + _FAILED + r")",
    ),
)
# Other fault messages of the kernel: (subject, needles, pattern). The catalogue's table
# kernel_messages explains each.
MESSAGES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "gpu-bar-invalid",
        ("assigned to your NVIDIA device is invalid",),
        r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid",
    ),
    (
        "gpu-bar-no-space",
        ("no space for [mem size 0x", "can't assign; no space"),
        r"(?:pci|nvidia) "
        + _PCI
        + r": BAR [0-5](?:: no space for)? \[mem size 0x[0-9a-f]{9,16} 64bit pref\](?:: can't"
        r" assign; no space)?",
    ),
    (
        "gpu-firmware-missing",
        ("No firmware image found",),
        r"NVRM: .{0,80}RmFetchGspRmImages: No firmware image found",
    ),
    (
        "gpu-not-for-open-modules",
        ("is not supported by open",),
        r"NVRM: .{0,200}is not supported by open",
    ),
    (
        "gpu-needs-open-modules",
        ("NVIDIA open kernel modules",),
        r"NVRM: .{0,200}requires use of the NVIDIA open kernel modules",
    ),
    (
        "gpu-of-older-branch",
        ("supported through the NVIDIA",),
        r"NVRM: .{0,200}supported through the NVIDIA ",
    ),
    (
        "gpu-bound-elsewhere",
        ("probe routine was not called",),
        r"NVRM: The NVIDIA probe routine was not called for \d",
    ),
    (
        "peermem-context",
        ("nv_get_p2p_free_callback",),
        r"nvidia[-_]peermem .{0,40}nv_get_p2p_free_callback.{0,20} ERROR",
    ),
    (
        "rdma-card-health",
        ("health compromised", "bad device here", "unrecoverable hardware error"),
        r"mlx5_core "
        + _PCI
        + r".{0,160}(?:health compromised|bad device here|unrecoverable hardware error)",
    ),
    (
        "rdma-card-command",
        ("leak of a command resource",),
        r"mlx5_core " + _PCI + r".{0,200}leak of a command resource",
    ),
    (
        "rdma-card-cable",
        ("Port module event",),
        r"mlx5_core "
        + _PCI
        + r".{0,40}Port module event.{0,40}: module \d{1,3}, (?:Cable error|High Temperature)",
    ),
    (
        "rdma-card-slot",
        ("available PCIe bandwidth, limited by",),
        r"mlx5_core " + _PCI + r": .{0,40}available PCIe bandwidth, limited by",
    ),
    (
        "rdma-card-power",
        ("insufficient power on the PCIe slot",),
        r"mlx5_core " + _PCI + r".{0,80}Detected insufficient power on the PCIe slot",
    ),
    (
        "ipoib-join",
        ("multicast join failed",),
        r"\w{1,16}: (?:multicast|sendonly multicast) join failed ",
    ),
    (
        "transmit-queue",
        ("NETDEV WATCHDOG",),
        r"(?:[\w-]{1,32} " + _PCI + r" [\w.@-]{1,32}: )?NETDEV WATCHDOG: ",
    ),
    (
        "transmit-queue",
        ("TX timeout detected", "RX timeout on channel"),
        r"mlx5_core " + _PCI + r".{0,60}: (?:TX timeout detected|RX timeout on channel)",
    ),
    (
        "efa-card",
        (
            "any completion for admin cmd",
            "Admin queue is closed",
            "Reset indication didn't turn",
            "Device isn't ready, ",
        ),
        _EFA + r".{0,40}(?:send any completion for admin cmd|Admin queue is closed|Reset indication"
        r" didn't turn|Device isn't ready, )",
    ),
    (
        "efa-command",
        ("Failed to process command", "Failed to submit command"),
        _EFA + r"Failed to (?:process|submit) command",
    ),
    ("neighbour-table", ("table overflow!",), r"neighbour: \w{1,32}: neighbou?r table overflow!"),
    (
        "connection-table",
        (": table full, dropping packet",),
        r"(?:nf_conntrack: ){1,2}table full, dropping packet",
    ),
    (
        "processes-limit",
        ("fork rejected by pids controller",),
        r"cgroup: fork rejected by pids controller",
    ),
    (
        "iommu-fault",
        ("IO_PAGE_FAULT", "DMAR: [DMA"),
        r".{0,120}(?:AMD-Vi: Event logged \[IO_PAGE_FAULT|DMAR: \[DMA .{0,40}fault addr)",
    ),
    ("nfs-server", ("not responding, ",), r"nfs: server .{1,200} not responding, "),
    (
        "lustre-server",
        ("client was evicted", "was lost; in progress operations"),
        r"Lustre(?:Error)?: .{0,400}(?:client was evicted|was lost; in progress operations)",
    ),
    ("lustre-not-mounted", ("failed from MGS",), r"LustreError: .{0,300}failed from MGS -?\d"),
    (
        "disk-error",
        ("I/O error, dev ", "EXT4-fs error"),
        (
            r"(?:(?:blk_update_request: )?(?:critical )?(?:I/O|medium|target) error, dev"
            r" (?!loop|fd|sr)|EXT4-fs error)"
        ),
    ),
    (
        "disk-error",
        (
            "Buffer I/O error on dev",
            "error while writing superblock",
            "access beyond end of device",
        ),
        (
            r"(?:Buffer I/O error on dev(?:ice)? |(?:EXT4-fs \()?)(?!loop|fd|sr)[\w.-]{1,64}(?:\):"
            r" I/O error while writing super|: attempt to access beyond|, )"
        ),
    ),
    (
        "disk-timeout",
        ("timeout, aborting", "timeout, reset controller"),
        r"nvme \S{1,12}: I/O .{1,120} timeout, ",
    ),
    (
        "disk-timeout",
        ("controller is down; will reset",),
        r"nvme \S{1,12}: controller is down; will reset",
    ),
    (
        "disk-lost",
        (
            "no available path",
            "device after reset failure",
            "Removing after probe failure",
            "Device not ready; aborting",
        ),
        (
            r"(?:block )?(?:nvme )?nvme[\dcn]{1,16}: (?:no available path|Disabling device after"
            r" reset|Removing after probe failure|Device not ready; aborting)"
        ),
    ),
    ("array-lost-disk", (": Disk failure on ",), r"md/raid\w{0,4}:\w{1,32}: Disk failure on "),
    ("nfs-lock", (": Lock reclaim failed",), r"NFS: .{0,40}: Lock reclaim failed"),
    (
        "lustre-network",
        ("LNetError: ",),
        r"LNetError: .{0,200}(?:[Tt]imed out|[Tt]imeout|RDMA .{0,40}(?:error|failed))",
    ),
    (
        "kernel-oops",
        ("BUG: unable to handle ", "BUG: kernel NULL pointer", "kernel BUG at ", ": 0000 [#"),
        r"(?:BUG: (?:unable to handle|kernel NULL pointer) |kernel BUG at |"
        r"(?:Oops: )?(?:divide error|invalid opcode|general protection fault).{0,100}: 0000 \[#)",
    ),
    (
        "machine-check",
        ("Machine Check Exception: ",),
        r"(?:mce: )?\[Hardware Error\]: CPU \d{1,5}: Machine Check Exception: ",
    ),
    (
        "machine-check-logged",
        ("Machine check events logged",),
        r"(?:mce: )?\[Hardware Error\]: Machine check events logged",
    ),
    (
        "firmware-error",
        ("event severity: ",),
        r"(?:BERT: )?(?:\{\d{1,9}\})?\[Hardware Error\]: event severity: (?:recoverable|fatal)",
    ),
    (
        "firmware-error-corrected",
        ("event severity: corrected",),
        r"(?:BERT: )?(?:\{\d{1,9}\})?\[Hardware Error\]: event severity: corrected",
    ),
    (
        "interface-not-freed",
        ("unregister_netdevice: waiting",),
        r"unregister_netdevice: waiting for [\w.@-]{1,32} to become free",
    ),
    (
        "memory-uncorrected",
        ("EDAC MC", "Memory failure: 0x"),
        r"(?:EDAC MC\d{1,3}: \d{1,9} UE |Memory failure: 0x[0-9a-f]{1,16}: )",
    ),
    ("memory-corrected", ("EDAC MC",), r"EDAC MC\d{1,3}: \d{1,9} CE "),
    (
        "processor-hot",
        ("cpu clock throttled",),
        r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold",
    ),
    (
        "module-refused",
        ("unsigned module", "unavailable key is rejected"),
        (
            r"(?:Loading of .{0,40}module.{0,40} is rejected|Lockdown: .{1,64}unsigned module"
            r" loading is restricted)"
        ),
    ),
    (
        "clock-unstable",
        ("Marking clocksource",),
        r"clocksource: .{0,80}Marking clocksource 'tsc.{0,8}' as unstable",
    ),
    (
        "page-allocation",
        ("page allocation failure: order:",),
        r".{1,64}: page allocation failure: order:\d",
    ),
    (
        "pcie-contained",
        ("DPC: containment event",),
        r"pcieport " + _PCI + r": .{0,20}DPC: containment event",
    ),
    (
        "filesystem-read-only",
        ("Remounting filesystem read-only", "Shutting down filesystem"),
        (
            r"(?:EXT4-fs|XFS) \(.{1,64}\): .{0,160}(?:Remounting filesystem read-only|Shutting down"
            r" filesystem)"
        ),
    ),
    (
        "connection-requests",
        ("Possible SYN flooding on port",),
        r"(?:TCP: )?request_sock_TCP\w{0,4}: Possible SYN flooding on port ",
    ),
    (
        "split-lock",
        ("split lock detection: #",),
        r"x86/split lock detection: #(?:AC|DB): .{1,64} took a (?:split|bus)_lock trap",
    ),
    (
        "memory-type-freed",
        ("freeing invalid memtype",),
        r"x86/PAT: .{1,64}:\d{1,10} freeing invalid memtype \[mem ",
    ),
    ("open-files-limit", ("VFS: file-max limit",), r"VFS: file-max limit \d{1,20} reached"),
    (
        "link-retrained",
        ("retraining non-functional downstream link",),
        r"(?:pcieport|pci) " + _PCI + r": broken device, retraining non-functional",
    ),
    (
        "namespace-restricted",
        ('operation="userns_create"',),
        r'audit: type=1400 .{0,80}apparmor="(?:DENIED|AUDIT)" operation="userns_create"',
    ),
    ("bounce-buffers-full", ("swiotlb buffer is full",), r".{1,64}: swiotlb buffer is full"),
    ("nfs-file-changed", ("fileid changed",), r"NFS: server .{1,200} error: fileid changed"),
    (
        "bond-without-partner",
        ("No 802.3ad response",),
        (
            r"[\w.-]{1,32}: (?:\(slave .{1,32}\): )?Warning: No 802\.3ad response from the link"
            r" partner"
        ),
    ),
    (
        "address-taken",
        ("IPv6 duplicate address",),
        r"(?:IPv6: )?[\w.@-]{1,32}: IPv6 duplicate address .{1,80} detected",
    ),
    (
        "gpu-driver-trace",
        (" [nvidia",),
        (
            r" {0,4}(?:RIP: [0-9a-f]{4}:)?(?:\? )?[\w.]{1,128}\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
            r" \[nvidia(?:_\w{1,16})?\]"
        ),
    ),
    # The last row is for lines that no other row matches. ACCESS_REG fails on healthy machines too,
    # for a register that another function of the card has.
    (
        "driver-complaint",
        ("NVRM: ", "nvidia-nvswitch", "nvidia-uvm: "),
        r"(?:NVRM: |nvidia-nvswitch\d{1,4}: |nvidia-uvm: )(?!.{0,300}gsp_log_).{0,300}"
        + _COMPLAINT,
    ),
    (
        "driver-complaint",
        ("mlx5_core 0000:", "bnxt_en 0000:", "efa 0000:"),
        r"(?:mlx5_core|bnxt_en|efa) " + _PCI + r"(?!.{0,80}ACCESS_REG).{0,300}" + _COMPLAINT,
    ),
)
NEEDLES = tuple(
    sorted({needle for _what, needles, _pattern in PATTERNS + MESSAGES for needle in needles})
)
GPU_LIBRARIES = (
    "libnccl",
    "libcuda",
    "libnvidia",
    "libtorch_cuda",
    "libc10_cuda",
    "libcudart",
    "libcudnn",
    "libcublas",
)
AER_SEVERITIES = {"Corrected": "corrected", "Correctable": "corrected"}


def parse_fault(message: str) -> Fault | None:
    """Fault of one message (without its time stamp); None for a message that a healthy machine
    prints too."""
    line = message[:MESSAGE_LIMIT]
    for kind, needles, pattern in PATTERNS:
        if any(needle in line for needle in needles):
            # compiled at first use: compiling all patterns takes 9 ms, and a healthy log needs none
            match = re.match(pattern, line)
            if match:
                return fault_of(kind, match.groupdict(), line)
    for subject, needles, pattern in MESSAGES:
        if any(needle in line for needle in needles):
            match = re.match(pattern, line)
            if match:
                address = normal_address(match.groupdict().get("pci"))
                return Fault(
                    kind="other", code=None, pci_address=address, subject=subject, severity=None
                )
    return None


def fault_of(kind: str, named: dict[str, Any], line: str) -> Fault | None:
    """The Fault of a matched line, or None when the match turns out to be of no interest. named:
    the pattern's groups."""
    subject, severity = named.get("subject"), named.get("severity")
    if kind == "xid":
        subject = process_of_xid(line)
    elif kind == "segfault" and not (subject or "").startswith(GPU_LIBRARIES):
        return None
    elif kind == "aer":
        subject, severity = named["driver"], aer_severity(severity or "")
    code = int(named["code"]) if named.get("code") else None
    return Fault(
        kind=kind,
        code=code,
        pci_address=normal_address(named.get("pci")),
        subject=subject,
        severity=severity.lower() if severity else None,
    )


def process_of_xid(line: str) -> str | None:
    """The process name that newer drivers put into an Xid line ("pid=1234, name=python3,"), or
    None."""
    name = line.partition(", name=")[2].partition(",")[0].strip()
    return name if name and not name.startswith("<") and len(name) <= 64 else None


def aer_severity(text: str) -> str:
    """corrected, non-fatal or fatal, from the severity that aer.c prints: Corrected, Uncorrected
    (Non-Fatal), Uncorrectable (Fatal)."""
    if text in AER_SEVERITIES:
        return AER_SEVERITIES[text]
    return "non-fatal" if "Non-Fatal" in text else "fatal"


def normal_address(text: str | None) -> str | None:
    """0000:3b:00.0 as sysfs writes it, from the driver's 0000:3b:00, 00000000:3B:00.0 or 0000:3b.
    None for None."""
    if not text:
        return None
    where, _dot, function = text.lower().partition(".")
    numbers = [number for number in where.split(":") if number] + ["00"]
    return f"{int(numbers[0], 16):04x}:{numbers[1]}:{numbers[2]}.{function or '0'}"
