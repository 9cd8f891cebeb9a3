"""Surveys a node for the launcher before ranks start there."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any

from .limits import VERSION
from .mapped import boot_id
from .roots import rooted


def survey() -> dict[str, Any]:
    """What a launcher needs to know of this node, from files and ip(8): addresses, routes, GPUs, a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {
        "e": "survey", "hostname": socket.gethostname(), "interfaces": interfaces(), "routes": ip_json("route", "show", "table", "all"), "gpus": gpus(),
        "network": "%s-%d" % (boot_id(), os.stat("/proc/self/ns/net").st_ino),
        "slurm_node": os.environ.get("SLURMD_NODENAME"), "free_port": port, "python": sys.version.split()[0], "payload": VERSION,
    }  # fmt: skip


def ip_json(*arguments: Any) -> Any:
    """ip -j's answer, or None."""
    try:
        output = subprocess.run(["ip", "-j", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=False).stdout
        return json.loads(output)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def interfaces() -> list[dict[str, Any]]:
    """[{name, up, kind, addresses: ["10.0.0.1/24"]}]; kind: bridge, veth, loopback, wireguard ... or physical."""
    rows = []
    for row in ip_json("-d", "addr") or []:
        kind = (row.get("linkinfo") or {}).get("info_kind") or ("loopback" if row.get("link_type") == "loopback" else "physical")
        addresses = ["%s/%s" % (one.get("local"), one.get("prefixlen")) for one in row.get("addr_info") or []]
        rows.append({"name": row.get("ifname"), "up": "UP" in (row.get("flags") or []), "kind": kind, "addresses": addresses})
    return rows


def gpus() -> list[dict[str, Any]]:
    """[{model, uuid, pci_address}] from the driver's own files."""
    rows = []
    root = rooted("/proc/driver/nvidia/gpus")
    with contextlib.suppress(OSError):
        for address in sorted(os.listdir(root)):
            with contextlib.suppress(OSError), open(os.path.join(root, address, "information"), encoding="utf-8", errors="replace") as lines:
                pairs = dict(line.rstrip().split(":", 1) for line in lines if ":" in line)
                rows.append({"model": pairs.get("Model", "").strip(), "uuid": pairs.get("GPU UUID", "").strip(), "pci_address": address})
    return rows
