"""What an audit says is new since the run before it, and a play that is no audit."""

from __future__ import annotations

import json
import os
import sys

from local_fleet import ANY_FACTS, PROJECT, envelope, run


def answer(release):
    """The answer of a node with this kernel."""
    sections = {**ANY_FACTS["sections"], "kernel": {"probe": {"status": "ok"}, "release": release}}
    return envelope(node_facts=json.dumps({**ANY_FACTS, "sections": sections}))


def test_an_audit_sends_what_is_new_since_the_run_before(fleet):
    """Also where plain ansible-playbook made that run."""
    fleet.answering("gpu001", answer("6.8.0-45-generic"))
    assert fleet.play(environment={"UNHANG_JUDGE": "1"}).returncode == 0
    command = [sys.executable, "-P", "-m", "unhang", "audit", "-i", fleet.inventory]
    given = fleet.folder / "given"
    hooks = ["--hook", f"cp /dev/stdin {given}", "--hook", "false"]
    fleet.hosts.clear()
    fleet.answering("gpu001", "no JSON")
    done = run(
        [*command, "--out", fleet.runs, "-q", *hooks],
        {**os.environ, "ANSIBLE_HOME": str(fleet.folder / "home")},
        fleet.folder,
    )
    news = json.loads(given.read_text())
    assert (news["run"], news["new"][0]["nodes"]) == (fleet.run_document()["id"], "gpu001")
    # 2: no node was read
    assert (
        done.returncode == 2 and "unhang: hook false: it ended with exit code 1" in done.stderr
    ), done.stderr


def test_a_play_that_was_to_read_no_node_is_no_run(fleet):
    """As in the preview of a rollback, whose audit serves --apply."""
    fleet.answering("gpu001", answer("6.8.0-45-generic"))
    audit = (
        f"- ansible.builtin.import_playbook: {PROJECT}/playbooks/audit.yml\n  when: wanted |"
        " default(false) | bool\n"
    )
    (fleet.folder / "site.yml").write_text(audit, encoding="utf-8")
    passed = fleet.play(playbook=fleet.folder / "site.yml")
    assert passed.returncode == 0 and "UNREAD" not in passed.stdout + passed.stderr, passed.stderr
    assert not list(fleet.runs.glob("*"))
    done = fleet.play("-e", "wanted=true", playbook=fleet.folder / "site.yml")
    assert done.returncode == 0 and set(fleet.nodes()) == {"gpu001"}, done.stderr
