"""The library whose code raised an error, and what to search for among its issues."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

RAISED = """Traceback (most recent call last):
  File "serve.py", line 3, in <module>
    engine.start()
  File "/opt/env/lib/python3.11/site-packages/somelib/core/engine.py", line 214, in start
    raise ValueError(message)
ValueError: the number of attention heads {}
"""


def asked(text):
    return " ".join(diagnose_text(text)["collect_next"])


def test_library_of_the_innermost_frame_is_named_with_the_words_to_search():
    steps = asked(RAISED.format("must be divisible by the size"))
    assert "the newest release of somelib, whose code raised the error" in steps
    assert 'the issues of somelib for: "the number of attention heads must be divisible by the size"' in steps


def test_without_a_frame_of_a_library_only_the_words_are_named():
    steps = asked("The service fails.\n\n[x] ERROR: worker table has too few slots for this group\n")
    assert 'the issues of the library for: "' in steps and "whose code raised" not in steps


@pytest.mark.parametrize("own", ["/home/someone/run/model.bin", "0x7f33aa10", "10.20.30.40:29500", "4711234"])
def test_what_only_this_run_has_is_not_searched_for(own):
    steps = asked(RAISED.format(f"does not fit what {own} has"))
    assert own not in steps and 'for: "the number of attention heads does not fit what"' in steps


def test_message_that_is_too_short_gives_no_words():
    assert "the library's issues for this message" in asked("It fails.\n\nerror: 4711\n")


def test_secret_in_a_message_is_not_searched_for():
    steps = asked(RAISED.format("could not be read with HF_TOKEN=hf_" + "A1b2C3d4E5" * 4 + " from the hub of models"))
    assert "A1b2C3" not in steps


@pytest.mark.parametrize(
    "line",
    ["ERROR 08-14 12:08:39 [core.py:654] EngineCore failed to start in its first minute", "I get an error of the scheduler which nobody here has seen\n"],
)
def test_times_places_and_own_sentences_are_not_searched_for(line):
    steps = asked(f"The server fails.\n\n{line}\n")
    assert "12:08" not in steps and "core.py:654" not in steps and "nobody here" not in steps
