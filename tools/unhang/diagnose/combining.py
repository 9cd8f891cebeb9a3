"""What follows from several facts together, where no single line tells: ranks that differ, work that was going on, a hang without a word.

Each rule is a function facts -> evidence, with the weight that its words would have on a signature. Order does not matter, rules know nothing
of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts, Timeout
from unhang.diagnose.scanning import Event
from unhang.diagnose.weights import WEIGHTS

STRONG, SUPPORTING, WEAK = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["weak"]
NEAR_LINES = 15  # single-rank work that stands so close before a time-out was going on
START_UP_SEQ = 50  # a collective so early belongs to start-up
FLAPS = 3
MANY_AER = 4
SAME_SIZE = ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLGATHER")
UNREACHABLE = ("172.17.", "172.18.", "169.254.", "127.", "192.168.122.", "10.88.")
BRIDGES = ("docker", "virbr", "lo", "veth", "br-", "cni", "cilium", "flannel", "podman")


def hang_signs(facts: Facts) -> list[Event]:
    """The lines that tell of a hang or a time-out, in whatever words."""
    names = ["timeout", "store_timeout", "hang_told", "vllm_stall", "jax_stuck", "horovod_stall", "desync"]
    if not facts.of("training_step"):  # who stops a job that runs does not say that it hung
        names.append("interrupted")
    signs = [event for name in names for event in facts.of(name) if not event.quoted]
    return signs + _busy_and_cool(facts)


def _busy_and_cool(facts: Facts) -> list[Event]:
    """GPUs at full load that draw little power wait in a kernel for each other."""
    rows = [
        event
        for event in facts.of("gpu_load")
        if int(event.fields["load"] or 0) >= 95 and int(event.fields["watt"] or 0) * 10 < int(event.fields["cap"] or 1) * 4
    ]
    return rows if len(rows) > 1 else []


def ranks_called_different_things(facts: Facts) -> Iterator[Evidence]:
    by_group: dict[str | None, list[Timeout]] = {}
    for one in facts.timeouts:
        by_group.setdefault(one.group, []).append(one)
    for several in by_group.values():
        alike = _oldest_of_each_rank(several)
        events = tuple(one.event for one in alike[:6])
        ops = {one.op for one in alike}
        seqs = {one.seq for one in alike if one.seq is not None}
        if len(ops) > 1:
            yield Evidence(
                "rank_desync_app", STRONG + 1, f"ranks wait in different collectives: {', '.join(sorted(ops))}", events, "timeouts-differ-in-operation"
            )
        elif len(seqs) > 1:
            yield Evidence(
                "rank_desync_app", STRONG - 0.5, f"ranks wait at different sequence numbers: {min(seqs)} to {max(seqs)}", events, "timeouts-differ-in-sequence"
            )
        elif len({one.numel for one in alike if one.numel}) > 1 and ops & set(SAME_SIZE):
            yield Evidence("rank_desync_app", STRONG, "ranks wait in one collective with different sizes", events, "timeouts-differ-in-size")


def _oldest_of_each_rank(timeouts: Sequence[Timeout]) -> list[Timeout]:
    """A rank whose watchdog reports many queued collectives waits in the oldest of them."""
    kept: dict[int, Timeout] = {}
    nameless = [one for one in timeouts if one.rank is None]
    for one in timeouts:
        if one.rank is not None and (one.rank not in kept or (one.seq or 0) < (kept[one.rank].seq or 0)):
            kept[one.rank] = one
    return [*kept.values(), *nameless]


def recorders_differ(facts: Facts) -> Iterator[Evidence]:
    for group in (facts.flights or {}).get("groups", []):
        if group["calls"]:
            told = "; ".join(f"{what}: ranks {', '.join(map(str, ranks[:8]))}" for what, ranks in list(group["calls"].items())[:4])
            yield Evidence(
                "rank_desync_app",
                WEIGHTS["decisive"],
                f"flight recorder: collective {group['seq']} of group {group['group']} differs: {told}",
                (),
                "recorders-differ",
            )
        elif group["behind"]:
            behind = ", ".join(map(str, group["behind"][:16]))
            yield Evidence(
                "rank_desync_app",
                SUPPORTING + 1,
                f"flight recorder: ranks {behind} stopped before the others in group {group['group']}",
                (),
                "recorders-behind",
            )
            yield Evidence("slow_rank_or_io", SUPPORTING + 1, f"flight recorder: ranks {behind} did not get as far as the others", (), "recorders-behind")
        elif group["stuck"]:
            yield Evidence(
                "watchdog_timeout_too_short",
                SUPPORTING,
                f"flight recorder: every rank is in collective {group['seq']} and none has finished it",
                (),
                "recorders-stuck",
            )


def ranks_share_a_gpu(facts: Facts) -> Iterator[Evidence]:
    """Two ranks, two processes, one bus id on one host, within one communicator where its id is told."""
    seen: dict[tuple, dict[str, Event]] = {}
    for name in ("init_start", "init_complete"):
        for event in facts.of(name):
            if event.prefix.host and event.prefix.pid and event.fields.get("bus"):
                key = (name, event.prefix.host, event.fields["bus"], event.fields.get("comm"), event.fields["nranks"])
                seen.setdefault(key, {}).setdefault(event.prefix.pid, event)
    for key, by_pid in seen.items():
        if len(by_pid) > 1 and len({event.fields["rank"] for event in by_pid.values()}) > 1:
            yield Evidence(
                "rank_device_mapping",
                STRONG + 1,
                f"{len(by_pid)} processes build a communicator on GPU {key[2]} of {key[1]}",
                tuple(by_pid.values())[:4],
                "same-bus-id",
            )
            return


def processes_share_a_gpu(facts: Facts) -> Iterator[Evidence]:
    by_gpu: dict[str, set[str]] = {}
    for event in facts.of("gpu_process"):
        by_gpu.setdefault(event.fields["index"] or "", set()).add(event.fields["pid"] or "")
    gpus = {event.fields["index"] for name in ("gpu_row", "gpu_listed") for event in facts.of(name)} | set(by_gpu)
    crowded = [index for index, pids in by_gpu.items() if len(pids) > 1]
    if crowded and len(by_gpu) < len(gpus) and len(gpus) > 1:
        yield Evidence(
            "rank_device_mapping",
            STRONG,
            f"several processes are on GPU {crowded[0]} and others have none",
            tuple(facts.of("gpu_process"))[:4],
            "processes-on-one-gpu",
        )


def llmc_stopped_before_first_step(facts: Facts) -> Iterator[Evidence]:
    allocated = facts.of("llmc_allocated")
    if not allocated or (facts.world_size or 2) < 2:
        return
    last = allocated[-1]
    if any(event.file == last.file and event.line > last.line for event in facts.of("training_step")) or not _near_end(facts, last):
        return
    yield Evidence(
        "rank_device_mapping", STRONG, "llm.c stops after its last allocation, where all processes once took device 0", (last,), "llmc-last-allocation"
    )


def build_did_not_end(facts: Facts) -> Iterator[Evidence]:
    starts = facts.of("build_start")
    if not starts:
        return
    last = starts[-1]
    if any(event.file == last.file and event.line > last.line for event in facts.of("build_done")):
        return
    signs = hang_signs(facts)
    if signs:
        yield Evidence("fused_kernel_build", STRONG + 1, "a build of CUDA extensions began and did not end before the time was up", (last,), "build-unfinished")
    elif _near_end(facts, last):
        yield Evidence("fused_kernel_build", STRONG, "the log ends while a CUDA extension is being built", (last,), "build-unfinished")


def work_was_going_on(facts: Facts) -> Iterator[Evidence]:
    """A rank was busy with data, or alone with saving, when the others ran out of time."""
    waits = [event for name in ("timeout", "store_timeout") for event in facts.of(name) if not event.quoted]
    if not waits:
        return
    first = min(waits, key=lambda event: (event.file, event.line))
    data = [event for event in facts.of("data_progress") if event.file == first.file and event.line <= first.line]
    if data and int(data[-1].fields["percent"] or 0) < 100:
        what = f"{(data[-1].fields['what'] or '').strip()} stood at {data[-1].fields['percent']} %"
        yield Evidence("slow_rank_or_io", STRONG + 1, f"{what} when the others' time was up", (data[-1], first), "data-work-unfinished")
        return
    alone = [event for event in facts.of("single_rank_work") if event.file == first.file and 0 < first.line - event.line <= NEAR_LINES]
    if alone:
        yield Evidence(
            "watchdog_timeout_too_short",
            STRONG,
            "a rank was saving, merging or evaluating when the others' time was up",
            (alone[-1], first),
            "single-rank-work",
        )
        yield Evidence("slow_rank_or_io", SUPPORTING, "one rank worked while the others waited", (alone[-1],), "single-rank-work")


def limit_ran_out_everywhere(facts: Facts) -> Iterator[Evidence]:
    """Time-outs in one and the same collective, and nothing else: too short a limit, or a transport that is stuck."""
    if not facts.timeouts:
        return
    events = tuple(one.event for one in facts.timeouts[:6])
    if len({(one.op, one.seq) for one in facts.timeouts}) == 1:
        yield Evidence(
            "watchdog_timeout_too_short",
            SUPPORTING + 0.4,
            "all ranks that report wait in the same collective and no other cause shows",
            events,
            "same-collective",
        )
        one = facts.timeouts[0]
        if one.seq is not None and one.seq <= START_UP_SEQ and (one.numel or 0) > 1:
            why = "the hang is in start-up, in the first large transfers between GPUs"
            yield Evidence("acs_iommu", SUPPORTING / 2, why, events[:1], "start-up-transfer")
            yield Evidence("driver_p2p_bug", SUPPORTING / 2, why, events[:1], "start-up-transfer")
        elif one.seq is not None and one.seq > 20 * START_UP_SEQ:
            yield Evidence("nccl_bug", WEAK, "many collectives had worked before this one", events[:1], "late-hang")


def peer_to_peer_went_silent(facts: Facts) -> Iterator[Evidence]:
    """Channels over P2P, then nothing: no error, no end of initialisation, no step."""
    p2p = [event for event in facts.of("transport") if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")]
    worked = facts.of("training_step") or facts.of("average_bandwidth") or facts.of("comm_destroyed")
    if not p2p or worked or any(event.signature.kind == "error" and event.signature.for_ and not event.quoted for event in facts.events):
        return
    signs = hang_signs(facts)
    if not (facts.of("init_complete") or facts.of("rings_connected")) and _near_end(facts, p2p[-1]):
        why = "initialisation stops once channels over peer-to-peer are chosen"
        yield Evidence("acs_iommu", SUPPORTING + 0.6, why, (p2p[-1],), "p2p-silent")
        yield Evidence("driver_p2p_bug", SUPPORTING, why, (p2p[-1],), "p2p-silent")
    elif signs:
        why = "peer-to-peer is in use and the job hangs"
        yield Evidence("acs_iommu", SUPPORTING - 0.4, why, (p2p[-1],), "p2p-and-hang")
        yield Evidence("driver_p2p_bug", SUPPORTING - 0.8, why, (p2p[-1],), "p2p-and-hang")


def known_bad_driver_and_hang(facts: Facts) -> Iterator[Evidence]:
    bad = [event for event in facts.of("bad_driver") if not event.quoted]
    signs = [*hang_signs(facts), *facts.of("soft_lockup")]
    silent = facts.of("phase") and not facts.of("training_step")
    if bad and (signs or silent):
        yield Evidence(
            "driver_p2p_bug",
            STRONG,
            f"driver {bad[0].fields['value']} is known for peer-to-peer hangs, and this job hangs",
            (bad[0], *signs[:2]),
            "bad-driver-and-hang",
        )


def old_kernel_and_hang(facts: Facts) -> Iterator[Evidence]:
    warned = [event for event in facts.of("kernel_warning") if not event.quoted]
    signs = hang_signs(facts)
    if warned and signs:
        yield Evidence(
            "kernel_too_old",
            SUPPORTING + 0.5,
            "the kernel is old and the job hangs in start-up; still weak evidence",
            (warned[0], *signs[:1]),
            "old-kernel-and-hang",
        )


def several_nccl_libraries(facts: Facts) -> Iterator[Evidence]:
    loaded = {event.fields["value"]: event for event in facts.of("nccl_version") if event.signature.id == "fact-nccl-version"}
    if len(loaded) > 1:
        events = tuple(loaded.values())[:4]
        same_job = len({event.file for event in events}) == 1 and len({event.prefix.host for event in events}) >= 1
        yield Evidence(
            "nccl_version_conflict",
            STRONG + 1.5 if same_job else SUPPORTING,
            f"NCCL {' and '.join(sorted(map(str, loaded))[:4])} are loaded in one job",
            events,
            "two-nccl-loaded",
        )
    wheels = {(event.fields["name"], event.fields["value"]): event for event in facts.of("nccl_wheel")}
    if len(wheels) > 1:
        yield Evidence("nccl_version_conflict", STRONG, "several NCCL wheels are installed", tuple(wheels.values())[:4], "two-nccl-wheels")


def small_shared_memory(facts: Facts) -> Iterator[Evidence]:
    for event in facts.of("shm"):
        size, percent = _bytes(event.fields["size"] or ""), int(event.fields["percent"] or 0)
        if percent >= 95:
            yield Evidence("shm_too_small", STRONG, f"shared memory is {percent} % full", (event,), "shm-full")
        elif size and size <= 64 << 20:
            yield Evidence("shm_too_small", SUPPORTING, f"shared memory has {event.fields['size']}", (event,), "shm-small")


def no_peer_access(facts: Facts) -> Iterator[Evidence]:
    rows = [event for event in facts.of("topology") if any(word in (event.fields["value"] or "").split() for word in ("CNS", "GNS", "TNS", "NS"))]
    if rows:
        weight = SUPPORTING + (1 if facts.of("geforce") else 0)
        yield Evidence("unsupported_p2p_geforce", weight, "nvidia-smi topo -p2p says that peer access is not supported", tuple(rows[:3]), "topo-no-p2p")


def _link(event: Event) -> str:
    return f"{event.prefix.host} {event.fields.get('interface') or event.fields.get('pci')}"


def links_flap(facts: Facts) -> Iterator[Evidence]:
    by_link: dict[str, list[Event]] = {}
    for event in facts.of("link_flap"):
        by_link.setdefault(_link(event), []).append(event)
    for name, events in by_link.items():
        if len(events) >= FLAPS:
            yield Evidence("ib_misconfig", STRONG, f"{name.removeprefix('None ')} went down {len(events)} times", tuple(events[:4]), "link-flaps")
        elif not any(_link(up) == name and (up.file, up.line) > (events[-1].file, events[-1].line) for up in facts.of("link_up")):
            yield Evidence("ib_misconfig", SUPPORTING, f"{name.removeprefix('None ')} went down and did not come up again", (events[-1],), "link-stays-down")


def port_down_and_fault(facts: Facts) -> Iterator[Evidence]:
    """A port that is not up matters once the network fails, or the job hangs."""
    down = [event for event in facts.of("ib_port") if not event.quoted]
    errors = [event for event in facts.events if event.signature.kind == "error" and not event.quoted and event.signature.fact != "ib_port"]
    signs = [event for event in errors if "ib_misconfig" in event.signature.for_] + hang_signs(facts)
    if down and signs:
        yield Evidence("ib_misconfig", STRONG, "a port of an adapter is not up, and the job fails or hangs", (down[0], signs[0]), "port-down-and-fault")


def pcie_errors_pile_up(facts: Facts) -> Iterator[Evidence]:
    events = [event for event in facts.of("aer") if not event.quoted]
    if len(events) >= MANY_AER:
        yield Evidence("xid_hardware", STRONG - 1, f"{len(events)} PCIe errors on {events[0].fields['pci']}", tuple(events[:3]), "aer-many")


def unreachable_interface(facts: Facts) -> Iterator[Evidence]:
    several = len({event.prefix.host for event in facts.of("bootstrap")} - {None}) > 1 or any(
        int(event.fields["value"] or 1) > 1 for event in facts.of("nnodes")
    )
    several = several or bool(facts.of("socket_failed")) or any(event.signature.id.startswith("nccl-connect") for event in facts.events)
    for event in facts.of("bootstrap"):
        address, name = event.fields["address"] or "", event.fields["interface"] or ""
        if several and (address.startswith(UNREACHABLE) or name.startswith(BRIDGES)):
            yield Evidence(
                "wrong_interface", SUPPORTING + 1, f"NCCL meets over {name} {address}, which other machines cannot reach", (event,), "bootstrap-unreachable"
            )
            return


def gpudirect_wanted_and_off(facts: Facts) -> Iterator[Evidence]:
    off = facts.of("gdr_disabled")
    wanted = [event for event in facts.of("setting") if (event.fields["name"] or "").startswith("NCCL_NET_GDR")]
    wanted += list(facts.of("peermem_loaded"))
    if off and wanted:
        yield Evidence("gdr_peermem_missing", STRONG, "GPUDirect RDMA was asked for and NCCL finds it disabled", (wanted[0], off[0]), "gdr-wanted")
    elif off and facts.of("slow_told"):
        yield Evidence("gdr_peermem_missing", STRONG, "GPUDirect RDMA is off and the job is slow", (off[0], facts.of("slow_told")[0]), "gdr-slow")


def gpudirect_on_some_hosts(facts: Facts) -> Iterator[Evidence]:
    """Some hosts reach the adapter directly and others, over the same kind of adapter, do not."""
    direct = {event.prefix.host for event in facts.of("gdr_enabled") if "GDRDMA" in event.text}
    # Receives alone: where reading GPU memory is slow, NCCL sends without it on purpose.
    detour = [event for event in facts.of("transport") if "[receive] via NET/IB" in event.text and "GDRDMA" not in event.text]
    alone = [event for event in detour if event.prefix.host not in direct]
    if direct and alone:
        yield Evidence(
            "gdr_peermem_missing", STRONG, f"{alone[0].prefix.host} does not use GPUDirect RDMA and other hosts do", (alone[0],), "gdr-on-some-hosts"
        )
    elif direct and not facts.of("gdr_disabled"):
        yield Evidence("gdr_peermem_missing", -STRONG, "GPUDirect RDMA is in use", tuple(facts.of("gdr_enabled")[:1]), "gdr-in-use")


def cards_without_peer_access(facts: Facts) -> Iterator[Evidence]:
    """GeForce 40 and 50 have no peer-to-peer over PCIe; drivers before 550.40.07 claimed it for the 40 series."""
    cards = [event for event in facts.of("geforce") if (event.fields["value"] or "").startswith(("40", "50"))]
    p2p = [event for event in facts.of("transport") if (event.fields.get("value") or event.fields.get("old") or "").startswith("P2P")]
    helped = facts.of("p2p_disable_helps")
    if cards and (helped or (p2p and hang_signs(facts))) and not facts.of("p2p_disable_no_help"):
        yield Evidence(
            "unsupported_p2p_geforce",
            STRONG,
            f"GeForce RTX {cards[0].fields['value']} has no peer-to-peer, and the job uses it",
            (cards[0], *(helped or p2p)[:1]),
            "geforce-p2p",
        )


def fabric_of_nvswitch_board(facts: Facts) -> Iterator[Evidence]:
    failed = [event for event in facts.of("fabric_manager_failed") if not event.quoted]
    switches = [event for event in facts.events if "nvswitch" in event.text.lower()]
    if failed and (switches or facts.of("nvls")) and not facts.of("fabric_manager_not_needed"):
        yield Evidence("fabric_manager_down", STRONG, "fabric manager failed on a board with NVSwitches", (failed[0],), "fm-failed-with-switches")


RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    ranks_called_different_things, recorders_differ, ranks_share_a_gpu, processes_share_a_gpu, llmc_stopped_before_first_step, build_did_not_end,
    work_was_going_on, limit_ran_out_everywhere, peer_to_peer_went_silent, known_bad_driver_and_hang, old_kernel_and_hang, several_nccl_libraries,
    port_down_and_fault,
    small_shared_memory, no_peer_access, links_flap, pcie_errors_pile_up, unreachable_interface, gpudirect_wanted_and_off, gpudirect_on_some_hosts,
    cards_without_peer_access, fabric_of_nvswitch_board,
)  # fmt: skip


def combined_evidence(facts: Facts) -> list[Evidence]:
    """The evidence of all rules."""
    return [one for rule in RULES for one in rule(facts)]


def _near_end(facts: Facts, event: Event) -> bool:
    """Whether the line stands among the last of its file."""
    lines: Sequence[tuple[int, str]] = facts.last.get(event.file, ())
    return bool(lines) and event.line >= lines[0][0]


def _bytes(text: str) -> int:
    """64M as bytes; 0 when it is no size. df without -h counts in KiB."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number = text.rstrip("KMGT")
    if not number.replace(".", "", 1).isdigit():
        return 0
    return int(float(number) * units.get(text[-1:], 1 << 10))
