"""A log keeps its first answer however people's systems hand it on: behind prefixes, as JSON, cut, redrawn, repeated, mixed with healthy output."""

from __future__ import annotations

import pytest
from support.wrapped_logs import FIXTURES, LOSSY, WRAPS, every_log, first_answer, lines_of, wrapped_answer

SAMPLE = every_log()[::9]
CERTAIN = ("error", "critical")
# (way, log): why the answer may be another one.
AFTER, BARS = "after 5,000 lines of training", "progress bars redrawn"
_ONE_RANK = "a traceback without a rank becomes that of rank 3, and other ranks' lines are echoes of it"
REASONS = {
    ("torch's rank: [rank3]: ", "diagnose_real/spawn-launcher-raises.txt"): _ONE_RANK,
    ("torchrun: [default3]:", "diagnose_real/spawn-launcher-raises.txt"): _ONE_RANK,
    ("srun -l", "diagnose_real/spawn-launcher-raises.txt"): _ONE_RANK,
    ("each line eight times", "diagnose_batches/3/143-mmcv-dvr-extension-stall/log.txt"): "its beginning of a build is no longer among the last lines",
    (BARS, "diagnose_batches/3/143-mmcv-dvr-extension-stall/log.txt"): "a job whose bars move is not building",
    (BARS, "diagnose/healthy/ulimit-and-df.log"): "a job that draws bars has an end to be seen",
    (AFTER, "diagnose/healthy/ulimit-and-df.log"): "a job that trained has an end to be seen",
    (AFTER, "diagnose_batches/3/059-lightning-slurm-four-of-eight/log.txt"): "a job that makes steps has all of its ranks",
}


@pytest.fixture(scope="module")
def plain():
    """Each log of the sample with its first answer as it stands."""
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
    """What decides may stand in the part that is gone: then nothing, or a warning, is the right answer."""
    others = {}
    for name, (lines, before) in plain.items():
        after = wrapped_answer(lines, way, tmp_path)
        if after[0] != before[0] and after[1] in CERTAIN and (way, name) not in REASONS:
            others[name] = (before, after)
    assert others == {}


def test_each_reason_names_a_log_of_the_sample():
    names = {str(path.relative_to(FIXTURES)) for path in SAMPLE}
    assert {name for _way, name in REASONS} <= names and {way for way, _name in REASONS} <= set(WRAPS)
