"""The history as the callback writes it: plain ansible-playbook, and a place that cannot be written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from local_fleet import ANY_FACTS, envelope


def answer(release):
    """What a node says whose kernel is that one."""
    sections = {**ANY_FACTS["sections"], "kernel": {"probe": {"status": "ok"}, "release": release}}
    return envelope(node_facts=json.dumps({**ANY_FACTS, "sections": sections}))


def test_plain_ansible_playbook_stores_its_runs_and_is_as_good_without_a_history(fleet):
    db = fleet.folder / "state" / "history.db"
    for number, release in enumerate(("6.8.0-45-generic", "6.8.0-47-generic")):
        fleet.hosts.clear()
        fleet.answering("gpu001", answer(release))
        done = fleet.play(environment={"UNHANG_HISTORY": str(db), "UNHANG_JUDGE": str(number)})
        assert done.returncode == 0 and "history" not in done.stderr, done.stderr
    with closing(sqlite3.connect(db)) as connection:
        runs = connection.execute("SELECT id, judged IS NULL FROM runs ORDER BY seq").fetchall()
        changed = connection.execute("SELECT from_run, to_run FROM facts WHERE section = 'kernel' ORDER BY from_run").fetchall()
        (verdicts,) = connection.execute("SELECT critical + error + warning + unread + healthy FROM runs WHERE seq = 2").fetchone()
    assert [unjudged for _, unjudged in runs] == [1, 0] and runs[1][0] == fleet.run_document()["id"]
    assert (changed, verdicts) == ([(1, 2), (2, None)], 1)

    (fleet.folder / "file").write_text("")
    lost = fleet.play(environment={"UNHANG_HISTORY": str(fleet.folder / "file" / "history.db")})
    assert lost.returncode == 0 and sum(not run.is_symlink() for run in fleet.runs.iterdir()) == 3
    assert [line for line in lost.stderr.splitlines() if "history" in line] == [
        f"unhang: this run is not kept in the history: {fleet.folder}/file cannot be written: File exists; name another file: --db FILE or UNHANG_HISTORY=FILE"
    ]
