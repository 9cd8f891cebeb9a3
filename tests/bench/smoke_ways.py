"""Steps of gpu_bench.py about transports between GPUs: hosts on one machine, each transport with
its label, and transports broken on purpose, with experiments.

The transports are broken by a library that is loaded before the C library (broken_ways.c): it
refuses to pass file descriptors between processes, which NCCL's peer-to-peer needs, or to create
files in /dev/shm, which its shared memory needs. Nothing on the cards is changed.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from nccl_tests import GIB
from smoke_bench import Bench, labels, planning

from unhang.core.smoke_result import document_of, smoke_result
from unhang.smoke.experiments import (
    ONE_RANK,
    REPEAT,
    Experiment,
    experiment_rounds,
    narrowed,
    plan_experiments,
)
from unhang.smoke.session import follow

HERE = Path(__file__).parent
# shared memory through files in /dev/shm: releases before 2.24 use them, and containers do
OLD_SHM = {"NCCL_CUMEM_HOST_ENABLE": "0"}
# small messages between every two GPUs
EACH_PAIR: dict[str, Any] = {
    "phases": ("bandwidth",),
    "bandwidth_ops": ("all_reduce", "all_to_all"),
    "bandwidth_bytes": (1 << 20,),
}
WAYS = (
    ("peer-to-peer off", {"NCCL_P2P_DISABLE": "1"}, "shm"),
    ("peer-to-peer off, shared memory by files", {"NCCL_P2P_DISABLE": "1", **OLD_SHM}, "shm"),
    (
        "peer-to-peer and shared memory off",
        {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
        "net",
    ),
    ("peer-to-peer by CUDA IPC", {"NCCL_CUMEM_ENABLE": "0"}, "nvlink"),
)


def hosts_of(bench: Bench) -> dict[str, dict[str, str]]:
    """Settings by rank that make this machine two hosts for NCCL."""
    if bench.shared:
        return {}  # each rank is a host already
    half = max(1, bench.nproc // 2)
    return {str(rank): {"NCCL_HOSTID": f"host{rank // half}"} for rank in range(bench.nproc)}


def step_as_hosts(bench: Bench) -> None:
    """This machine as two hosts (`unhang smoke --local --as-hosts 2`): NCCL uses the network
    between them."""
    result, seconds = bench.smoke(
        "as-hosts", as_hosts=2, bandwidth_bytes=(1 << 20, 64 << 20), max_bytes=64 << 20
    )
    kinds = {row["kind"] for row in result["transports"]}
    bench.expect(
        "as hosts",
        result["verdict"] == "pass" and "net" in kinds,
        f"pass over the network, found {result['verdict']} over {kinds}",
    )
    large = [
        row
        for row in result["collectives"]
        if row["measures"] == "bandwidth" and row["size_bytes"] > GIB // 32
    ]
    rates = ", ".join(f"{row['op']} {row['busbw_gb_s']} GB/s" for row in large)
    bench.say(
        f"{bench.nproc} GPUs as 2 hosts",
        f"{result['verdict']}, {seconds:.1f} s; {tell_labels(result)}; {rates}",
    )


def step_ways(bench: Bench) -> None:
    """Each transport of NCCL, with its label in the result."""
    for name, settings, kind in WAYS:
        result, seconds = bench.smoke(
            "ways-" + name.replace(" ", "-").replace(",", ""),
            **EACH_PAIR,
            environment=settings,
        )
        kinds = {row["kind"] for row in result["transports"]}
        bench.expect(
            name,
            result["verdict"] == "pass" and kinds == {kind},
            f"pass, all pairs {kind}; found {result['verdict']}, {kinds}",
        )
        bench.say(
            f"way with {name}", f"{result['verdict']}, {seconds:.1f} s; {tell_labels(result)}"
        )


def tell_labels(result: dict[str, Any]) -> str:
    """Labels with some of their pairs."""
    return "; ".join(
        f"{label}: {', '.join(pairs[:4])}{' ...' if len(pairs) > 4 else ''}"
        for label, pairs in labels(result).items()
    )


def step_logs(bench: Bench) -> None:
    """NCCL's own logs, unchanged, as future fixtures: graph search, transports, devices. The result
    then has no labels, because the logs are not read there."""
    settings = {
        "NCCL_DEBUG_FILE": str(bench.out / "nccl-log-%p.txt"),
        "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH",
    }
    bench.smoke(
        "logs",
        **EACH_PAIR,
        environment=settings,
        rank_environment=hosts_of(bench),
    )
    written = sorted(bench.out.glob("nccl-log-*.txt"))
    bench.say(
        "NCCL's logs kept",
        f"{len(written)} files, {sum(path.stat().st_size for path in written) // 1024} KiB",
    )


def broken_ways() -> str | None:
    """The library, built with this machine's C compiler; None without one."""
    target = Path(tempfile.mkdtemp(prefix="broken-ways-"), "broken_ways.so")
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(target), str(HERE / "broken_ways.c"), "-ldl"]
    try:
        return str(target) if subprocess.run(argv, check=False).returncode == 0 else None
    except OSError:
        return None


