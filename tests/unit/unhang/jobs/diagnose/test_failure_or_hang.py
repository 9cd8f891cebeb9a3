"""Whether a person tells of a hang or of a failure: steps for a hang mislead somebody whose job
ends with an error, and the other way round."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text


def asked(text):
    found = diagnose_text(text)
    return found["outcome"]["word"], " ".join(found["collect_next"])


@pytest.mark.parametrize(
    "text",
    [
        "It never fails\n\nI start it with two GPUs.\n",
        "Does it fail with two GPUs?\n\nI start it.\n",
        "I found no error.\nstep 1 loss 2.0\n",
    ],
)
def test_word_of_a_failure_that_is_denied_or_asked_about_is_none(text):
    assert asked(text)[0] != "failure"


def test_attribute_that_a_wrapper_hides_is_explained():
    steps = asked(
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nAttributeError:'
        " 'DistributedDataParallel' object has no attribute 'config'\n"
    )[1]
    assert "model.module.NAME" in steps


def test_first_line_that_waits_hides_no_error_of_a_program():
    assert (
        asked(
            "Waiting for the master pod to be ready\nconnected\n[x] ERROR: worker table has too few"
            " slots for this group\n"
        )[0]
        == "failure"
    )
