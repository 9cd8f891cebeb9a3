"""Rules that speak against a cause: each keeps a sound machine from an alarm, or an answer from a wrong error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

LARGE_BUFFER = 128 * 2**20  # bytes; NCCL's default is 4 MiB
MOST_DIGITS = 19
REFUSED_FOR_RDMA = ("rdma-no-memory", "nccl-ib-memory-registration-failed")
NO_ANSWER = ("nccl-connect-timed-out", "torch-connect-no-answer", "nccl-connect-refused", "nccl-connect-no-route", "torch-client-socket-timeout")
NAME_UNKNOWN = ("master-name-unknown", "torch-address-unknown")
LEFT_TAKEN = ("memory-held-told", "memory-not-given-back-reported")
_ENDED_JOB = re.compile(
    r"(?i:crash|kill|abort|stop|exit|\bdie[sd]?\b|previous|earlier|restart|re-?run|ctrl|control-c|empty|\blater\b|no process|zombie|orphan|"
    r"cancel|ended|finish|quit|clos)"
)
DECISIVE, STRONG, SUPPORTING, HINTING = (WEIGHTS[word] for word in ("decisive", "strong", "supporting", "hinting"))


def links_are_all_used(facts: Facts) -> Iterator[Evidence]:
    """Boards have more link positions than they use: if all GPUs have the same links and a bandwidth test completes, no link is missing. Keeps 3/260 silent."""
    rows = [tuple(sorted(word for word in (event.fields["value"] or "").split() if word[:2] == "NV")) for event in facts.of("topology")]
    measured = facts.of("average_bandwidth")
    if measured and rows and rows[0] and len(set(rows)) == 1 and not facts.of("xid"):
        yield Evidence("nvlink_down", -STRONG, "all GPUs reach each other over equally many links, and a bandwidth test ran", (measured[0],), "links-all-used")


def duplicate_gpu_is_mig(facts: Facts) -> Iterator[Evidence]:
    """Ranks on two MIG instances of one GPU: to NCCL they seem to use the same GPU. Keeps a documented symptom from a wrong error."""
    duplicate = [event for event in facts.events if event.signature.id == "nccl-duplicate-gpu" and not event.quoted]
    if duplicate and facts.of("mig"):
        why = "the ranks are on MIG instances of one GPU, which NCCL does not join"
        yield Evidence("mig_unsupported", DECISIVE, why, (facts.of("mig")[0], duplicate[0]), "duplicate-and-mig")
        yield Evidence("rank_device_mapping", -STRONG, why, (facts.of("mig")[0],), "duplicate-and-mig")


def name_was_found_later(facts: Facts) -> Iterator[Evidence]:
    """Names of hosts did not resolve at first, and ssh reached each of these hosts later: a launcher repeats its attempts until the hosts are there. Keeps a
    documented start of MPIJob silent.
    """
    unknown = [event for event in facts.events if event.signature.id == "master-name-unknown" and not event.quoted]
    found = [(event, later) for event in unknown for later in facts.of("ssh_reached") if _is_the_host(event, later)]
    if unknown and {event.line for event, _ in found} == {event.line for event in unknown}:
        why = f"ssh reached {found[-1][1].fields['host']} later"
        yield Evidence("dns_hostname", -STRONG, why, found[-1], "name-found-later")
        yield Evidence("wrong_interface", -SUPPORTING, why, found[-1], "name-found-later")


def name_leads_nowhere(facts: Facts) -> Iterator[Evidence]:
    """A host's name does not resolve: neither a firewall nor the choice of an interface does that. Keeps report torchx-541 to its cause."""
    if unknown := [event for event in facts.events if event.signature.id in NAME_UNKNOWN and not event.quoted]:
        why = "the name does not resolve, which comes before any connection"
        yield Evidence("firewall_ports", -STRONG, why, (unknown[0],), "name-leads-nowhere")
        yield Evidence("wrong_interface", -STRONG, why, (unknown[0],), "name-leads-nowhere")


def ranks_had_met_before(facts: Facts) -> Iterator[Evidence]:
    """The store's barrier of a second or later group waits: all ranks have met for the first one, so the missing rank runs, and does something else."""
    later = [event for event in facts.of("store_count") if int(event.fields.get("group") or 0) > 1 and not event.quoted]
    if later:
        why = f"all ranks had met before, at barrier 1: the one that is missing at barrier {later[0].fields['group']} runs, and is elsewhere in its own code"
        for cause in ("launch_mismatch", "firewall_ports"):
            yield Evidence(cause, -STRONG, why, (later[0],), "met-before")
        yield Evidence("slow_rank_or_io", HINTING, why, (later[0],), "met-before")


