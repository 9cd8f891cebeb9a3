"""Kinds of evidence about one job are intersected: what stacks show of a rank counts against what
dumps say of it. Jobs of eight ranks, tensor 2, data 2, pipeline 2, by gloo, which records neither
messages nor the end of a collective."""

from pathlib import Path

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

FOLDER = Path(__file__).parents[4] / "fixtures" / "diagnose_joined"


@pytest.mark.parametrize(
    ("job", "kinds", "roots", "certainty"),
    [
        ("hook", ("dumps",), "0,2", "possible"),  # they send, which no dump has
        ("hook", ("dumps", "stacks"), "6", "possible"),
        ("never", ("dumps",), "5", "possible"),
        ("never", ("dumps", "stacks"), "5", "likely"),
    ],
)
def test_rank_that_stacks_show_in_a_wait_is_no_root(job, kinds, roots, certainty):
    row = diagnose([str(FOLDER / job / kind) for kind in kinds])["waited_for"]
    assert (row["roots"]["ranks"], row["certainty"]) == (roots, certainty)
