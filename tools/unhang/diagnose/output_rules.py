"""Rules over what several commands printed: limits in and out of the job, an interface that was chosen and is down, MTUs, libraries, MIG devices."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts
from unhang.diagnose.scanning import Event
from unhang.diagnose.weights import WEIGHTS

DECISIVE, STRONG, SUPPORTING = WEIGHTS["decisive"], WEIGHTS["strong"], WEIGHTS["supporting"]
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_DUPLICATE = "nccl-duplicate-gpu"
_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}  # branch by major CUDA: https://docs.nvidia.com/deploy/cuda-compatibility/


def memlock_lower_in_the_job(facts: Facts) -> Iterator[Evidence]:
    """Locked memory has no limit in a shell and a low one in the job: the shell's answer says nothing against it."""
    low, unlimited = facts.of("memlock_low"), facts.of("memlock_unlimited")
    if low and unlimited:
        yield Evidence("memlock_ulimit", DECISIVE, "locked memory is limited in the job and not in a shell", (low[0], unlimited[0]), "memlock-differs")


def chosen_interface_is_down(facts: Facts) -> Iterator[Evidence]:
    """NCCL or Gloo is told to use an interface that the machine lists as down."""
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
    """The maps of a process list two files of libnccl."""
    paths = {str(event.fields["path"]): event for event in facts.of("nccl_library_path")}
    if len(paths) > 1:
        yield Evidence("nccl_version_conflict", STRONG, f"{' and '.join(sorted(paths)[:2])} are both loaded", tuple(paths.values())[:2], "two-nccl-mapped")


def adapter_without_address(facts: Facts) -> Iterator[Evidence]:
    """An Ethernet adapter has GIDs of its link alone: its interface has no address, and RoCE reaches no other network."""
    with_address = {event.fields["device"] for event in facts.of("gid_row") if event.fields["ipv4"] or not str(event.fields["gid"]).startswith("fe80")}
    bare = [event for event in facts.of("gid_row") if event.fields["device"] not in with_address]
    if bare:
        yield Evidence("ib_misconfig", SUPPORTING, f"{bare[0].fields['device']} has no address: its interface has none", (bare[0],), "gid-without-address")


def duplicate_gpu_is_mig(facts: Facts) -> Iterator[Evidence]:
    """Ranks on two instances of one GPU look to NCCL as if they had chosen the same one."""
    duplicate = [event for event in facts.events if event.signature.id == _DUPLICATE and not event.quoted]
    if duplicate and facts.of("mig"):
        why = "the ranks are on MIG instances of one GPU, which NCCL does not join"
        yield Evidence("mig_unsupported", DECISIVE, why, (facts.of("mig")[0], duplicate[0]), "duplicate-and-mig")
        yield Evidence("rank_device_mapping", -STRONG, why, (facts.of("mig")[0],), "duplicate-and-mig")


def two_nodes_one_rank_zero(facts: Facts) -> Iterator[Evidence]:
    """Several processes of nccl-tests are rank 0 at once: each is a job of its own. One that begins after the other's end is another run."""
    zeros = {event.fields["pid"]: event for event in facts.of("test_rank") if event.fields["rank"] == "0"}
    if len(zeros) < 2:
        return
    first, *others = sorted(zeros.values(), key=lambda event: (event.file, event.line))
    ends = [event.line for event in facts.of("average_bandwidth") if event.file == first.file and event.line > first.line]
    alike = [event for event in others if event.file == first.file and event.line < min(ends, default=event.line + 1)]
    if alike:
        why = f"{1 + len(alike)} processes are each rank 0: launched as jobs of their own, or built without MPI"
        yield Evidence("launch_mismatch", STRONG, why, (first, alike[0]), "all-rank-zero")


def driver_below_what_torch_needs(facts: Facts) -> Iterator[Evidence]:
    """The driver is of a branch that knows no CUDA of the major release that PyTorch was built with."""
    for built in facts.of("torch_cuda"):
        least = _LEAST_DRIVER.get(int((built.fields["value"] or "0").split(".")[0]), 0)
        for driver in facts.of("driver_version"):
            if int((driver.fields["value"] or "999").split(".")[0]) < least:
                why = f"PyTorch wants CUDA {built.fields['value']}, for which the driver is to be {least} at least, and it is {driver.fields['value']}"
                yield Evidence("cuda_driver_too_old", SUPPORTING + 1, why, (built, driver), "driver-below-torch")
                return
