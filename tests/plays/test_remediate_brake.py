"""The brake of remediate.yml by itself: its first task, on hosts that Ansible takes all at once, as where its own way of stopping fails."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from fakes.role_play import DEADLINE_S, PROJECT, environment, read_play


def brake(folder, healthy, applies):
    """Played of the first task alone. healthy: hosts that were proved."""
    play = yaml.safe_load((PROJECT / "playbooks" / "remediate.yml").read_text())[-1]
    proved = {"ansible.builtin.set_fact": {"remediate_verdict": "healthy"}, "when": f"inventory_hostname in {healthy}"}
    play = {**play, "serial": "100%", "pre_tasks": [proved], "tasks": play["tasks"][:1]}
    path = folder / "brake.yml"
    path.write_text(yaml.safe_dump([play]))
    given = ["-e", f"unhang_apply={applies}", "-e", f"ansible_python_interpreter={sys.executable}"]
    command = ["ansible-playbook", str(path), "-i", "a,b,c,", "-c", "local", *given]
    options = {"cwd": PROJECT, "env": environment(folder), "capture_output": True, "text": True, "timeout": DEADLINE_S, "stdin": subprocess.DEVNULL}
    return read_play(subprocess.run(command, **options))


@pytest.mark.parametrize(
    ("healthy", "applies", "stopped"),
    [(["a", "b"], True, []), (["a"], True, ["c"]), (["b"], True, ["b", "c"]), ([], False, [])],
)
def test_no_node_is_touched_behind_one_that_was_not_proved_healthy(tmp_path, healthy, applies, stopped):
    played = brake(tmp_path, healthy, applies)
    assert [host for host, failed in sorted(played.failed.items()) if failed] == stopped
    for host in stopped:
        assert f"which was not proved healthy; {host} was left alone" in played.said
