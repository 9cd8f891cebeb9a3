"""Answers that are no documents are kept up to a limit of the run; what is not kept is named."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from unhang.audit.ways.arrivals import Meant, write_arrivals
from unhang.audit.ways.files import arrivals_of, limits
from unhang.core.ansible import run_files
from unhang.core.run import run_folder

NOT_KEPT = "; its answer was not kept: at most 100 and 64 MiB are, in a run"


def test_of_many_bad_documents_a_hundred_are_kept_and_the_others_are_named(tmp_path):
    hosts, sent = [f"gpu{number:03}" for number in range(120)], tmp_path / "sent"
    sent.mkdir()
    for host in hosts:
        (sent / f"{host}.json").write_text(f"segmentation fault on {host}")
    run_folder.make_folder(tmp_path / "run")
    meant = {host: Meant([], {}) for host in hosts}
    write_arrivals(tmp_path / "run", meant, (("", one) for one in arrivals_of(str(sent), limits())))
    nodes = [run_folder.read_node(path) for path in run_folder.node_files(tmp_path / "run")]
    kept = {path.stem for path in (tmp_path / "run/nodes").glob("*.raw")}
    assert len(kept) == 100
    assert {one["host"] for one in nodes if not one["message"].endswith(NOT_KEPT)} == kept
    assert {one["host"]: one["status"] for one in nodes} == dict.fromkeys(hosts, "invalid")


def invalid(host):
    message = "the answer is not one JSON object"
    return run_files.node_document(host, [], {}, "invalid", message, None)


def write_large(run, number):
    """As a fork of Ansible does."""
    run_files.write_node(run, invalid(f"gpu{number:03}"), "x" * (5 * 1024 * 1024))


@pytest.mark.slow
def test_writers_at_the_same_time_keep_no_more_bytes_than_the_limit(tmp_path):
    run = tmp_path / "run"
    run_folder.make_folder(run)
    with ProcessPoolExecutor(4) as writers:
        for written in [writers.submit(write_large, run, number) for number in range(24)]:
            written.result()
    sizes = {path.stem: path.stat().st_size for path in (run / "nodes").glob("*.raw")}
    assert set(sizes.values()) == {4 * 1024 * 1024}
    assert 12 <= len(sizes) <= 16
    nodes = [json.loads(path.read_text()) for path in (run / "nodes").glob("*.json")]
    assert len(nodes) == 24
    kept = {one["host"] for one in nodes if not one["message"].endswith(NOT_KEPT)}
    assert kept == set(sizes)


def test_an_answer_that_cannot_be_written_is_named_and_the_record_stays(tmp_path):
    run_folder.make_folder(tmp_path / "run")
    (tmp_path / "run/nodes/gpu001.raw").mkdir()
    run_files.write_node(tmp_path / "run", invalid("gpu001"), "rubbish")
    written = run_folder.read_node(tmp_path / "run/nodes/gpu001.json")
    assert (
        written["message"]
        == "the answer is not one JSON object; its answer was not kept: Is a directory"
    )
