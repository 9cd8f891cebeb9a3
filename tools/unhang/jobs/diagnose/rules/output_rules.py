"""Rules over the output of several commands: limits in and out of the job, a chosen interface that is down, MTUs, libraries, MIG devices."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_DUPLICATE = "nccl-duplicate-gpu"
_NO_SUCH_DEVICE = ("torch-invalid-device-ordinal", "nccl-device-ordinal", "program-invalid-device", "torch-first-device-not-there")
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}  # branch by major CUDA: https://docs.nvidia.com/deploy/cuda-compatibility/


def memlock_lower_in_the_job(facts: Facts) -> Iterator[Evidence]:
    """Locked memory is unlimited in a shell and limited in the job: the shell's value is no evidence against a low limit."""
    low, unlimited = facts.of("memlock_low"), facts.of("memlock_unlimited")
    if low and unlimited:
        yield Evidence("memlock_ulimit", DECISIVE, "locked memory is limited in the job and not in a shell", (low[0], unlimited[0]), "memlock-differs")


def chosen_interface_is_down(facts: Facts) -> Iterator[Evidence]:
    """NCCL or Gloo is configured to use an interface that the machine lists as down."""
    down = {str(event.fields["interface"]): event for event in facts.of("interface_down")}
    for event in facts.of("setting"):
        names = (event.fields["value"] or "").strip("\"'=").split(",") if event.fields["name"] in _INTERFACES else []
        if found := next((one for one in names if one in down), None):
            yield Evidence("wrong_interface", STRONG, f"{event.fields['name']} names {found}, which is down", (event, down[found]), "chosen-and-down")
            return


def interfaces_of_unlike_mtu(facts: Facts) -> Iterator[Evidence]:
    """The same interface has another MTU on another node."""
    seen: dict[str, Event] = {}
    for event in facts.of("link_mtu"):
        first = seen.setdefault(str(event.fields["interface"]), event)
        if first.fields["mtu"] != event.fields["mtu"]:
            why = f"{event.fields['interface']} has MTU {first.fields['mtu']} in one place and {event.fields['mtu']} in another"
            yield Evidence("mtu_mismatch", STRONG, why, (first, event), "unlike-mtu")
            return


def one_process_has_two_nccl(facts: Facts) -> Iterator[Evidence]:
    """The memory maps of a process contain two files of libnccl."""
    paths = {str(event.fields["path"]): event for event in facts.of("nccl_library_path")}
    if len(paths) > 1:
        yield Evidence("nccl_version_conflict", STRONG, f"{' and '.join(sorted(paths)[:2])} are both loaded", tuple(paths.values())[:2], "two-nccl-mapped")


def adapter_without_address(facts: Facts) -> Iterator[Evidence]:
    """An Ethernet adapter has only link-local GIDs: its interface has no address, and RoCE reaches no other network."""
    with_address = {event.fields["device"] for event in facts.of("gid_row") if event.fields["ipv4"] or not str(event.fields["gid"]).startswith("fe80")}
    bare = [event for event in facts.of("gid_row") if event.fields["device"] not in with_address]
    if bare:
        yield Evidence("ib_misconfig", SUPPORTING, f"{bare[0].fields['device']} has no address: its interface has none", (bare[0],), "gid-without-address")


def duplicate_gpu_is_mig(facts: Facts) -> Iterator[Evidence]:
    """Ranks on two MIG instances of one GPU: to NCCL they seem to use the same GPU."""
    duplicate = [event for event in facts.events if event.signature.id == _DUPLICATE and not event.quoted]
    if duplicate and facts.of("mig"):
        why = "the ranks are on MIG instances of one GPU, which NCCL does not join"
        yield Evidence("mig_unsupported", DECISIVE, why, (facts.of("mig")[0], duplicate[0]), "duplicate-and-mig")
        yield Evidence("rank_device_mapping", -STRONG, why, (facts.of("mig")[0],), "duplicate-and-mig")


def device_of_a_mig_job_is_missing(facts: Facts) -> Iterator[Evidence]:
    """A process asks for a second device on a machine with MIG: it sees only one instance, even if the launcher counts more."""
    asked = [event for event in facts.events if event.signature.id in _NO_SUCH_DEVICE and not event.quoted]
    if asked and facts.of("mig"):
        why = "a process sees one MIG instance at most, and another device is asked for"
        yield Evidence("mig_unsupported", STRONG, why, (facts.of("mig")[0], asked[0]), "ordinal-and-mig")
        yield Evidence("rank_device_mapping", -SUPPORTING, why, (facts.of("mig")[0],), "ordinal-and-mig")


