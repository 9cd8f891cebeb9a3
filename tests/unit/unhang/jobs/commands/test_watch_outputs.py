"""Where a watcher reports: a real log socket, a textfile that Prometheus' own parser reads, once
for each verdict, and no failure that ends the watch."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.secrets_in_text import without_secrets
from unhang.core.verdict.short_evidence import MOST_BYTES
from unhang.jobs.commands.watch_outputs import add_outputs, outputs_of
from unhang.jobs.inspect.evidence import ProcessRow, evidence_of
from unhang.jobs.inspect.inspecting import inspection_of
from unhang.jobs.watch.detector import Tick

NAMED = {("gpu03", 1, "loading")}
LOOK = Path(__file__).parents[4] / "fixtures/inspect/evidence/loader-RAS-and-stacks.json"
FOUND = replace(
    inspection_of(evidence_of([json.loads(LOOK.read_bytes())])),
    headline=without_secrets(
        "rank 1 on gpu03: it sleeps\x1b[2J in __next__\nMar 1 12:00:00 root: all is well,"
        " token=ghp_0123456789abcdefghijABCDEFGHIJ012345"
    ),
)
TICK = Tick(9.0, ranks={0: ProcessRow(7, "S"), 1: ProcessRow(8, "gone")})


@pytest.fixture
def log():
    """(socket's path, the socket): what /dev/log is."""
    folder = tempfile.mkdtemp(prefix="log-")  # a path of a socket has at most 107 characters
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"{folder}/log")
        listening.settimeout(30)
        yield f"{folder}/log", listening
    shutil.rmtree(folder)


def outputs(*words: str):
    parser = argparse.ArgumentParser()
    add_outputs(parser)
    said: list[str] = []
    return outputs_of(parser.parse_args(words), said.append), said


def series(path: Path) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_a_hang_is_one_line_in_the_log_once_for_each_verdict(log):
    path, listening = log
    told, said = outputs("--syslog", path)
    told.looked(FOUND, NAMED)
    told.looked(FOUND, NAMED)
    told.looked(replace(FOUND, headline="another"), {("gpu04", 2, "?")})
    lines = [listening.recv(4096).rstrip(b"\0").decode() for _ in range(2)]
    assert lines[0].startswith("<27>unhang-watch: hung: rank 1 on gpu03: it sleeps")
    assert "\n" not in lines[0] and "\x1b" not in lines[0] and "ghp_" not in lines[0]
    assert lines[1] == "<27>unhang-watch: hung: another"
    assert said == []
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        listening.recv(4096)


@pytest.mark.slow
@pytest.mark.parametrize("full", [None, "hang-1.tar.gz"])
def test_a_hook_gets_the_short_evidence_and_the_path_of_all_of_it(full, tmp_path):
    program = tmp_path / "hook"
    program.write_text(
        f'#!/bin/sh\ncat > {tmp_path}/told\nprintf %s "$UNHANG_BUNDLE" > {tmp_path}/bundle\n'
    )
    program.chmod(0o700)
    told, said = outputs("--hook", str(program))
    many = replace(FOUND, ranks=FOUND.ranks * 4000, suspects=FOUND.suspects * 4000)
    told.looked(many, NAMED, tmp_path / full if full else None)
    text = (tmp_path / "told").read_text()
    answer = json.loads(text)
    assert said == [] and len(text) <= MOST_BYTES and "ghp_" not in text
    assert list(check_schema(answer, "evidence-short-1")) == []
    wanted = str(tmp_path / full) if full else None
    assert (answer["by"], answer["full"], answer["primary"][0]["rank"]) == ("watch", wanted, 1)
    assert (tmp_path / "bundle").read_text() == (wanted or "")


def test_a_log_that_went_away_is_a_line_and_ends_nothing(log):
    told, said = outputs("--syslog", log[0])
    Path(log[0]).unlink()
    told.looked(FOUND, NAMED)
    assert len(said) == 1 and said[0].startswith(f"syslog at {log[0]}: ")


def test_metrics_follow_the_job(tmp_path):
    path = tmp_path / "unhang.prom"
    told, said = outputs("--textfile", str(path), "--label", "cluster=a")
    told.sampled(TICK, 42.0)
    first = series(path)
    told.looked(FOUND, NAMED)
    hung = series(path)
    told.sampled(TICK, 0.0)
    told.looked(FOUND, None)
    again = series(path)
    names = ("hung", "seconds_without_progress", "ranks", "ranks_ended", "looks", "hangs")
    assert [[row[f"unhang_watch_{name}"] for name in names] for row in (first, hung, again)] == [
        [0, 42, 1, 1, 0, 0],
        [1, 42, 1, 1, 1, 1],
        [0, 0, 1, 1, 2, 1],
    ]
    assert 'unhang_watch_hung{cluster="a"} 0.0' in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["unhang.prom"]
    assert said == []


def test_a_hang_that_ended_by_itself_is_reported_again_when_it_comes_back(log):
    told, _ = outputs("--syslog", log[0])
    for named in (NAMED, None, NAMED):
        told.looked(FOUND, named)
    assert told.hangs == 2


def test_metrics_that_cannot_be_written_cost_a_line_for_each_try_and_no_watch():
    told, said = outputs("--textfile", "/proc/unhang.prom")
    told.sampled(TICK, 1.0)
    told.sampled(TICK, 2.0)
    assert len(said) == 1 and said[0].startswith("the metrics could not be written: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--syslog", "/no/such/log"],
            "--syslog: there is no log socket to write to at /no/such/log",
        ),
        (["--textfile", "/no/such/x.prom"], "--textfile: there is no folder"),
        (["--label", "a=b"], "--label needs --textfile"),
        (
            ["--textfile", "/tmp/x.prom", "--label", "job=b"],
            "a label of its own here or of Prometheus",
        ),
    ],
)
def test_mistakes_are_told_before_a_job_is_started(words, expected):
    with pytest.raises(UserError, match=expected):
        outputs(*words)


@pytest.mark.slow
def test_a_watcher_without_a_terminal_loads_nothing_that_draws_or_judges_a_fleet():
    """It stays beside a training for days: the metrics and the history came to a third of its memory."""
    heavy = {"prometheus_client", "ClusterShell", "sqlite3"}
    code = (
        f"import sys, unhang.cli, unhang.jobs.commands.watch; print(*sorted({heavy} &"
        " set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
