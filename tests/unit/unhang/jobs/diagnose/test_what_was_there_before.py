"""What was there before the job: memory and segments of others, a launcher that starts ranks
elsewhere, settings and files of another machine."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


def points(text: str, cause: str) -> float:
    return next(
        (one["points"] for one in diagnose_text(text)["causes"] if one["cause"] == cause), 0.0
    )


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("RuntimeError: CUDA error: unspecified launch failure", "warning"),
        ("KeyError: 'input_ids'", "error"),
    ],
)
def test_exception_of_a_library_makes_a_failed_rank_a_warning_at_most(error, severity):
    text = (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/w/train.py", line 12, in'
        f" <module>\n[rank2]: {error}\n[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:544]"
        " Connection closed by peer [198.51.100.3]:11843\n"
    )
    cause = diagnose_text(text)["causes"][0]
    assert (cause["cause"], cause["severity"]) == ("rank_failed", severity)
