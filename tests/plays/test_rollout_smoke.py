"""The smoke tests of a wave, by the playbook on scripted nodes: a node that is alone of its kind is
not tested twice, nodes of one kind are tested together."""

from __future__ import annotations

from pathlib import Path

from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal

VERDICT = """
- name: Act as the script says
  scripted_node: {step: smoke_alone, order: '{{ rollout_asked.order }}', faults: '{{ faults | default([]) }}', nodes: '{{ scripted_nodes }}'}
  register: scripted
- name: Keep what it answered
  ansible.builtin.set_fact:
    rollout_evidence: '{{ rollout_evidence | combine(scripted.evidence) }}'
    smoke_test_result: {verdict: pass}
- name: Note who was tested with whom
  ansible.builtin.lineinfile:
    path: '{{ scripted_nodes }}/tested'
    line: "{{ inventory_hostname }} in {{ rollout_step_name }} of {{ smoke_test_hosts | sort | join('+') }}"
    create: true
    mode: '0600'
  throttle: 1
"""


def test_a_node_alone_of_its_kind_is_tested_once_and_others_also_together(tmp_path):
    done = prepare(
        tmp_path,
        [["solo"], ["left", "right"]],
        real=("smoke_alone", "smoke_together", "smoke_group"),
    )
    (tmp_path / "tasks" / "rollout" / "smoke_verdict.yml").write_text(VERDICT)
    roll_out(done, {})
    assert done.states() == dict.fromkeys(("solo", "left", "right"), "released"), done.played.output
    together = [f"{host} in smoke_together of left+right" for host in ("left", "right")]
    alone = [f"{host} in smoke_alone of {host}" for host in ("solo", "left", "right")]
    assert sorted((tmp_path / "tested").read_text().splitlines()) == sorted([*alone, *together])
    [proof] = [
        one
        for one in read_journal(done.run).entries
        if (one.host, one.step, one.status) == ("solo", "smoke_together", "done")
    ]
    assert proof.evidence["same_as"] == "smoke_alone"


def test_the_boot_of_a_proof_is_read_when_its_step_is_over(tmp_path):
    """A step says nothing of the boot: that of this machine, which the connection reaches, is not
    the one in which the node was to be proved."""
    done = prepare(tmp_path, [["solo"]], real=("smoke_alone",))
    silent = VERDICT.replace(
        "rollout_evidence | combine(scripted.evidence)",
        "dict(healthy=scripted.evidence.healthy)",
    )
    assert silent != VERDICT
    (tmp_path / "tasks" / "rollout" / "smoke_verdict.yml").write_text(silent)
    roll_out(done, {})
    assert done.states() == {"solo": "kept"}
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert f"its boot is {here}, not solo-boot-2" in done.why("solo")