def more_joined_than_the_world(facts: Facts) -> Iterator[Evidence]:
    """The store has counted more workers than the job has: those of an earlier run are among them, so none is missing. Shown by report powersgd-21."""
    counted = [event for event in facts.of("store_count") if int(event.fields["joined"] or 0) > int(event.fields["size"] or 0) > 0 and not event.quoted]
    if counted:
        fields = counted[0].fields
        why = f"{fields['joined']} workers have joined a store for {fields['size']}: those of an earlier run are counted too"
        yield Evidence("stale_store", STRONG + SUPPORTING, why, (counted[0],), "more-than-the-world")
        for cause in ("launch_mismatch", "slow_rank_or_io", "firewall_ports"):
            yield Evidence(cause, -STRONG, why, (counted[0],), "more-than-the-world")


def one_machine_needs_no_network(facts: Facts) -> Iterator[Evidence]:
    """The job is launched on one node, and no second one is told of: nothing between machines can stop it. Keeps report strands-2600 from a firewall."""
    launched = [event for event in facts.of("nnodes") if not event.quoted]
    if launched and {event.fields["value"] for event in launched} == {"1"} and not (facts.of("several_nodes") or facts.of("machines_told")):
        why = "the job runs on one machine"
        yield Evidence("firewall_ports", -STRONG, why, (launched[0],), "one-machine")
        named = [event for event in facts.of("setting") if event.fields["name"] == "MASTER_ADDR" and _is_elsewhere(event.fields["value"])]
        if named and (waits := [event for event in facts.events if event.signature.id in NO_ANSWER and not event.quoted]):
            why = f"the job runs on one machine, and waits for another address, {named[0].fields['value']}"
            yield Evidence("dns_hostname", STRONG, why, (launched[0], named[0], waits[0]), "one-machine-other-master")


def rendezvous_failed_before_any_rank(facts: Facts) -> Iterator[Evidence]:
    """The exception of the client of etcd is torchrun's own, from its rendezvous: no rank runs yet (pytorch-132950)."""
    raised = [event for event in facts.of("crash") if "etcd.Etcd" in event.text and not event.quoted]
    if raised:
        why = "torchrun's rendezvous raised it, before any rank was started"
        yield Evidence("rank_failed", -2 * DECISIVE, why, (raised[0],), "rendezvous-failed")


def each_task_is_a_job_of_its_own(facts: Facts) -> Iterator[Evidence]:
    """Several tasks say that they are rank 0 of 1, and the second one finds the port taken: by the first one. Keeps report hunyuan3d-184 from another job."""
    alone = [event for event in facts.of("member") if event.fields["nranks"] == "1" and not event.quoted]
    refused = [event for event in facts.events if "port_in_use" in event.signature.for_ and not event.quoted]
    if len(alone) > 1 and refused:
        why = f"{len(alone)} tasks each take themselves for the only rank, and so for the master: the launcher's variables do not reach the program"
        yield Evidence("launch_mismatch", DECISIVE, why, (*alone[:2], refused[0]), "each-task-alone")
        yield Evidence("port_in_use", -DECISIVE, why, (alone[0],), "each-task-alone")


def each_task_starts_a_launcher(facts: Facts) -> Iterator[Evidence]:
    """Slurm starts several tasks on a node, each of which starts a launcher with several ranks: two ranks on one GPU only follow from it."""
    tasks = [event for event in facts.of("tasks_per_node") if int(event.fields["value"] or 1) > 1 and not event.quoted]
    if tasks and (started := facts.of("launcher_in_a_task")) and (several := facts.of("several_local_ranks")):
        why = f"{tasks[0].fields['value']} tasks on each node, and each starts all ranks of its node"
        yield Evidence("launch_mismatch", DECISIVE, why, (tasks[0], started[0], several[0]), "launcher-in-each-task")
        yield Evidence("rank_device_mapping", -DECISIVE, why, (tasks[0],), "launcher-in-each-task")
        yield Evidence("port_in_use", -STRONG, why, (tasks[0],), "launcher-in-each-task")


def local_rank_is_given_as_rank(facts: Facts) -> Iterator[Evidence]:
    """The number of a rank on its node is given as its number in the job, which runs on several nodes: each node has the same ranks, and others never come."""
    given = [event for event in facts.of("local_rank_as_rank") if not event.quoted]
    if given and facts.of("several_nodes"):
        why = "each node gives its ranks the numbers from 0 again, so some are there twice and the others never come"
        yield Evidence("launch_mismatch", STRONG, why, (given[0], facts.of("several_nodes")[0]), "local-rank-as-rank")


