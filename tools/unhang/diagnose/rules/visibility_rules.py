"""Rules over what a process lets itself see of the GPUs, and over who holds them although nvidia-smi lists nobody."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.log_facts import Facts
from unhang.diagnose.matching.scanning import Event
from unhang.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
IN_USE_MIB = 1024  # a context alone, without work, is smaller


def variable_hides_all_gpus(facts: Facts) -> Iterator[Evidence]:
    """CUDA sees no GPU, and the first entry of CUDA_VISIBLE_DEVICES is no GPU of this machine: CUDA stops reading the list at such an entry."""
    unseen = [event for event in facts.of("no_gpu") if not event.quoted]
    listed = {int(event.fields["index"] or 0) for event in facts.of("gpu_listed") if not event.quoted}
    for event in facts.of("visible_devices"):
        first = int((event.fields["list"] or "0").partition(",")[0])
        if unseen and (first < 0 or (listed and first not in listed)):
            why = f"CUDA_VISIBLE_DEVICES begins with {first}, which is no GPU" + (f" of the {len(listed)} that are listed" if listed else "")
            yield Evidence("env_var_misconfig", STRONG + 1, why, (event, unseen[0]), "variable-hides-all-gpus")
            yield Evidence("container_gpu_access", -STRONG, why, (event,), "variable-hides-all-gpus")
            return


def unlisted_process_has_the_gpu_open(facts: Facts) -> Iterator[Evidence]:
    """nvidia-smi shows memory in use and lists no process, and fuser names a process that has the device open: it outlived its job."""
    used = [event for fact in ("gpu_load", "gpu_memory") for event in _unquoted(facts, fact) if int(event.fields["used"] or 0) > IN_USE_MIB]
    empty, opened = _unquoted(facts, "no_gpu_process"), _unquoted(facts, "gpu_device_opened")
    if used and empty and opened:
        why = f"{used[0].fields['used']} MiB of a GPU are in use and nvidia-smi lists no process, but process {opened[0].fields['pid']} has the GPU open"
        yield Evidence("orphan_processes_hold_gpu", STRONG + 1, why, (used[0], opened[0]), "unlisted-process-has-gpu-open")
        yield Evidence("oom", -SUPPORTING, why, (opened[0],), "unlisted-process-has-gpu-open")


def _unquoted(facts: Facts, fact: str) -> list[Event]:
    """The events of this fact that no one quoted."""
    return [event for event in facts.of(fact) if not event.quoted]
