"""A log keeps its first answer however people's systems hand it on: behind prefixes, as JSON, cut, redrawn, repeated, mixed with healthy output."""

from __future__ import annotations

import pytest
from support.wrapped_logs import FIXTURES, LOSSY, WRAPS, every_log, first_answer, lines_of, wrapped_answer

SAMPLE = every_log()[::9]
CERTAIN = ("error", "critical")
# (way, log): why the answer may be another one.
REASONS: dict[tuple[str, str], str] = {}


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
