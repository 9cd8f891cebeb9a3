"""A run of 24 equal nodes of the gallery, of which some have a fault each."""

from __future__ import annotations

import copy
import functools

import judge_cases
from gallery import read_gallery

NODES = 24


def xid(code, line, pci="0000:15:00.0"):
    """An event of the kernel log."""
    return {
        "kind": "xid", "code": code, "pci_address": pci, "subject": "python3", "severity": None,
        "count": 1, "first_s": 1.0, "last_s": 1.0, "line": line,
    }  # fmt: skip


def dead_port(sections):
    for port in sections["network"]["rdma"][3]["ports"]:
        port.update(state="down", physical_state="polling", rate_gbps=10.0, lid=65535, sm_lid=0)


def low_power_limit(sections):
    for gpu in sections["gpus"]["devices"]:
        gpu["power_limit_w"] = 500.0


def links_down(sections):
    sections["interconnect"]["by_gpu"][2]["nvlinks_active"] -= 2
    of_gpu = [one for one in sections["interconnect"]["links"] if one["gpu"] == 2]
    for link in of_gpu[:2]:
        link.update(active=False, speed_mb_s=None)


def narrow_slot(sections):
    sections["gpus"]["devices"][1]["pcie"]["width_now"] = 8


def failed_remap(sections):
    sections["gpus"]["devices"][4]["row_remap"]["failed"] = True


def uncontained_error(sections):
    line = "NVRM: Xid (PCI:0000:15:00): 95, pid=1, Uncontained ECC error"
    sections["faults"]["events"] = [xid(95, line)]


SIX_FAULTS = {
    "gpu03": dead_port,
    "gpu05": low_power_limit,
    "gpu06": low_power_limit,
    "gpu07": uncontained_error,
    "gpu09": links_down,
    "gpu11": narrow_slot,
    "gpu13": failed_remap,
}


@functools.cache
def gallery_machines():
    """Name -> machine of the gallery."""
    return {one.name: one for one in read_gallery()}


def healthy_sections(name="dgx_h200"):
    """The facts of a healthy machine of the gallery, to be changed."""
    return copy.deepcopy(gallery_machines()[name].document["sections"])


def write_fleet(folder, faults=SIX_FAULTS, nodes=NODES, machine="dgx_h200", **more):
    """The run folder of gpu01 and its peers. faults: host -> what changes its facts; more: keys of
    every node file."""
    documents = []
    for number in range(1, nodes + 1):
        host, sections = f"gpu{number:02d}", healthy_sections(machine)
        faults.get(host, lambda sections: None)(sections)
        documents.append(judge_cases.node(host, sections, **more))
    return judge_cases.write_run(folder, *documents)
