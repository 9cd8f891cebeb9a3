"""Rules over hosts: lists of unequal length, versions and CPUs that differ, machines on which few GPUs work."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.base.text import counted
from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

BUSY, MOSTLY_IDLE = 5.0, 50.0  # per cent
STRONG, SUPPORTING, HINTING = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["hinting"]
_NEAR = ("PIX", "PXB")
_FAR = ("SYS", "NODE", "PHB")


Listed = tuple[str, int, Event]


def _lists_of_hosts(facts: Facts) -> list[list[Listed]]:
    """The lists of hosts, in a file or on the command line: (host, slots, its line). Lines of a file that follow each other are one list."""
    lists: list[list[Listed]] = []
    for event in facts.of("hostfile_row"):
        row = (event.fields["host"] or "", int(event.fields["slots"] or 0), event)
        last = lists[-1][-1][2] if lists else None
        if last and (last.file, last.line + 1) == (event.file, event.line):
            lists[-1].append(row)
        elif not event.quoted:
            lists.append([row])
    for event in facts.of("hosts_on_command_line"):
        parts = [one.rpartition(":") for one in (event.fields["value"] or "").split(",")]
        lists.append([(name, int(slots), event) for name, _, slots in parts if name and slots.isdigit()])
    return lists


def list_of_hosts_is_uneven(facts: Facts) -> Iterator[Evidence]:
    """A list of hosts has a host twice, or hosts with different numbers of ranks: programs that expect one number of GPUs per node hang."""
    for listed in _lists_of_hosts(facts):
        by_host: dict[str, Event] = {}
        for host, _, event in listed:
            if host in by_host:
                yield Evidence("launch_mismatch", STRONG, f"{host} is twice in the list of hosts", (by_host[host], event), "host-twice")
                return
            by_host[host] = event
        if len({slots for _, slots, _ in listed}) > 1:
            first, other = listed[0], next(row for row in listed if row[1] != listed[0][1])
            wrong = [event for event in facts.events if event.signature.kind in ("error", "symptom") and not event.quoted]
            why = f"{first[0]} takes {counted(first[1], 'rank')} and {other[0]} takes {other[1]}"
            yield Evidence("launch_mismatch", STRONG - 0.4 if wrong else HINTING, why, (first[2], other[2]), "uneven-hosts")
            return


def host_of_the_list_is_missing(facts: Facts) -> Iterator[Evidence]:
    """Ranks hang or are missing, and a host of the list prints nothing although others do."""
    listed = {host: event for rows in _lists_of_hosts(facts) for host, _, event in rows}
    heard = {event.prefix.host.split(".")[0] for event in facts.events if event.prefix.host}
    silent = [host for host in listed if host.split(".")[0] not in heard]
    if heard & {host.split(".")[0] for host in listed} and len(silent) == 1 and len(listed) > 2 and hang_signs(facts):
        why = f"{silent[0]} is in the list of hosts and prints nothing, and the others wait"
        yield Evidence("launch_mismatch", SUPPORTING + 0.5, why, (listed[silent[0]], hang_signs(facts)[0]), "listed-and-silent")


def ranks_share_a_core(facts: Facts) -> Iterator[Evidence]:
    """Several processes are bound to the same single CPU, or a slow job's processes are bound to one CPU each."""
    bound = [(_core(event), event) for event in facts.of("cpu_binding") if not event.quoted]
    by_core: dict[str, list[Event]] = {}
    for core, event in bound:
        if core:
            by_core.setdefault(core, []).append(event)
    shared = next((events for events in by_core.values() if len(events) > 1), None)
    if shared and len({event.text for event in shared}) > 1:
        yield Evidence("cpu_affinity", STRONG, "several processes are bound to one and the same CPU", tuple(shared[:2]), "same-core")
    elif by_core and (facts.of("slow_told") or hang_signs(facts)):
        first = next(iter(by_core.values()))[0]
        yield Evidence("cpu_affinity", SUPPORTING, "all threads of a process are bound to one CPU, and the job is slow or hangs", (first,), "one-core")


def _core(event: Event) -> str:
    """A key for the CPU; "" for a mask of several CPUs."""
    for name in ("mpi", "list", "own", "allowed", "phys"):
        if value := event.fields[name]:
            return value
    mask = event.fields["mask"] or (event.fields["slurm"] or "")[2:]
    number = int(mask, 16) if mask else 0
    return str(number.bit_length() - 1) if number and number & (number - 1) == 0 else ""


def versions_of_hosts_differ(facts: Facts) -> Iterator[Evidence]:
    """Hosts print one version each, and the versions differ."""
    by_name: dict[str, dict[str, Event]] = {}
    hosts: dict[str, set[str]] = {}
    for event in facts.of("version_of_host"):
        name = event.fields["name"] or "it"
        by_name.setdefault(name, {}).setdefault(event.fields["value"] or "", event)
        hosts.setdefault(name, set()).add(event.fields["host"] or "")
    for name, by_value in by_name.items():
        if len(by_value) > 1 and len({event.fields["host"] for event in by_value.values()}) > 1:
            first, other = list(by_value.values())[:2]
            why = f"{name} is {first.fields['value']} on {first.fields['host']} and {other.fields['value']} on {other.fields['host']}"
            yield Evidence("software_versions_differ", STRONG, why, (first, other), "versions-of-hosts")
            return