def memory_of_the_host_is_free(facts: Facts) -> Iterator[Evidence]:
    """An allocation on the host failed, and somebody saw that much memory is free: another limit refused it. An end by the kernel's OOM killer stands."""
    failed = [event for event in facts.events if event.signature.id == "host-allocation-failed" and not event.quoted]
    if failed and (free := facts.of("host_memory_free")):
        yield Evidence("oom", -DECISIVE, "much memory of the host is free", (free[0],), "host-memory-free")


def locked_memory_has_no_limit(facts: Facts) -> Iterator[Evidence]:
    """Memory for RDMA was refused, and a report says that as much as there is may be locked. Limits of open files stand."""
    refused = [event for event in facts.events if event.signature.id in REFUSED_FOR_RDMA and not event.quoted]
    if refused and not facts.has("too-many-open-files") and (told := facts.of("memlock_unlimited_told")):
        yield Evidence("memlock_ulimit", -DECISIVE, "locked memory has no limit where the job runs", (told[0],), "locked-memory-unlimited")


def job_itself_takes_the_port(facts: Facts) -> Iterator[Evidence]:
    """The port is in use whichever is chosen, or nothing else uses it: the job binds it twice, or several processes start the store, each as the first rank."""
    refused = [event for event in facts.events if "port_in_use" in event.signature.for_ and not event.quoted]
    told = [event for name in ("port_changed_in_vain", "port_free_told") for event in facts.of(name) if not event.quoted]
    launched = [*facts.of("several_local_ranks"), *facts.of("launch_shape")]
    if refused and told and launched and (bound := facts.of("tcp_init")):
        why = "no other job uses the port: the launcher serves it already, and the program's init_method binds it again"
        yield Evidence("port_in_use", STRONG, why, (told[0], bound[0], launched[0]), "port-bound-twice")
    elif refused and (vain := facts.of("port_changed_in_vain")):
        why = "another port is in use too, so several processes of the job itself take it: the launcher starts each of them as the first rank"
        yield Evidence("launch_mismatch", STRONG, why, (vain[0], refused[0]), "job-takes-the-port")
        yield Evidence("port_in_use", -STRONG, "another port does not help", (vain[0],), "job-takes-the-port")
    elif refused and told:
        yield Evidence("port_in_use", SUPPORTING, "nothing else uses the port, so the job binds it twice", (told[0],), "port-taken-by-the-job")


def interface_was_named_in_vain(facts: Facts) -> Iterator[Evidence]:
    """Somebody named the interface, and it did not help (biggraph-99). Lines that show an address which nobody reaches stand."""
    if told := facts.of("interface_tried"):
        yield Evidence("wrong_interface", -STRONG, "naming the interface did not help", (told[0],), "interface-tried")


def leftovers_need_an_earlier_job(facts: Facts) -> Iterator[Evidence]:
    """Somebody tells that memory stays taken, and of no job that has ended: the processes on the GPUs are those of this one (verl-2445)."""
    told = [event for event in facts.events if event.signature.id in LEFT_TAKEN and not event.quoted]
    if told and not any(_ENDED_JOB.search(event.text) for event in told):
        why = "no job that has ended before is told of, so the processes on the GPUs are this one's"
        yield Evidence("orphan_processes_hold_gpu", -DECISIVE, why, (told[0],), "no-earlier-job")


def buffers_are_too_large(facts: Facts) -> Iterator[Evidence]:
    """Memory for RDMA was refused, and NCCL_BUFFSIZE asks for many times the default of 4 MiB for each channel and peer."""
    refused = [event for event in facts.events if event.signature.id in REFUSED_FOR_RDMA and not event.quoted]
    large = [event for event in facts.of("setting") if event.fields["name"] == "NCCL_BUFFSIZE" and _number(event.fields["value"]) >= LARGE_BUFFER]
    if refused and large:
        why = f"NCCL_BUFFSIZE is {large[0].fields['value']}, the default is 4194304, and memory for RDMA was refused"
        yield Evidence("env_var_misconfig", STRONG, why, (large[0], refused[0]), "buffers-too-large")


def _is_elsewhere(address: str | None) -> bool:
    """Whether an address is a number of another machine than the own one, as far as it shows."""
    text = (address or "").strip("\"'")
    return bool(re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", text)) and not text.startswith("127.")


def _number(value: str | None) -> int:
    text = (value or "").strip("\"'")
    return int(text) if text.isdecimal() and len(text) < MOST_DIGITS else 0


def _is_the_host(unknown: Event, later: Event) -> bool:
    return later.file == unknown.file and later.line > unknown.line and str(unknown.fields["host"] or "").rstrip(":") == later.fields["host"]
