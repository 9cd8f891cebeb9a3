"""Each row of the table job_activities is proved by a look at a real job, told apart from a near
miss, and from what proves every other row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from inspected import inspection_of

from unhang.core.catalogue.own_tables import table
from unhang.core.catalogue.reading import collect_tables, read_file
from unhang.core.verdict import activities as module
from unhang.core.verdict.activities import activity_of
from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.job import Process, Worker
from unhang.core.verdict.stands import busy_word, stand_of, stands_words, worker_of
from unhang.jobs.inspect.evidence import evidence_of
from unhang.jobs.inspect.rank_looks import rank_looks

LOOKS = Path(__file__).parents[4] / "fixtures/inspect"
ROWS = table("job_activities")


def document(scene):
    name = f"{scene}-RAS-and-stacks.json"
    return json.loads(
        next(
            path
            for path in (LOOKS / "two_gpus" / "evidence" / name, LOOKS / "processors" / name)
            if path.exists()
        ).read_text(encoding="utf-8")
    )


def last_rank(scene):
    """What happens in a scene happens to its last rank."""
    return rank_looks(evidence_of([document(scene)]))[-1]


@pytest.mark.parametrize("name", ROWS)
def test_the_look_that_proves_a_row_is_told_so_and_its_near_miss_is_not(name):
    row = ROWS[name]
    assert last_rank(row["shown_by"]).doing.name == name
    assert last_rank(row["near_miss"]).doing.name != name


@pytest.mark.parametrize("name", ROWS)
def test_no_row_takes_what_proves_another(name):
    assert [
        other for other, row in ROWS.items() if last_rank(row["shown_by"]).doing.name == name
    ] == [name]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.get("frames")])
def test_without_its_frames_a_row_is_not_told(name, monkeypatch):
    monkeypatch.setattr(module, "_frames", lambda: [one for one in FRAMES if one[1] != name])
    assert last_rank(ROWS[name]["shown_by"]).doing.name != name


FRAMES = list(module._frames())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in ROWS.items()
        if row.get("busy") and row["shown_by"] not in ("loader", "never", "backward")
    ],
)
def test_a_rank_that_goes_on_gives_the_job_its_state_and_nobody_is_suspected(name):
    found = inspection_of([document(ROWS[name]["shown_by"])])
    assert busy_word(last_rank(ROWS[name]["shown_by"])) == found["state"] == ROWS[name]["busy"]
    assert found["suspects"] == []


@pytest.mark.parametrize(
    ("name", "scene"), [("waiting for a lock", "baton"), ("loading", "loader"), ("code", "never")]
)
def test_a_rank_that_does_not_go_on_is_told_with_the_rows_cause_and_next_step(name, scene):
    look = replace(last_rank(scene), worker=None)
    named = stand_of(1, look, Standing())
    assert busy_word(look) is None
    assert (named.cause, named.next) == (
        ROWS[name].get("cause"),
        ROWS[name]["next"].format(pid=look.pid, host=look.host),
    )


@pytest.mark.parametrize("item", ["", 'path "/data/7.tar", batch [6, 7]'])
def test_worker_for_which_a_rank_waits_is_named_with_its_pid_and_item(item):
    recorded = last_rank("loader")
    look = replace(recorded, worker=replace(recorded.worker, item=item))
    named = stand_of(1, look, Standing())
    assert worker_of(look) == Worker(3089, "read_from_dead_server (inspect_job.py:34)", item)
    assert look.pid != 3089 and "its worker 3089" in named.next
    shown = "pid 3089" + (f", at {item}" if item else "")
    assert f"a worker is in read_from_dead_server (inspect_job.py:34), {shown}" in (
        stands_words(look)
    )


def test_a_process_of_which_nothing_was_read_has_no_state():
    look = replace(last_rank("loader"), states=(), doing=None, worker=None)
    assert stands_words(look).startswith("was not looked at in /proc")


def test_child_that_hangs_in_the_kernel_is_the_one_to_look_at():
    stuck = Process(4711, "python3", "D", "nfs_wait")
    look = replace(last_rank("loader"), children=(stuck,))
    assert "/proc/4711/stack" in stand_of(1, look, Standing()).next
    assert worker_of(look).pid == 4711


TABLE = Path(module.__file__).parents[2] / "jobs/catalogue/tables/job_activities.yml"


def read_by_the_catalogue(path):
    faults: list[str] = []
    tables, _ = collect_tables(read_file(path, faults), faults)
    return tables["job_activities"], faults


def test_the_table_has_no_fault_and_is_read_as_the_catalogue_reads_it():
    assert read_by_the_catalogue(TABLE) == (ROWS, [])


@pytest.mark.parametrize("missing", ["shown_by", "near_miss"])
def test_a_row_that_nothing_proves_is_a_fault(missing, tmp_path):
    rows = yaml.safe_load(TABLE.read_text())
    del rows["tables"]["job_activities"]["rows"][0][missing]
    (tmp_path / "activities.yml").write_text(yaml.safe_dump(rows))
    [fault] = read_by_the_catalogue(tmp_path / "activities.yml")[1]
    assert f"waiting for a lock: {missing}: is missing" in fault


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (["all_reduce (LIB/distributed/distributed_c10d.py:5)", "sync (/w/comm.py:9)", "step (/w/train.py:19)"],
         "all_reduce, called by sync (comm.py:9), by step"),
        (["all_reduce (LIB/distributed/distributed_c10d.py:5)", "step (/w/train.py:19)", "main (/w/train.py:40)"],
         "all_reduce, called by step (train.py:19), by main"),
        (["all_reduce (LIB/distributed/distributed_c10d.py:5)", "step (/w/train.py:19)", "<module> (/w/train.py:1)"],
         "all_reduce, called by step (train.py:19)"),
        (["read (/w/data.py:7)", "__next__ (LIB/utils/data/dataloader.py:9)", "step (/w/train.py:1)"],
         "read (data.py:7), called by __next__"),
    ],
    ids=["a wrapper", "in one file", "no function", "a library that calls the user's code"],
)  # fmt: skip
def test_who_calls_whom_is_said_in_the_order_of_the_calls(frames, words):
    library = "/opt/venv/lib/python3.11/site-packages/torch"
    assert activity_of([one.replace("LIB", library) for one in frames]).where == words