def few_gpus_work_and_more_do_not(facts: Facts) -> Iterator[Evidence]:
    """A job works with few GPUs and hangs with more, and the matrix shows that some GPUs are close and others are beyond a switch or a processor."""
    reported, signs = facts.of("fewer_gpus_work"), hang_signs(facts)
    ways = {word for event in facts.of("topology") for word in (event.fields["value"] or "").split()}
    if reported and signs and ways & set(_FAR) and (ways & set(_NEAR) or any(way[:2] == "NV" and way[2:].isdigit() for way in ways)):
        why = "few GPUs work together and more hang, and the GPUs are not all equally near to each other"
        yield Evidence("acs_iommu", STRONG - 0.4, why, (reported[0], facts.of("topology")[0], signs[0]), "few-gpus-and-topology")


def module_missing_and_no_cuda(facts: Facts) -> Iterator[Evidence]:
    """The module nvidia-uvm is not loaded, and CUDA does not start."""
    missing, failed = facts.of("uvm_missing"), [event for event in (*facts.of("no_gpu"), *facts.of("crash")) if not event.quoted]
    if missing and failed:
        why = "a kernel module of the driver is not loaded, and CUDA does not start"
        yield Evidence("kernel_module_not_loaded", WEIGHTS["decisive"], why, (missing[0], failed[0]), "module-missing-and-no-cuda")


def shares_of_data_differ(facts: Facts) -> Iterator[Evidence]:
    """Ranks have different amounts of data, or somebody reports that, and the job hangs, or a peer is gone, after it had made steps. One rank has no more
    data when the others continue: they wait for it, or find that it has ended.
    """
    signs = hang_signs(facts) or [event for event in facts.of("peer_gone") if not event.quoted]
    if not signs:
        return
    counts = {event.fields["count"] or event.fields["count2"]: event for event in facts.of("rank_batches")}
    ranks = {event.fields["rank"] for event in counts.values()}
    if len(counts) > 1 and len(ranks) > 1:
        why = f"ranks have unlike amounts of data: {' and '.join(sorted(map(str, counts))[:3])}"
        yield from _uneven(STRONG + 1, why, (*list(counts.values())[:2], signs[0]))
    elif facts.of("uneven_data") and (facts.of("training_step") or facts.of("bar") or any((one.seq or 0) > 50 for one in facts.timeouts)):
        why = "the ranks' shares of the data may be of different lengths, and the job hangs after it had made steps"
        yield from _uneven(STRONG - 0.4, why, (facts.of("uneven_data")[0], signs[0]))


def _uneven(weight: float, why: str, events: tuple[Event, ...]) -> Iterator[Evidence]:
    yield Evidence("rank_desync_app", weight, why, events, "uneven-data")
    yield Evidence("watchdog_timeout_too_short", -SUPPORTING, why, events[:1], "uneven-data")


def module_built_for_another_kernel(facts: Facts) -> Iterator[Evidence]:
    """dkms lists the driver's module for other kernels than the one that runs: the kernel was replaced and the module was not built again."""
    built, running = facts.of("module_built_for"), facts.of("running_kernel")
    kernels = {event.fields["kernel"] for event in built}
    if built and running and not kernels & {event.fields["kernel"] for event in running}:
        why = f"the driver's module was built for {built[0].fields['kernel']}, and {running[0].fields['kernel']} runs"
        yield Evidence("kernel_module_not_loaded", STRONG + 1, why, (built[0], running[0]), "built-for-another-kernel")
        yield Evidence("version_mismatch_driver_library", -SUPPORTING, why, (built[0],), "built-for-another-kernel")


def one_cpu_is_busy_and_the_others_idle(facts: Facts) -> Iterator[Evidence]:
    """mpstat shows one CPU without idle time while the machine as a whole is idle: all threads are bound to that CPU."""
    idle = {event.fields["cpu"]: (float(event.fields["idle"] or 0), event) for event in facts.of("cpu_use")}
    whole = idle.pop("all", (0.0, None))[0]
    busy = [event for share, event in idle.values() if share < BUSY]
    if len(busy) == 1 and whole > MOSTLY_IDLE:
        why = f"CPU {busy[0].fields['cpu']} has no idle time, and the machine is {whole:.0f} % idle"
        yield Evidence("cpu_affinity", STRONG, why, (busy[0],), "one-busy-cpu")


def ranks_run_outside_the_list(facts: Facts) -> Iterator[Evidence]:
    """All ranks print a host that the list of hosts does not have: the launcher did not read the list."""
    listed = {host.split(".")[0]: event for rows in _lists_of_hosts(facts) for host, _, event in rows}
    used = {(event.fields["host"] or "").split(".")[0]: event for event in facts.of("rank_on_host")}
    if listed and used and not listed.keys() & used.keys():
        host, event = next(iter(used.items()))
        why = f"the ranks run on {host}, which is not in the list of hosts"
        yield Evidence("launch_mismatch", STRONG + SUPPORTING, why, (next(iter(listed.values())), event), "ranks-outside-the-list")
        yield Evidence("container_gpu_access", -STRONG, why, (event,), "ranks-outside-the-list")


def bound_and_one_cpu_for_the_loader(facts: Facts) -> Iterator[Evidence]:
    """The launcher was told to bind processes to CPUs, and a process counts only one that it may use: the binding is narrower than was meant."""
    asked = [event for event in facts.of("binding_asked") if not event.quoted]
    narrow = [event for event in facts.events if event.signature.id == "one-cpu-for-the-loader" and event.fields["cpus"] == "1"]
    if asked and narrow:
        why = "the launcher binds processes to CPUs, and a process may use one CPU only"
        yield Evidence("cpu_affinity", STRONG, why, (asked[0], narrow[0]), "bound-to-one-cpu")