def containers_have_a_larger_mtu(facts: Facts) -> Iterator[Evidence]:
    """Containers of several hosts use a network whose packets are larger than those of the hosts' interfaces."""
    hosts = [event for event in facts.of("link_mtu") if event.fields["mtu"]]
    several = len(facts.hosts) > 1 or facts.of("several_nodes")
    if not hosts or not several or facts.of("training_step"):
        return
    largest = max(hosts, key=lambda event: int(event.fields["mtu"] or 0))
    for event in facts.of("bridge_mtu"):
        if event.file == largest.file and int(event.fields["mtu"] or 0) > int(largest.fields["mtu"] or 0):
            why = f"{event.fields['interface']} has MTU {event.fields['mtu']} and {largest.fields['interface']} of the host only {largest.fields['mtu']}"
            yield Evidence("mtu_mismatch", STRONG, why, (event, largest), "containers-larger-mtu")
            return


def listens_elsewhere(facts: Facts) -> Iterator[Evidence]:
    """A process of the job listens in another network than the one that NCCL was given: the program chose its address by itself."""
    given = {str(event.fields["address"]): event for event in facts.of("bootstrap") if event.fields["address"]}
    for event in () if facts.of("training_step") else facts.of("python_listens"):
        address = str(event.fields["address"])
        if given and address not in given and not address.startswith(("127.", "0.")):
            why = f"a process of the job listens at {address}, and NCCL uses {next(iter(given))}"
            yield Evidence("wrong_interface", STRONG - 0.5, why, (event, next(iter(given.values()))), "listens-elsewhere")
            return


def two_nodes_one_rank_zero(facts: Facts) -> Iterator[Evidence]:
    """Several processes of nccl-tests are rank 0 at once: each is a job of its own. One that begins after the other's end is another run."""
    zeros = {event.fields["pid"]: event for event in facts.of("test_rank") if event.fields["rank"] == "0"}
    if len(zeros) < 2:
        return
    first, *others = sorted(zeros.values(), key=lambda event: (event.file, event.line))
    ends = [event.line for event in facts.of("average_bandwidth") if event.file == first.file and event.line > first.line]
    alike = [event for event in others if event.file == first.file and event.line < min(ends, default=event.line + 1)]
    if alike:
        why = f"{1 + len(alike)} processes are each rank 0: they were launched as separate jobs, or built without MPI"
        yield Evidence("launch_mismatch", STRONG, why, (first, alike[0]), "all-rank-zero")


def driver_below_what_torch_needs(facts: Facts) -> Iterator[Evidence]:
    """The driver's branch does not support the major release of CUDA with which PyTorch was built."""
    for built in facts.of("torch_cuda"):
        least = _LEAST_DRIVER.get(int((built.fields["value"] or "0").split(".")[0]), 0)
        for driver in facts.of("driver_version"):
            if int((driver.fields["value"] or "999").split(".")[0]) < least:
                why = f"PyTorch needs CUDA {built.fields['value']}, which requires driver {least} or newer, and the driver is {driver.fields['value']}"
                yield Evidence("cuda_driver_too_old", SUPPORTING + 1, why, (built, driver), "driver-below-torch")
                return


def peer_to_peer_is_slower_than_none(facts: Facts) -> Iterator[Evidence]:
    """p2pBandwidthLatencyTest: the copy from the first GPU to the second takes twice as long with peer-to-peer as without."""
    rates = {str(event.fields["state"]): event for event in facts.of("p2p_first_row")}
    if len(rates) == 2 and 2 * float(rates["Enabled"].fields["rate"] or 0) < float(rates["Disabled"].fields["rate"] or 0):
        on, off = rates["Enabled"], rates["Disabled"]
        why = f"between two GPUs peer-to-peer reaches {on.fields['rate']} GB/s, and copies through the host {off.fields['rate']} GB/s"
        yield Evidence("acs_iommu", STRONG, why, (on, off), "p2p-slower-than-none")
