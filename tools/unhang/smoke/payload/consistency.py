"""Phase consistency: compares what must be the same on all ranks before their first collective."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .binding import binding_faults
from .mapped import mapped_libraries
from .run import Failed, Run, drill, short_list, wait_for

# What must be the same on all ranks before they meet in a collective: where these differ, NCCL
# communicates in another way or not at all.
MUST_AGREE = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET",
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_COLLNET_ENABLE", "NCCL_CUMEM_ENABLE",
    "NCCL_CROSS_NIC", "NCCL_MNNVL_ENABLE", "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_NET_GDR_LEVEL",
)  # fmt: skip


def agreeing_facts(facts: dict[str, Any]) -> dict[str, str]:
    """The facts of a rank that must be the same on all ranks, as {name: text}."""
    libraries = facts.get("nccl") or []
    values = {
        "backend": facts["backend"], "torch": facts["torch"], "CUDA of torch": facts["cuda"],
        "world size": facts["world"],
        "NCCL": ", ".join("%s (%s)" % (one["version"],
        (one["build_id"] or "no build id")[:12]) for one in libraries),
        "net plugin": ", ".join(os.path.basename(path) for path in facts.get("net_plugins") or []),
        "GPU model": facts["device"]["model"],
        "GPU architecture": facts["device"].get("architecture"),
        "GPUs of the node": node_gpus(facts.get("gpus") or []),
    }  # fmt: skip
    in_files = dict(line.split("=", 1) for _, line in facts.get("nccl_conf") or [] if "=" in line)
    for name in MUST_AGREE:
        values[name] = facts["variables"].get(name, in_files.get(name))
    return {
        name: "not set" if value is None or value == "" else str(value)
        for name, value in values.items()
    }


def node_gpus(models: list[str]) -> str:
    """8 x NVIDIA H200: the GPUs that the driver shows on a node, whichever of them its ranks
    use."""
    return ", ".join("%d x %s" % (models.count(model), model) for model in sorted(set(models)))


def differences(everyone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """[{name, values: {value: [ranks]}}] of facts that must be the same on all ranks and are not.
    everyone: facts by rank."""
    rows = []
    table = [agreeing_facts(facts) for facts in everyone]
    for name in table[0]:
        values: dict[str, list[int]] = {}
        for rank, facts in enumerate(table):
            values.setdefault(facts[name], []).append(rank)
        if len(values) > 1:
            rows.append({"name": name, "values": values})
    return rows


def phase_consistency(run: Run) -> dict[str, Any]:
    """Compares the ranks before the first collective. A difference that is found here would be a
    hang later."""
    limit_s = run.phase_until - time.monotonic()
    run.facts["net_plugins"] = mapped_libraries("libnccl-net")
    run.step("exchange facts over the store", limit_s)
    drill(run)
    if run.rank == 0:
        run.store.set("seed", str(run.plan.get("seed") or int.from_bytes(os.urandom(3), "big")))
    run.store.set("facts/%d" % run.rank, json.dumps(run.facts))
    wait_for(run, ["facts/%d" % rank for rank in range(run.world)], limit_s)
    run.seed = int(run.store.get("seed"))
    # Only rank 0 compares: with thousands of ranks, no other rank needs the answers of all.
    if run.rank == 0:
        everyone = [json.loads(run.store.get("facts/%d" % rank)) for rank in range(run.world)]
        run.store.set(
            "compared",
            json.dumps({"differences": differences(everyone), "binding": binding_faults(everyone)}),
        )
    wait_for(run, ["compared"], limit_s)
    compared = json.loads(run.store.get("compared"))
    if compared["binding"]:
        fault = compared["binding"][0]
        text = "ranks %s of one machine share %s, and each needs a GPU of its own; cause: %s"
        raise Failed(
            text % (short_list(fault["ranks"]), fault["device"], fault["variable"]), **compared
        )
    if compared["differences"]:
        first = compared["differences"][0]
        groups = "; ".join(
            "%s on ranks %s" % (value, short_list(ranks))
            for value, ranks in sorted(first["values"].items())
        )
        raise Failed("%s is not the same on all ranks: %s" % (first["name"], groups), **compared)
    return {"seed": run.seed}
