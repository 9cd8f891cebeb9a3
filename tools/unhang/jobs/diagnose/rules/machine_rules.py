"""Rules over several facts about machines: peer-to-peer, drivers, libraries, links, interfaces, memory."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs, near_end
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
FLAPS = 3
COMPILERS = ("cicc", "ptxas", "nvcc", "cc1plus", "cudafe++", "ninja")
MANY_AER = 4
UNREACHABLE = ("172.17.", "172.18.", "169.254.", "127.", "192.168.122.", "10.88.")
BRIDGES = ("docker", "virbr", "lo", "veth", "br-", "cni", "cilium", "flannel", "podman")


def multicast_went_silent(facts: Facts) -> Iterator[Evidence]:
    """NVLS memory is being set up, and nothing follows."""
    setup = facts.of("nvls_setup")
    if setup and not facts.of("init_complete") and near_end(facts, setup[-1]):
        yield Evidence("fabric_manager_down", STRONG, "initialisation stops while NVLS multicast memory is set up", (setup[-1],), "nvls-silent")


def iommu_refused_and_hang(facts: Facts) -> Iterator[Evidence]:
    """The kernel log has accesses that the IOMMU refused, and the job hung."""
    refused, signs = facts.of("iommu_fault"), hang_signs(facts)
    if refused and signs:
        yield Evidence("acs_iommu", STRONG, "the IOMMU refused accesses of a device, and the job hung", (refused[0], signs[0]), "iommu-refused")


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
    loaded = {_nccl_release(event.fields["value"] or ""): event for event in facts.of("nccl_version") if event.signature.id == "fact-nccl-version"}
    if len(loaded) > 1 and not _separate_runs(facts, list(loaded.values())):
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


def torch_names_another_nccl(facts: Facts) -> Iterator[Evidence]:
    """PyTorch says which NCCL it was built with, and NCCL's own line names another release: the loader found a different file."""
    loaded = {_nccl_release(event.fields["value"] or ""): event for event in facts.of("nccl_version") if event.signature.id == "fact-nccl-version"}
    for event in facts.of("torch_nccl"):
        built = f"{event.fields['major']}.{event.fields['minor']}.{event.fields['patch']}"
        if loaded and built not in loaded:
            other, line = next(iter(loaded.items()))
            yield Evidence(
                "nccl_version_conflict", STRONG, f"PyTorch was built with NCCL {built}, and {other} is loaded", (event, line), "torch-names-another-nccl"
            )
            return


def _nccl_release(value: str) -> str:
    """2.10.3 for the 21.0.3 that PyTorch 1.10 to 1.12 print, because they decode NCCL's number 21003 as one of releases before 2.9."""
    parts = value.split(".")
    if len(parts) != 3 or int(parts[0]) < 20:
        return value
    code = int(parts[0]) * 1000 + int(parts[1]) * 100 + int(parts[2])
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def _separate_runs(facts: Facts, versions: list[Event]) -> bool:
    """Whether the job was started again between one version and the next: then somebody tried several versions."""
    starts = [event for event in facts.of("launch_shape") if event.file == versions[0].file]
    return all(any(one.line < start.line < other.line for start in starts) for one, other in itertools.pairwise(versions))


def small_shared_memory(facts: Facts) -> Iterator[Evidence]:
    for event in facts.of("shm"):
        size, percent = _bytes(event.fields["size"] or ""), int(event.fields["percent"] or 0)
        if percent >= 95 or (percent >= 80 and 0 < size <= 64 << 20):
            yield Evidence("shm_too_small", STRONG, f"shared memory is {percent} % full", (event,), "shm-full")
        elif size and size <= 64 << 20:
            yield Evidence("shm_too_small", SUPPORTING, f"shared memory has {event.fields['size']}", (event,), "shm-small")


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
    """A port that is not up matters only if the network fails or the job hangs."""
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
                "wrong_interface",
                SUPPORTING + 1,
                f"NCCL's bootstrap uses {name} {address}, which other machines cannot reach",
                (event,),
                "bootstrap-unreachable",
            )
            return


