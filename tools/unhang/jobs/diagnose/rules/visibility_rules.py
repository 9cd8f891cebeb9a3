"""Rules over what a process lets itself see of the GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG = WEIGHTS["strong"]


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
