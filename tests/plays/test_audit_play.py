"""playbooks/audit.yml as ansible-playbook runs it: every selected host gets a file in the run
folder with its result."""

from __future__ import annotations

import json
import socket
import sys

import pytest
from local_fleet import PROJECT, envelope, run

from unhang.core.ansible import ansible_env

pytestmark = pytest.mark.xdist_group("test_audit_play")  # one worker: the shared audit runs once

HANGS = "cat >/dev/null\nexec sleep 90\n"


def closed_port():
    """A port of the loopback interface on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def played(shared_fleet):
    """One audit of nodes that fail in all ways before they answer, and of two healthy ones."""
    fleet = shared_fleet
    fleet.answering("well", envelope())
    fleet.answering("also-well", envelope())
    fleet.host(
        "closed",
        ansible_connection="ssh",
        ansible_host="127.0.0.1",
        ansible_port=closed_port(),
        ansible_ssh_common_args="-F none",
    )
    fleet.interpreter("hung", HANGS)
    fleet.host("no-python", ansible_python_interpreter="/nowhere/python3")
    fleet.host("undefined", ansible_python_interpreter="{{ no_such_variable }}")
    fleet.answering("dies", "", code=1, errors="cannot allocate memory \x1b[31m")
    fleet.answering("killed", "", code=137)
    fleet.answering("patience", envelope())
    fleet.hosts["patience"]["unhang_node_timeout_s"] = "for ever"
    fleet.groups = {"gpu": ["well", "closed"], "spare": ["also-well"]}
    fleet.hosts["well"]["unhang_policy"] = {
        "driver": {"version": "{{ wanted_driver }}"},
        "thresholds": {"absurd": float("nan")},
    }
    fleet.hosts["well"]["wanted_driver"] = "535.154.05"
    fleet.hosts["also-well"]["unhang_policy"] = "not a mapping"
    fleet.hosts["hung"]["unhang_node_timeout_s"] = "{{ 4 * 2 }}"
    fleet.interpreter("asked", f"cat >'{fleet.folder}/asked'\nprintf '%s\\n' '{envelope()}'\n")
    fleet.hosts["asked"] |= {
        "unhang_policy": {"torch": {"environments": ["/opt/envs/train"]}},
        "unhang_rootfs": ["{{ layer }}", "/recorded/base"],
        "layer": "/recorded/top",
        "unhang_gather_subset": ["!all", "gpus"],
        "unhang_deadline_s": 2,
    }
    done = fleet.play()
    return fleet, done, fleet.nodes()


@pytest.mark.parametrize(
    ("host", "status", "message"),
    [
        ("well", "ok", None),
        ("also-well", "ok", None),
        ("closed", "unreachable", "127.0.0.1"),
        ("hung", "timeout", "no answer within 8 s"),
        ("no-python", "failed", "the node has no Python at /nowhere/python3"),
        ("undefined", "failed", "no_such_variable"),
        ("dies", "failed", "cannot allocate memory"),
        ("killed", "failed", "exit code 137"),
        (
            "patience",
            "failed",
            "unhang_node_timeout_s must be a number of seconds, and is 'for ever'",
        ),
    ],
)
def test_what_became_of_a_node_is_recorded_in_one_line(played, host, status, message):
    node = played[2][host]
    assert node["status"] == status, node
    assert (message is None and node["message"] is None) or message in node["message"]
    assert all(character.isprintable() for character in node["message"] or "")


def test_every_host_that_was_meant_has_a_file(played):
    fleet, _, nodes = played
    assert set(nodes) == set(fleet.hosts) == set(fleet.run_document()["hosts"])


def test_groups_and_policy_come_from_the_inventory_with_templates_resolved(played):
    _, _, nodes = played
    assert nodes["well"]["groups"] == ["gpu"]
    assert nodes["well"]["policy"] == {
        "driver": {"version": "535.154.05"},
        "thresholds": {"absurd": "NaN"},
    }
    assert nodes["also-well"]["policy"] == {"unhang_policy": "not a mapping"}
    assert nodes["closed"]["groups"] == ["gpu"]


def test_the_run_says_where_its_policy_stands(played):
    fleet, _, _ = played
    assert fleet.run_document()["policy_sources"] == [str(fleet.folder / "hosts.yml")]


def test_an_audit_prints_nothing_but_its_result_when_no_terminal_looks_on(played):
    _, done, _ = played
    assert "PLAY" not in done.stdout
    assert "ok: [" not in done.stdout
    assert "nodes," not in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_no_host_reached_is_still_a_run(fleet):
    fleet.host(
        "closed",
        ansible_connection="ssh",
        ansible_host="127.0.0.1",
        ansible_port=closed_port(),
        ansible_ssh_common_args="-F none",
    )
    assert fleet.play().returncode == 0
    assert fleet.nodes()["closed"]["status"] == "unreachable"
    assert fleet.run_document()["finished"]


def test_limit_means_the_limited_hosts_alone_and_a_second_run_sorts_behind_the_first(fleet):
    for name in ("a", "b", "c"):
        fleet.answering(name, envelope())
    fleet.play("--limit", "a,c")
    first = fleet.run_document()
    assert sorted(fleet.nodes()) == ["a", "c"] == sorted(first["hosts"])
    assert first["limit"] == "a,c"
    fleet.play("--limit", "b", "--check")
    second = fleet.run_document()
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {"b": "ok"}, (
        "check mode reads all the same, and latest is the second"
    )
    assert first["id"] != second["id"]
    assert first["id"][:15] <= second["id"][:15]


def test_a_node_set_given_to_plain_ansible_is_warned_of(fleet):
    for name in ("gpu001", "gpu002", "other"):
        fleet.answering(name, envelope())
    fleet.groups = {"gpu": ["other"]}
    done = fleet.play("--limit", "gpu[0:1],gpu001")
    assert done.stderr.count("for an index into a group") == 1


def test_batches_go_on_after_one_that_failed_altogether(fleet):
    fleet.host(
        "a",
        ansible_connection="ssh",
        ansible_host="127.0.0.1",
        ansible_port=closed_port(),
        ansible_ssh_common_args="-F none",
    )
    fleet.answering("b", "rubbish")
    fleet.answering("c", envelope())
    lines = (
        (PROJECT / "playbooks" / "audit.yml")
        .read_text()
        .replace("hosts: all\n", "hosts: all\n  serial: 1\n")
    )
    batched = fleet.folder / "batched.yml"
    batched.write_text(lines)
    fleet.play(playbook=batched)
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "a": "unreachable",
        "b": "invalid",
        "c": "ok",
    }
    assert len([entry for entry in fleet.runs.iterdir() if not entry.is_symlink()]) == 1


def test_no_answer_becomes_a_variable_where_ansible_would_let_it(fleet):
    fleet.answering(
        "a", envelope(ansible_facts={"inventory_hostname": "canary", "planted": "canary"})
    )
    after = fleet.folder / "after.yml"
    after.write_text(
        f"- ansible.builtin.import_playbook: {PROJECT}/playbooks/audit.yml\n"
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.debug: {msg: 'host {{ inventory_hostname }} {{ planted | default(1) }}'}\n"
    )
    done = fleet.play(playbook=after, environment={"ANSIBLE_INJECT_FACT_VARS": "True"})
    assert "host a 1" in done.stdout, done.stdout + done.stderr
    assert fleet.nodes()["a"]["status"] == "ok"
    printed = ad_hoc(fleet, environment={"ANSIBLE_INJECT_FACT_VARS": "True"}).stdout
    assert "node_facts" in printed and "ansible_facts" not in printed


def test_nodes_are_not_read_for_nothing_where_the_callback_is_not_loaded(fleet):
    fleet.answering("a", envelope())
    alone = fleet.folder / "audit.yml"  # no callback_plugins beside it
    alone.write_text((PROJECT / "playbooks" / "audit.yml").read_text())
    done = fleet.play(
        playbook=alone,
        environment={
            "ANSIBLE_CALLBACK_PLUGINS": str(fleet.folder / "none"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
        },
    )
    assert done.returncode != 0
    assert "Ansible has not loaded the callback unhang_run" in done.stdout + done.stderr
    assert not fleet.runs.exists()


def test_outside_a_run_the_document_comes_back_and_nothing_is_written(fleet):
    fleet.answering("a", envelope())
    done = ad_hoc(fleet)
    assert (
        json.loads(done.stdout.split("=>", 1)[1])["node_facts"]["sections"]["node"]["hostname"]
        == "planted"
    )
    assert not fleet.runs.exists()


def test_an_empty_inventory_is_said_and_makes_no_run(fleet):
    for playbook in ("audit", "remediate"):  # remediate has seven plays
        done = fleet.play(playbook=PROJECT / "playbooks" / f"{playbook}.yml")
        assert done.stderr.count("there are no hosts to audit") == 1
        assert not fleet.runs.exists()


def test_plays_that_audit_nothing_make_no_run_and_look_as_ever(fleet):
    fleet.host("a")
    other = fleet.folder / "other.yml"
    other.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.debug:\n        msg:"
        " hello\n"
    )
    done = fleet.play(playbook=other)
    assert "PLAY RECAP" in done.stdout
    assert not fleet.runs.exists()


def test_a_role_that_reads_a_part_of_the_node_gets_it_and_the_audits_record_stays(fleet):
    fleet.answering("a", envelope())
    tasks = fleet.folder / "roles" / "reader" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(
        "- gpu_node_info:\n    gather_subset: [node]\n  register: seen\n"
        "- ansible.builtin.debug:\n    msg: role saw {{ seen.node_facts.sections.node.hostname }}\n"
    )
    both = fleet.folder / "both.yml"
    play = (
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.import_role:\n       "
        " name: reader\n"
    )
    both.write_text(f"- ansible.builtin.import_playbook: {PROJECT}/playbooks/audit.yml\n{play}")
    done = fleet.play(playbook=both)
    assert "role saw planted" in done.stdout, done.stdout + done.stderr
    recorded = fleet.nodes()["a"]
    assert (recorded["status"], recorded["facts"]["sections"]["node"]["hostname"]) == (
        "ok",
        "planted",
    )
    both.write_text(play)
    fleet.play(playbook=both)
    # a role without a playbook creates no run
    assert len([path for path in fleet.runs.iterdir() if not path.is_symlink()]) == 1


def ad_hoc(fleet, environment=None):
    """`ansible -m gpu_node_info` on host a."""
    command = [
        ansible_env.ansible_program("ansible"),
        "a",
        "-i",
        str(fleet.inventory),
        "-m",
        "gpu_node_info",
    ]
    return run(command, fleet.environment(**(environment or {})), fleet.folder)


def test_a_node_gets_the_options_that_inventory_and_policy_name(played):
    packed = (played[0].folder / "asked").read_text()
    for text in ("/opt/envs/train", "/recorded/top", "/recorded/base", "!all", "deadline_s"):
        assert text in packed
    assert sys.executable not in packed.splitlines()[0]


def test_plain_ansible_playbook_does_the_whole_job(fleet):
    fleet.answering("a", envelope())
    fleet.answering("b", "rubbish")
    done = fleet.play(
        environment={"UNHANG_JUDGE": "1", "PYTHONPATH": f"{PROJECT}/tools:{PROJECT}/module_utils"}
    )
    assert "node-answer-invalid" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1].startswith("next: ")
    assert {entry.name for entry in (fleet.runs / "latest").iterdir()} == {
        "run.json",
        "made-here",  # so that its commands have hosts and inventory
        "nodes",
        "findings.json",
        "parts.json",
        "report.html",
    }


@pytest.mark.parametrize("times", [1, 2])
def test_without_its_judge_a_run_is_judged_where_a_node_was_read_again(fleet, times):
    fleet.answering("a", envelope())
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"gpu_node_info": {}}] * times}
    (fleet.folder / "twice.yml").write_text(json.dumps([play]))
    path = f"{PROJECT}/tools:{PROJECT}/module_utils"
    done = fleet.play(
        playbook=fleet.folder / "twice.yml", environment={"UNHANG_JUDGE": "0", "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stdout
    assert (fleet.runs / "latest" / "findings.json").exists() == (times == 2), done.stderr