def gpudirect_wanted_and_off(facts: Facts) -> Iterator[Evidence]:
    off = facts.of("gdr_disabled")
    wanted = [event for event in facts.of("setting") if (event.fields["name"] or "").startswith("NCCL_NET_GDR")]
    wanted += list(facts.of("peermem_loaded"))
    if off and wanted:
        yield Evidence("gdr_peermem_missing", STRONG, "GPUDirect RDMA was requested, and NCCL reports it as disabled", (wanted[0], off[0]), "gdr-wanted")
    elif off and facts.of("slow_told"):
        yield Evidence("gdr_peermem_missing", STRONG, "GPUDirect RDMA is off and the job is slow", (off[0], facts.of("slow_told")[0]), "gdr-slow")


def gpudirect_on_some_hosts(facts: Facts) -> Iterator[Evidence]:
    """Some hosts use GPUDirect and others, with the same kind of adapter, do not."""
    direct = {event.prefix.host for event in facts.of("gdr_enabled") if "GDRDMA" in event.text}
    # Only receives count: if reading GPU memory is slow, NCCL sends without GPUDirect on purpose.
    detour = [event for event in facts.of("transport") if "[receive] via NET/IB" in event.text and "GDRDMA" not in event.text]
    alone = [event for event in detour if event.prefix.host not in direct]
    if direct and alone:
        yield Evidence(
            "gdr_peermem_missing", STRONG, f"{alone[0].prefix.host} does not use GPUDirect RDMA and other hosts do", (alone[0],), "gdr-on-some-hosts"
        )
    elif direct and not facts.of("gdr_disabled"):
        yield Evidence("gdr_peermem_missing", -STRONG, "GPUDirect RDMA is in use", tuple(facts.of("gdr_enabled")[:1]), "gdr-in-use")


def fabric_of_nvswitch_board(facts: Facts) -> Iterator[Evidence]:
    failed = [event for event in facts.of("fabric_manager_failed") if not event.quoted]
    switches = [event for event in facts.events if "nvswitch" in event.text.lower()]
    if failed and (switches or facts.of("nvls")) and not facts.of("fabric_manager_not_needed"):
        yield Evidence("fabric_manager_down", STRONG, "fabric manager failed on a board with NVSwitches", (failed[0],), "fm-failed-with-switches")


def fabric_waits_for_another_manager(facts: Facts) -> Iterator[Evidence]:
    """Fabric manager finds no NVSwitch of the older kind, and a GPU waits for a fabric: its switches need the subnet manager that starts fabric manager."""
    waiting = [event for event in facts.events if event.signature.id == "fabric-state-pending" and not event.quoted]
    none = facts.of("fabric_manager_not_needed")
    if waiting and none:
        why = "fabric manager found nothing to do, and a GPU still waits for its fabric, so the board has switches"
        yield Evidence("fabric_manager_down", WEIGHTS["decisive"] + SUPPORTING, why, (waiting[0], none[0]), "fm-nothing-to-do-and-waiting")


def one_gpu_has_fewer_links(facts: Facts) -> Iterator[Evidence]:
    """In nvidia-smi topo -m most GPUs reach all others over NVLink, and one does not."""
    rows = [(event, sum(word.startswith("NV") and word[2:].isdigit() for word in (event.fields["value"] or "").split())) for event in facts.of("topology")]
    most = max((count for _, count in rows), default=0)
    fewer = [event for event, count in rows if count < most]
    if most >= 3 and len(rows) >= 4 and 0 < len(fewer) <= len(rows) // 4:
        why = f"GPU{fewer[0].fields['index']} has fewer NVLink peers than the others"
        yield Evidence("nvlink_down", STRONG, why, (fewer[0],), "topo-fewer-links")


def links_are_all_used(facts: Facts) -> Iterator[Evidence]:
    """Boards have more link positions than they use: if all GPUs have the same links and a bandwidth test completes, no link is missing."""
    rows = [tuple(sorted(word for word in (event.fields["value"] or "").split() if word[:2] == "NV")) for event in facts.of("topology")]
    measured = facts.of("average_bandwidth")
    if measured and rows and rows[0] and len(set(rows)) == 1 and not facts.of("xid"):
        yield Evidence("nvlink_down", -STRONG, "all GPUs reach each other over equally many links, and a bandwidth test ran", (measured[0],), "links-all-used")


