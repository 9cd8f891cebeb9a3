"""sshd and ansible-playbook are killed at random moments while a role changes packages: the next
play continues, and a rollback restores the old state."""

from __future__ import annotations

import sys
import time

import audits
import pytest
from controller_process import under_way
from fakes.role_play import write_play
from playbooks_on_nodes import command_of
from repository import build_package
from role_plays import play_role
from trial_node import NODE

OLD, NEW = "2.21.5-1+cuda12.4", "2.26.5-1+cuda12.9"
LIBRARIES = ("libnccl2", "libnccl-dev")
ONLY = {
    "nccl_profile_conf": False,
    "nccl_profile_disable_settings": False,
    "nccl_profile_launch_paths": [],
}
POLICY = {"nccl": {"min": "2.22.3"}}


def play_and_kill(trial, after_s, victim):
    """Plays the role and kills ansible-playbook, or every sshd, after a while. Returns the
    output."""
    role = write_play(trial.fleet.work, "nccl_profile")
    command, environment = command_of(
        trial.fleet,
        role,
        [NODE],
        POLICY,
        [],
        {**ONLY, "node_change_lock_wait_s": audits.DEADLINE_S},
    )
    with (trial.fleet.work / "killed.log").open("w+") as log:
        with under_way(command, environment, log) as process:
            time.sleep(after_s)
            if victim == "sshd":
                trial.shell("pkill -KILL sshd; systemctl reset-failed ssh; systemctl restart ssh")
                process.wait(audits.DEADLINE_S)
        log.seek(0)
        return log.read()


@pytest.mark.nightly
def test_sshd_and_ansible_playbook_killed_at_random_moments_while_a_role_plays(
    trial, tmp_path, moments
):
    files = [(name, version) for name in LIBRARIES for version in (OLD, NEW)]
    depends = {"libnccl-dev": "Depends: libnccl2 (= {})\n"}
    trial.offer(
        *[
            build_package(
                tmp_path,
                name,
                version,
                fields=depends.get(name, "").format(version),
                postinst="sleep 0.3",
            )
            for name, version in files
        ]
    )
    trial.have(*(f"{name}={OLD}" for name in LIBRARIES))
    began = time.monotonic()
    assert play_role(trial.fleet, "nccl_profile", NODE, POLICY, **ONLY).code == 0
    whole_s = time.monotonic() - began
    (state_id,) = trial.shell("ls /var/lib/unhang/states").split()
    assert sorted(trial.restore(state_id)) == sorted(LIBRARIES)
    for number in range(6):
        victim, after_s = moments.choice(("sshd", "ansible-playbook")), moments.uniform(0, whole_s)
        output = play_and_kill(trial, after_s, victim)
        sys.stdout.write(
            f"kill {number}: {victim} after {after_s:.1f} of {whole_s:.1f} s\n{output}\n"
        )
        assert "Traceback" not in output
        assert "Module failed" not in output
    done = play_role(
        trial.fleet, "nccl_profile", NODE, POLICY, node_change_lock_wait_s=audits.DEADLINE_S, **ONLY
    )
    assert done.code == 0
    assert trial.installed(*LIBRARIES) == [f"ii {NEW}"] * 2
    first = trial.shell("ls /var/lib/unhang/states").split()[1:2]
    for state in first:
        assert sorted(trial.restore(state)) == sorted(LIBRARIES)
    assert first, "the role has changed something since"
    assert trial.installed(*LIBRARIES) == [f"ii {OLD}"] * 2
    trial.assert_nothing_is_left()
