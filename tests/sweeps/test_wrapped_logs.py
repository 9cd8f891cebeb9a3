"""A log has the same first answer in every form in which systems pass it on: with prefixes, as
JSON, cut, redrawn, repeated, mixed with healthy output."""

from __future__ import annotations

import zlib

import pytest
from support.wrapped_logs import (
    FIXTURES,
    LOSSY,
    WRAPS,
    every_log,
    first_answer,
    lines_of,
    wrapped_answer,
)

# Chosen by name, so that a new log does not put others into the sample.
SAMPLE = [
    path for path in every_log() if zlib.crc32(str(path.relative_to(FIXTURES)).encode()) % 9 == 0
]
CERTAIN = ("error", "critical")
# (way, log): why the answer may be another one.
AFTER, BARS = "after 5,000 lines of training", "progress bars redrawn"
REASONS = {
    (
        BARS,
        "diagnose_batches/11/b22-dle-339-srun-pmi/log.txt",
    ): "a job that draws bars has an end to be seen",
    (
        AFTER,
        "diagnose_batches/11/b22-dle-339-srun-pmi/log.txt",
    ): "a job that trained has an end to be seen",
    (
        AFTER,
        "diagnose_batches/7/040-slurm-member-1-of-8/log.txt",
    ): "a job that makes steps does not stand at its start",
    (
        AFTER,
        "diagnose_batches/13/e15-lightning-17389-sbatch-alone/log.txt",
    ): "a job that makes steps does not stand at its start",
    (
        BARS,
        "diagnose_batches/7/040-slurm-member-1-of-8/log.txt",
    ): "a job whose epochs go on does not wait for ranks",
    (
        BARS,
        "diagnose_batches/13/e15-lightning-17389-sbatch-alone/log.txt",
    ): "a job whose epochs go on does not wait for ranks",
    (
        BARS,
        "diagnose_batches/11/b21-horovod-515-all-zero/log.txt",
    ): "bars stand between the ranks that the processes print",
    (
        BARS,
        "diagnose_batches/6/378-ucx-noib-node-osu-bcast/log.txt",
    ): "bars break the benchmark's table, which shows that it ran",
    **{
        (
            way,
            "diagnose_batches/12/c20-asyncrdma-107-regmr/log.txt",
        ): "the six lines of one error no longer stand together"
        for way in (BARS, "each line eight times")
    },
    **{
        (
            way,
            "diagnose_batches/4/061-te-userbuffers-multinode-hang/log.txt",
        ): "the lines before the timeout become those of rank 3, which had not waited"
        for way in ("torch's rank: [rank3]: ", "torchrun: [default3]:", "srun -l")
    },
    **{
        (
            way,
            "diagnose_batches/3/123-nanogpt-2node-crash-before-step0/log.txt",
        ): "the exception becomes one of rank 3, which had not timed out"
        for way in ("torch's rank: [rank3]: ", "torchrun: [default3]:", "srun -l")
    },
    (
        "torch's rank: [rank3]: ",
        "diagnose_batches/7/030-accelerate-eval-inside-epoch/log.txt",
    ): "what() of rank 0 becomes a line of rank 3, as number 0 of a group",
    (
        "cut at 200 columns",
        "diagnose_batches/6/347-vllm-ray-deepseek-ifname/log.txt",
    ): "the text of the error is cut in two",
    (
        "each line eight times",
        "diagnose_batches/9/032-transformers-ci-nvme-test/log.txt",
    ): "the start of the build is no longer among the last lines",
    (
        BARS,
        "diagnose_batches/3/018-peermem-loaded-but-gdr-disabled/log.txt",
    ): "bars stand between lsmod and the module that it lists",
    (
        "ranks interleaved",
        "diagnose_batches/3/018-peermem-loaded-but-gdr-disabled/log.txt",
    ): "the command comes after the table that it prints",
    (
        "ranks interleaved",
        "diagnose_batches/3/123-nanogpt-2node-crash-before-step0/log.txt",
    ): "what the rank was doing comes after the timeouts",
    ("ranks interleaved", "diagnose_batches/5/342-trl-sft-packing-30min/log.txt"): (
        "in this form it is the time limit, as the label says; as posted a slow rank comes first"
    ),
}


@pytest.fixture(scope="module")
def plain():
    """Each log of the sample with the first answer to its original form."""
    return {
        str(path.relative_to(FIXTURES)): (lines_of(path), first_answer(path)) for path in SAMPLE
    }


@pytest.mark.parametrize("way", sorted(set(WRAPS) - set(LOSSY)))
def test_log_keeps_its_first_answer(plain, tmp_path, way):
    others = {
        name: (before[0], after[0])
        for name, (lines, before) in plain.items()
        if (after := wrapped_answer(lines, way, tmp_path))[0] != before[0]
        and (way, name) not in REASONS
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
    assert {name for _way, name in REASONS} <= names and {way for way, _name in REASONS} <= set(
        WRAPS
    )