def torch_newer_than_driver(facts: Facts) -> Iterator[Evidence]:
    """PyTorch is built for a newer major release of CUDA than the driver supports, and CUDA does not start."""
    built = [(int(found[1]), event) for event in facts.of("torch_version") if (found := re.search(r"\+cu(\d\d)\d", event.fields["value"] or ""))]
    known = [(int((event.fields["value"] or "0").split(".")[0]), event) for event in facts.of("cuda_version")]
    failed = [event for event in (*facts.of("no_gpu"), *facts.of("crash")) if not event.quoted]
    if built and known and failed and max(number for number, _ in built) > min(number for number, _ in known):
        why = f"PyTorch needs CUDA {max(number for number, _ in built)}, the driver supports {min(number for number, _ in known)}"
        yield Evidence("cuda_driver_too_old", STRONG, why, (built[0][1], known[0][1], failed[0]), "torch-newer-than-driver")


def _bytes(text: str) -> int:
    """64M as bytes; 0 for a text that is no size. df without -h counts in KiB."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number = text.rstrip("KMGT")
    if not number.replace(".", "", 1).isdigit():
        return 0
    return int(float(number) * units.get(text[-1:], 1 << 10))


def container_sees_no_gpu(facts: Facts) -> Iterator[Evidence]:
    """No GPU is visible, and the program runs in a container."""
    unseen = [event for event in facts.of("no_gpu") if not event.quoted]
    if unseen and facts.of("container"):
        yield Evidence(
            "container_gpu_access", STRONG, "no GPU is seen, and this runs in a container", (unseen[0], facts.of("container")[0]), "container-no-gpu"
        )


def compat_libraries_and_refused(facts: Facts) -> Iterator[Evidence]:
    """Driver and CUDA do not fit, and CUDA's libraries for older drivers are in use: these help on data centre GPUs and some branches only."""
    refused = [event for event in facts.events if event.signature.id == "driver-dso-mismatch" and not event.quoted]
    if refused and facts.of("cuda_compat"):
        why = "CUDA's compatibility libraries are in use, and this driver is too old for them"
        yield Evidence("cuda_driver_too_old", WEIGHTS["decisive"], why, (refused[0], facts.of("cuda_compat")[0]), "compat-refused")


def build_was_interrupted(facts: Facts) -> Iterator[Evidence]:
    """The process was building an extension when it was interrupted or its time limit expired."""
    frames = [event for event in facts.of("build_frame") if not event.quoted]
    ended = [*facts.of("interrupted"), *hang_signs(facts)]
    if frames and ended:
        yield Evidence(
            "fused_kernel_build", STRONG, "the process was in a build of an extension when it was ended", (frames[-1], ended[0]), "build-interrupted"
        )


def some_gpus_idle(facts: Facts) -> Iterator[Evidence]:
    """Some GPUs of a job are at full load and one does nothing: its rank has ended, or waits elsewhere."""
    loads = [(int(event.fields["load"] or 0), event) for event in facts.of("utilisation")]
    idle = [event for load, event in loads if load == 0]
    busy = [event for load, event in loads if load >= 95]
    if idle and len(busy) > len(idle):
        yield Evidence("rank_desync_app", SUPPORTING + 0.5, "one GPU is idle while the others wait at full load", (idle[0], busy[0]), "one-gpu-idle")
        yield Evidence("slow_rank_or_io", SUPPORTING - 0.5, "one GPU is idle while the others wait at full load", (idle[0],), "one-gpu-idle")


def compiler_was_killed(facts: Facts) -> Iterator[Evidence]:
    """The kernel killed the compiler of an extension: too many compile jobs at once, and their lock is left behind."""
    killed = [event for event in facts.events if event.signature.id == "kernel-oom-kill" and (event.fields.get("task") or "") in COMPILERS]
    if killed and facts.of("build_start"):
        yield Evidence(
            "fused_kernel_build",
            WEIGHTS["decisive"] + 1,
            "the compiler of an extension ran out of memory",
            (killed[0], facts.of("build_start")[-1]),
            "compiler-killed",
        )


def waits_inside_nccl(facts: Facts) -> Iterator[Evidence]:
    """The job had worked for a while, then a thread waits inside NCCL's own launch, which other releases do not do."""
    frames = [event for event in facts.of("nccl_frame") if not event.quoted]
    signs = hang_signs(facts)
    if frames and signs:
        yield Evidence("nccl_bug", STRONG - 0.4, f"a thread waits in {frames[0].fields['function']}", (frames[0], signs[0]), "waits-inside-nccl")
