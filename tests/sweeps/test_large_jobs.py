"""A job of a thousand ranks: the one that all wait for is named with its node, on a screen that a
person can read, from documents and from the bundle."""

from __future__ import annotations

import argparse
import json

import pytest
from inspected import inspection_of, render_details, write_bundle
from large_jobs import large_job

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.jobs.commands import inspect
from unhang.jobs.inspect.bundle import read_documents


@pytest.mark.parametrize(("nodes", "per_node", "late"), [(125, 8, 517), (64, 8, 0), (250, 4, 999)])
def test_the_one_rank_of_many_is_named_with_its_node(nodes, per_node, late):
    documents = large_job(nodes, per_node, late)
    assert list(check_schema(documents[0], "evidence-1")) == []
    found = inspection_of(documents)
    assert (found["state"], found["world_size"]) == ("hung", nodes * per_node)
    assert [(suspect["rank"], suspect["host"]) for suspect in found["suspects"]] == [
        (late, f"gpu{late // per_node + 1:03d}")
    ]
    assert f"{nodes * per_node - 1} ranks" in found["suspects"][0]["why"]


def test_a_thousand_ranks_fit_on_a_screen_and_into_a_bundle(tmp_path):
    documents = large_job(125, 8, 517)
    shown = render_details(inspection_of(documents))
    assert len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) < 400
    write_bundle(tmp_path / "hang.tar.gz", documents, inspection_of(documents))
    again = inspection_of(read_documents([tmp_path / "hang.tar.gz"]))
    assert again["suspects"][0]["rank"] == 517


def test_nodes_that_did_not_answer_are_named_and_the_others_are_judged():
    documents = large_job(64, 8, 77)
    for document in documents[40:]:
        document["ranks"], document["sections"] = (
            [],
            {
                "ranks": {
                    "probe": {
                        "status": "error",
                        "duration_ms": 0.0,
                        "error": "no answer: timed out",
                        "unread": [],
                    }
                }
            },
        )
    found = inspection_of(documents)
    assert [(suspect["rank"], suspect["host"]) for suspect in found["suspects"]][:1] == [
        (77, "gpu010")
    ]
    assert sum(row["problem"] is not None for row in found["hosts"]) == 24


def test_two_jobs_in_the_documents_are_told_apart(tmp_path, capsys):
    paths = []
    for number, document in enumerate(large_job(2, 2, 1)):
        document["ranks"][0]["job"] = "uid=1 MASTER_PORT=1"
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(document))
    parser = argparse.ArgumentParser()
    inspect.add_arguments(parser)
    with pytest.raises(UserError, match="a node has 2 jobs, not one; name one: --pid"):
        inspect.run(parser.parse_args(["--evidence", *map(str, paths)]), None)
