"""A log has the same first answer in every form in which systems pass it on: with prefixes, as JSON, cut, redrawn, repeated, mixed with healthy output."""

from __future__ import annotations

import pytest
from support.wrapped_logs import FIXTURES, LOSSY, WRAPS, every_log, first_answer, lines_of, wrapped_answer

SAMPLE = every_log()[::9]
CERTAIN = ("error", "critical")
# (way, log): why the answer may be another one.
AFTER, BARS = "after 5,000 lines of training", "progress bars redrawn"
REASONS = {
    (BARS, "diagnose/healthy/ulimit-and-df.log"): "a job that draws bars has an end to be seen",
    (AFTER, "diagnose/healthy/ulimit-and-df.log"): "a job that trained has an end to be seen",
    (BARS, "diagnose_batches/5/379-sam2-mose-grad-strides/log.txt"): "a job that draws bars has an end to be seen",
    (AFTER, "diagnose_batches/5/379-sam2-mose-grad-strides/log.txt"): "a job that trained has an end to be seen",
    **{
        (way, f"diagnose_batches/{log}/log.txt"): why
        for way in ("torch's rank: [rank3]: ", "torchrun: [default3]:", "srun -l")
        for log, why in (
            ("12/c06-lmeval-1404-gsm8k", "the bar becomes that of rank 3, and so of another rank than the one that waits"),
            ("3/115-verl-megatron-deepep-recv-timeout", "the launcher's last line, a failure of nobody, becomes one of rank 3, which had not waited"),
        )
    },
    (BARS, "diagnose_batches/11/b18-nvidiadocker-1085-uvm/log.txt"): "a bar stands between the question and its answer",
    (AFTER, "diagnose_batches/13/e34-deepspeed-5093-swarm-mtu/log.txt"): "a job that makes steps does not stand at its start",
    ("cut at 80 columns", "diagnose_batches/13/e16-nccl-582-init-oom/log.txt"): "the text of the error is cut in two",
    **{
        (way, "diagnose_batches/5/342-trl-sft-packing-30min/log.txt"): "in this form it is the time limit, as the label says; as posted a slow rank comes first"
        for way in (AFTER, "ranks interleaved")
    },
    ("each line eight times", "diagnose_batches/4/221-ompi5-hangs-ufw/log.txt"): "the list of hosts names each host eight times",
    ("each line eight times", "diagnose_batches/7/012-kubeflow-connects-and-waits/log.txt"): "the timeout of one process becomes one of eight",
}


@pytest.fixture(scope="module")
def plain():
    """Each log of the sample with the first answer to its original form."""
    return {str(path.relative_to(FIXTURES)): (lines_of(path), first_answer(path)) for path in SAMPLE}


@pytest.mark.parametrize("way", sorted(set(WRAPS) - set(LOSSY)))
def test_log_keeps_its_first_answer(plain, tmp_path, way):
    others = {
        name: (before[0], after[0])
        for name, (lines, before) in plain.items()
        if (after := wrapped_answer(lines, way, tmp_path))[0] != before[0] and (way, name) not in REASONS
    }
    assert others == {}


@pytest.mark.parametrize("way", LOSSY)
def test_part_of_a_log_is_not_called_certain_of_another_cause_than_the_whole(plain, tmp_path, way):
    """The decisive line may be in the missing part: then no answer, or a warning, is right."""
    others = {}
    for name, (lines, before) in plain.items():
        after = wrapped_answer(lines, way, tmp_path)
        if after[0] != before[0] and after[1] in CERTAIN and (way, name) not in REASONS:
            others[name] = (before, after)
    assert others == {}


def test_each_reason_names_a_log_of_the_sample():
    names = {str(path.relative_to(FIXTURES)) for path in SAMPLE}
    assert {name for _way, name in REASONS} <= names and {way for way, _name in REASONS} <= set(WRAPS)