def step_experiments(bench: Bench) -> None:
    """A transport that is really broken: runs the failing phase again under other settings, and
    finds the setting that cures it."""
    library = broken_ways()
    if library is None:
        bench.say("experiments", "no C compiler here to break a way with")
        return
    broken_p2p = {"LD_PRELOAD": library, "UNHANG_BREAK": "p2p", **OLD_SHM}
    # NVLS is off already, there is no InfiniBand, and one more algorithm among those that fail
    # would cost half a minute.
    telling = [
        one
        for one in plan_experiments("nccl")
        if one.name not in ("InfiniBand off", "NVLS off", "algorithm Ring")
    ]
    try_experiments(bench, "peer-to-peer broken", broken_p2p, telling, "peer-to-peer off")
    broken_shm = {"LD_PRELOAD": library, "UNHANG_BREAK": "shm", "NCCL_P2P_DISABLE": "1", **OLD_SHM}
    shm = [
        one
        for one in plan_experiments("nccl")
        if one in (REPEAT, ONE_RANK) or one.name == "shared memory off"
    ]
    # NCCL_SHM_DISABLE=1 does not help with a full /dev/shm: the remaining network transport keeps
    # its proxy's operations in a file there too.
    try_experiments(bench, "shared memory broken", broken_shm, shm, "one rank alone")


def step_dead_interface(bench: Bench) -> None:
    """NCCL_SOCKET_IFNAME names an interface that does not exist: the result names the setting; with
    an existing interface the test runs."""
    others = [
        name for name in ("eth0", "ens3", "ens5", "eno1") if Path("/sys/class/net", name).is_dir()
    ]
    hosts = hosts_of(bench)
    result, seconds = bench.smoke(
        "no-interface",
        phases=("all_reduce",),
        rank_environment=hosts,
        environment={"NCCL_SOCKET_IFNAME": "nosuch0"},
    )
    named = [
        suspect["why"] for suspect in result["suspects"] if "NCCL_SOCKET_IFNAME" in suspect["why"]
    ]
    bench.expect("no interface", bool(named), "NCCL_SOCKET_IFNAME named")
    bench.say(
        "2 hosts, NCCL_SOCKET_IFNAME=nosuch0",
        f"{named[0] if named else 'not named'}; {seconds:.1f} s, before any collective, so no"
        " experiment",
    )
    for name in others[:1]:
        result, seconds = bench.smoke(
            "one-interface",
            phases=("all_reduce",),
            rank_environment=hosts,
            environment={"NCCL_SOCKET_IFNAME": name},
        )
        bench.say(
            f"2 hosts, NCCL_SOCKET_IFNAME={name}",
            f"{result['verdict']}, {seconds:.1f} s; {tell_labels(result)}",
        )


def step_network(bench: Bench) -> None:
    """The network between hosts broken on all interfaces but lo: an experiment with that one cures
    it."""
    library = broken_ways()
    if library is None:
        bench.say("network broken", "no C compiler here to break a way with")
        return
    telling = [
        one
        for one in plan_experiments("nccl", ["lo"])
        if one.name in ("algorithm Ring", "interface lo") or one in (REPEAT, ONE_RANK)
    ]
    try_experiments(
        bench,
        "network broken",
        {"LD_PRELOAD": library, "UNHANG_BREAK": "net"},
        telling,
        "interface lo",
    )


def try_experiments(
    bench: Bench, name: str, broken: dict[str, str], planned: list[Experiment], cure: str
) -> None:
    """The fault, then each change in addition to it. The expected cure must be among those that
    worked."""
    file = name.replace(" ", "-")
    result, seconds = bench.smoke(
        file, phases=("all_reduce",), environment=broken, total_timeout_s=30.0
    )
    bench.expect(name, result["verdict"] == "fail", f"fail, found {result['verdict']}")
    why = "; ".join(dict.fromkeys(suspect["why"][:160] for suspect in result["suspects"]))
    bench.say(name, f"{result['verdict']}, {seconds:.1f} s: {why[:400]}")

    def attempt(experiment: Experiment, phase: str) -> tuple[str, float]:
        began = time.monotonic()
        request = narrowed(planning.Request(environment=broken), phase, experiment)
        ranks = 1 if experiment.alone else bench.nproc
        again, _ = bench.smoke(
            f"{file}-again",
            phases=(phase,),
            environment=request.environment,
            nproc=ranks,
            total_timeout_s=30.0,
        )
        yield from ()
        return again["verdict"], time.monotonic() - began

    rounds = experiment_rounds(smoke_result(result), planned, attempt)
    rows = document_of(follow(rounds, None))["experiments"]
    cured = [row["name"] for row in rows if row["cured"]]
    bench.expect(name, cure in cured, f"{cure!r} to cure it, found {cured}")
    bench.say(
        f"experiments on {name}",
        "; ".join(
            f"{row['name']}: {'cured' if row['cured'] else row['verdict']},"
            f" {row['duration_s']:.0f} s"
            for row in rows
        ),
    )
    bench.measured[f"experiments on {name}"] = rows
