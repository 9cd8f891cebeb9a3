"""All inputs of a command have limits together: when they are reached, the rest is named and not
read, and the answer is no success."""

from __future__ import annotations

import io
import json
import os
import threading

import pytest
from local_fleet import PROJECT
from run_folders import facts

from unhang import cli
from unhang.audit.commands import node_documents
from unhang.audit.ways import files
from unhang.audit.ways.files import arrivals_of
from unhang.core.together import NOT_READ, CountedStream, Together
from unhang.jobs.diagnose.diagnosing import document, read_all
from unhang.jobs.diagnose.log_facts import gather_facts
from unhang.jobs.diagnose.rendering import render_table
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import is_whole, lint
from unhang.jobs.lint.linting import render_table as render_lint

FIXTURES = PROJECT / "tests" / "fixtures" / "diagnose"
LINE = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
SPENT = {"bytes": Together(4000, 3600.0), "time": Together(1 << 40, -1.0)}


@pytest.fixture
def logs(tmp_path):
    for number in range(40):
        (tmp_path / f"rank{number:02d}.log").write_bytes(LINE * 20)
    return tmp_path


def diagnosed(folder, together):
    inputs, scans, _ = read_all([str(folder)], together=together)
    return document(inputs, gather_facts(scans))


def test_diagnose_names_each_log_for_which_there_was_no_room(logs):
    found = diagnosed(logs, Together(4000, 3600.0))
    unread = [one["file"] for one in found["inputs"] if one["kind"] == "unread"]
    assert len(unread) == 40 - 4 and all(NOT_READ in one["notes"][0] for one in found["inputs"][4:])
    assert NOT_READ in found["inputs"][3]["notes"][0]
    assert sum(one["bytes"] for one in found["inputs"]) <= 4000 + len(LINE) * 20
    flat = " ".join(render_table(found, 100).split())
    assert unread[10] in flat.replace("\\", "")
    assert "4,000 bytes were read of all inputs together" in flat


def test_diagnose_reads_no_further_log_once_the_time_of_all_is_over(logs):
    found = diagnosed(logs, Together(1 << 40, -1.0))
    assert {one["kind"] for one in found["inputs"]} == {"unread"}


def test_a_healthy_part_of_the_logs_is_no_healthy_job(tmp_path, monkeypatch):
    healthy = (FIXTURES / "healthy" / "nccl-tests.log").read_bytes()
    for number in range(4):
        (tmp_path / f"rank{number}.log").write_bytes(healthy)
    assert cli.main(["diagnose", "-q", str(tmp_path)]) == 0
    monkeypatch.setattr("unhang.jobs.diagnose.diagnosing.MOST_BYTES_OF_ALL", len(healthy) + 1)
    assert cli.main(["diagnose", "-q", str(tmp_path)]) == 3


def test_lint_names_each_script_for_which_there_was_no_room_and_is_no_success(
    tmp_path, monkeypatch, capsys
):
    for number in range(60):
        (tmp_path / f"job{number:02d}.sh").write_text("true\n" * 20)
    found = lint([str(tmp_path)], Context(None, None, None), together=Together(1000, 3600.0))
    assert [one["kind"] == "skipped" for one in found["files"]] == [False] * 10 + [True] * 50
    assert not is_whole(found)
    assert f"{tmp_path / 'job10.sh'}: {NOT_READ}" in render_lint(found)
    monkeypatch.setattr("unhang.jobs.lint.linting.MOST_BYTES_OF_ALL", 1000)
    assert cli.main(["lint", str(tmp_path)]) == 2
    assert NOT_READ in capsys.readouterr().out


def test_lint_of_a_folder_without_end_says_so(tmp_path, monkeypatch, capsys):
    for number in range(20):
        (tmp_path / f"{number}.sh").write_text("true\n")
    monkeypatch.setattr("unhang.jobs.lint.linting.MOST_FILES", 10)
    assert cli.main(["lint", str(tmp_path)]) == 2
    assert "holds more than 10 files; name those that matter" in capsys.readouterr().err


@pytest.fixture
def documents(tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(8):
        written = {
            "schema": "unhang/node-facts/1",
            "collector": {"version": "1"},
            "sections": facts(),
            "padding": "x" * 1000,
        }
        (folder / f"gpu{number}.json").write_text(json.dumps(written))
    return folder


@pytest.mark.parametrize("together", SPENT.values(), ids=SPENT)
def test_files_of_nodes_for_which_there_was_no_room_are_named(documents, together):
    found = list(arrivals_of(str(documents), Together(together.most_bytes, together.most_s)))
    unread = [one for one in found if NOT_READ in one.fault]
    assert len(unread) >= 5 and unread[-1].stem == "gpu7"
    assert {one.stem for one in found} == {f"gpu{number}" for number in range(8)}


def test_the_limits_hold_over_several_sources(documents):
    together = Together(4000, 3600.0)
    first, second = (list(arrivals_of(str(documents), together)) for _ in range(2))
    assert all(NOT_READ in one.fault for one in second) and NOT_READ not in first[0].fault


def test_audit_by_files_ends_on_an_endless_source_and_is_no_success(
    documents, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(files, "MOST_BYTES", 4000)
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    endless = type("Endless", (), {"read": staticmethod(lambda size: b"[]\n" * (size // 3 + 1))})
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": endless}))
    code = cli.main(["audit", "--via", "files", "--", str(documents / "gpu0.json"), "-"])
    errors = capsys.readouterr().err
    assert code == 2
    assert f"unhang: standard input: {NOT_READ}" in errors


def test_a_pipe_to_which_nobody_writes_ends_when_the_time_is_over():
    reader, writer = os.pipe()
    with (
        os.fdopen(reader, "rb", buffering=0) as source,
        os.fdopen(writer, "wb", buffering=0) as target,
    ):
        target.write(b"something")
        stream = CountedStream(source, Together(1000, 0.5))
        assert stream.read(100) == b"something"
        assert stream.read(100) == b"" and NOT_READ in stream.ended_early


def test_what_comes_slowly_is_read_as_it_comes():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as source:
        threading.Thread(target=lambda: [os.write(writer, b"x"), os.close(writer)]).start()
        stream = CountedStream(source, Together(1000, 60.0))
        assert b"".join(iter(lambda: stream.read(100), b"")) == b"x"
        assert stream.ended_early == ""


def test_a_stream_without_a_descriptor_is_read_to_its_end():
    stream = CountedStream(io.BytesIO(b"abc"), Together(1000, 60.0))
    assert (stream.read(10), stream.read(10), stream.ended_early) == (b"abc", b"", "")


def test_judge_names_the_first_document_for_which_there_was_no_room(documents, monkeypatch, capsys):
    monkeypatch.setattr(node_documents, "MOST_BYTES", 4000)
    assert cli.main(["judge", str(documents)]) == 2
    errors = capsys.readouterr().err
    assert (
        "gpu4.json was not read whole: 4,000 bytes were read of all inputs together" in errors
        or "gpu3.json was not read" in errors
    )
    assert "unhang audit --via files" in errors


def test_judge_of_standard_input_ends_when_its_time_is_over(monkeypatch, capsys):
    reader, writer = os.pipe()
    monkeypatch.setattr(node_documents, "LONGEST_S", 0.3)
    with os.fdopen(reader, "rb") as source:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": source}))
        code = cli.main(["judge", "-"])
    os.close(writer)
    assert code == 2
    assert "standard input was not read whole" in capsys.readouterr().err
