"""The history as the callback writes it: with plain ansible-playbook, and in a place that is not
writable."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing

from local_fleet import ANY_FACTS, PROJECT, envelope, run


def answer(release):
    """The answer of a node with this kernel."""
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
        changed = connection.execute(
            "SELECT from_run, to_run FROM facts WHERE section = 'kernel' ORDER BY from_run"
        ).fetchall()
        (verdicts,) = connection.execute(
            "SELECT critical + error + warning + unread + healthy FROM runs WHERE seq = 2"
        ).fetchone()
    assert [unjudged for _, unjudged in runs] == [1, 0] and runs[1][0] == fleet.run_document()["id"]
    assert (changed, verdicts) == ([(1, 2), (2, None)], 1)

    (fleet.folder / "file").write_text("")
    lost = fleet.play(environment={"UNHANG_HISTORY": str(fleet.folder / "file" / "history.db")})
    assert lost.returncode == 0 and sum(not run.is_symlink() for run in fleet.runs.iterdir()) == 3
    assert [line for line in lost.stderr.splitlines() if "history" in line] == [
        f"unhang: this run is not kept in the history: {fleet.folder}/file cannot be written: File"
        " exists; name another file: --db FILE or UNHANG_HISTORY=FILE"
    ]


def test_unhang_audit_stores_its_run_once_it_is_judged(fleet):
    fleet.answering("gpu001", answer("6.8.0-45-generic"))
    db = fleet.folder / "history.db"
    command = [
        sys.executable,
        "-P",
        "-m",
        "unhang",
        "audit",
        "-i",
        fleet.inventory,
        "--out",
        fleet.runs,
        "--db",
        db,
        "-q",
    ]
    done = run(
        command,
        {
            **os.environ,
            "ANSIBLE_HOME": str(fleet.folder / "home"),
            "XDG_STATE_HOME": str(fleet.folder / "state"),
        },
        fleet.folder,
    )
    assert done.returncode in (0, 1) and "history" not in done.stderr, done.stderr
    with closing(sqlite3.connect(db)) as connection:
        stored = connection.execute(
            "SELECT id, judged IS NOT NULL, critical + error + warning + unread + healthy FROM runs"
        ).fetchall()
    assert stored == [(fleet.run_document()["id"], 1, 1)]
    assert not [*(fleet.folder / "state").rglob("*.db*")]

    fleet.hosts.clear()
    fleet.answering("gpu001", "no JSON")
    given = fleet.folder / "given"
    hooks = ["--hook", f"cp /dev/stdin {given}", "--hook", "false"]
    done = run(
        [*command, *hooks], {**os.environ, "ANSIBLE_HOME": str(fleet.folder / "home")}, fleet.folder
    )
    news = json.loads(given.read_text())
    assert (news["run"], news["new"][0]["nodes"]) == (fleet.run_document()["id"], "gpu001")
    # 2: no node was read
    assert (
        done.returncode == 2 and "unhang: hook false: expected exit code 0, found 1" in done.stderr
    ), done.stderr


def test_a_play_that_was_to_read_no_node_is_no_run(fleet):
    """As in the preview of a rollback, whose audit serves --apply."""
    fleet.answering("gpu001", answer("6.8.0-45-generic"))
    audit = (
        f"- ansible.builtin.import_playbook: {PROJECT}/playbooks/audit.yml\n  when: wanted |"
        " default(false) | bool\n"
    )
    (fleet.folder / "site.yml").write_text(audit, encoding="utf-8")
    db = fleet.folder / "history.db"
    passed = fleet.play(playbook=fleet.folder / "site.yml", environment={"UNHANG_HISTORY": str(db)})
    assert passed.returncode == 0 and "UNREAD" not in passed.stdout + passed.stderr, passed.stderr
    assert not db.exists() and not list(fleet.runs.glob("*"))
    done = fleet.play(
        "-e",
        "wanted=true",
        playbook=fleet.folder / "site.yml",
        environment={"UNHANG_HISTORY": str(db)},
    )
    assert done.returncode == 0 and db.exists() and set(fleet.nodes()) == {"gpu001"}, done.stderr
