"""Phase binding: which device each rank uses, and whether two ranks use the same one."""

from __future__ import annotations

import os
from typing import Any

from .run import Failed, Run, drilled


def device_index(run: Run) -> int:
    """The GPU that this rank uses, among those that it sees."""
    return 0 if drilled(run, "wrong_device") else run.local_rank


def phase_binding(run: Run) -> dict[str, Any]:
    """Which device this rank uses."""
    torch = run.torch
    if run.backend != "nccl":
        index = device_index(run)
        run.device = torch.device("cpu")
        device = {
            "index": index,
            "uuid": "cpu-%s-%d" % (run.host, index),
            "model": "cpu",
            "simulated": True,
        }
    else:
        count = torch.cuda.device_count()
        index = device_index(run)
        if index >= count:
            raise Failed(
                "local rank %d has no GPU: %d are visible; CUDA_VISIBLE_DEVICES=%s"
                % (index, count, os.environ.get("CUDA_VISIBLE_DEVICES")),
                variable="CUDA_VISIBLE_DEVICES",
            )
        torch.cuda.set_device(index)
        run.device = torch.device("cuda", index)
        about = torch.cuda.get_device_properties(index)
        device = {
            "index": index, "uuid": "GPU-%s" % getattr(about, "uuid", "unknown-%d" % index),
            "model": about.name, "memory_bytes": about.total_memory,
            "architecture": "sm_%d%d" % (about.major, about.minor),
        }  # fmt: skip
    device["local_rank"] = run.local_rank
    device["local_rank_set"] = "LOCAL_RANK" in os.environ
    run.facts["device"] = device
    return {"device": device}


def binding_faults(everyone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """[{ranks, device, blamed, variable}] of devices that more than one rank of a machine uses.
    blamed: ranks whose device does not match their local rank."""
    takers: dict[tuple[str, str], list[int]] = {}
    for rank, facts in enumerate(everyone):
        takers.setdefault((facts["machine"], facts["device"]["uuid"]), []).append(rank)
    faults = []
    for (_, uuid), ranks in sorted(takers.items()):
        if len(ranks) > 1:
            misplaced = [
                rank
                for rank in ranks
                if everyone[rank]["device"]["index"] != everyone[rank]["device"]["local_rank"]
            ]
            unset = [rank for rank in ranks if not everyone[rank]["device"]["local_rank_set"]]
            visible = everyone[ranks[-1]]["variables"].get("CUDA_VISIBLE_DEVICES")
            otherwise = (
                "the program chose the device"
                if visible is None
                else "CUDA_VISIBLE_DEVICES=%s" % visible
            )
            variable = "LOCAL_RANK is not set" if unset else otherwise
            faults.append(
                {
                    "ranks": ranks,
                    "device": uuid,
                    "blamed": misplaced or ranks[1:],
                    "variable": variable,
                }
            )
    return faults
