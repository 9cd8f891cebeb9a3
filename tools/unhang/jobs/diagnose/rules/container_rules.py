"""Rules over what a container or a virtual machine has, and over libraries that stand between programs and CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, HINTING = WEIGHTS["strong"], WEIGHTS["hinting"]
VGPU_FEATURES = {
    "url": "https://docs.nvidia.com/ai-enterprise/release-8/8.1/infra-software/vgpu/features/p2p.html",
    "says": "enable_uvm of the virtual machine; what virtual GPUs support between each other",
}
_UNSUPPORTED = re.compile(r"(?i:cuda (?:failure|error))[: ]{1,2}(?:\d{1,4} )?'?operation not supported|CUDA_ERROR_NOT_SUPPORTED\b|cudaErrorNotSupported\b")
_NO_DRIVER = ("driver-too-old",)  # CUDA reports it also where a container has no GPU
_HIDDEN = ("custom-all-reduce-without-p2p", "torch-invalid-device-ordinal")


def device_is_not_in_the_container(facts: Facts) -> Iterator[Evidence]:
    """The devices are listed inside a container without /dev/nvidia-uvm: the runtime did not pass it, or it did not exist when the container started."""
    inside = [event for event in facts.of("container") if not event.quoted]
    for event in facts.of("uvm_missing"):
        entered = [one for one in inside if one.file == event.file and one.line < event.line]
        if entered and "/dev/nvidiactl" in event.text:
            why = "the devices are listed in a container, which was not given /dev/nvidia-uvm"
            yield Evidence("container_gpu_access", STRONG + 1, why, (event, entered[0]), "no-uvm-in-the-container")
            yield Evidence("kernel_module_not_loaded", -STRONG, why, (event,), "no-uvm-in-the-container")
            return


def container_was_started_without_gpus(facts: Facts) -> Iterator[Evidence]:
    """CUDA finds no driver, or one that is too old, in a container that was started without an option for GPUs."""
    started = [event for event in facts.of("docker_without_gpus") if not event.quoted]
    failed = [event for event in facts.events if event.signature.id in _NO_DRIVER and not event.quoted]
    both = [(one, other) for one in started for other in failed if one.file == other.file and one.line < other.line]
    if both:
        why = "the container was started without an option that gives it GPUs"
        yield Evidence("container_gpu_access", STRONG + 1, why, both[0], "started-without-gpus")
        yield Evidence("cuda_driver_too_old", -STRONG, why, both[0], "started-without-gpus")


def interposer_hides_peers(facts: Facts) -> Iterator[Evidence]:
    """A library between program and CUDA is loaded, and the program finds no peers or asks for a GPU that it cannot see: the library answers itself."""
    loaded = [event for event in facts.of("cuda_interposer") if not event.quoted]
    hidden = [event for event in facts.events if event.signature.id in _HIDDEN and not event.quoted]
    if loaded and hidden:
        why = "the library that is loaded before CUDA answers which GPUs a process sees and which are peers"
        yield Evidence("cuda_interposer_hang", STRONG, why, (loaded[0], hidden[0]), "interposer-hides-peers")
        yield Evidence("rank_device_mapping", -STRONG, why, (loaded[0],), "interposer-hides-peers")


def virtual_gpu_lacks_a_feature(facts: Facts) -> Iterator[Evidence]:
    """The GPUs are virtual, and CUDA refuses an operation: a feature that the hypervisor leaves off, such as unified memory, is missing."""
    virtual = [event for event in facts.of("vgpu") if not event.quoted]
    refused = [event for event in facts.events if _is_unsupported(event)]
    if virtual and refused and not facts.of("cuda_interposer"):
        why = "the GPUs are virtual, and CUDA does not support an operation there: unified memory and peer-to-peer are off unless the hypervisor has them on"
        yield Evidence("vgpu_unsupported_feature", STRONG, why, (virtual[0], refused[0]), "virtual-and-refused", (VGPU_FEATURES,))
        yield Evidence("nccl_bug", -HINTING, why, (virtual[0],), "virtual-and-refused")


def _is_unsupported(event: Event) -> bool:
    return event.signature.kind in ("error", "symptom") and not event.quoted and bool(_UNSUPPORTED.search(event.text))
