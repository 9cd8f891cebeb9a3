"""What a preview plays: the node is read once, by the audit, and what is not played is skipped as
one task."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from fakes.role_play import answer_of, environment

ROLES = ("nccl_profile", "gpu_binding", "package_hold")
TASK = re.compile(r"^TASK \[(?:(\w+) : )?(.*?)\] \*+\n((?:(?!^TASK|^PLAY).*\n)*)", re.MULTILINE)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """(role, task, its output) of a preview of this machine."""
    work = tmp_path_factory.mktemp("preview")
    (work / "hosts").write_text("n1 ansible_connection=local\n")
    argv = [
        *("ansible-playbook", "playbooks/remediate.yml", "-v", "-i", str(work / "hosts")),
        *("-e", f"unhang_roles={','.join(ROLES)}"),
    ]
    given = {
        **environment(work),
        "UNHANG_RUNS": str(work / "runs"),
        "UNHANG_JUDGE": "0",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    }
    done = answer_of(argv, given)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return TASK.findall(done.stdout)


def test_roles_take_what_the_audit_of_the_same_run_has_read(tasks):
    reads = [output for role, task, output in tasks if role and task == "Read the node"]
    assert reads
    assert all("as the audit of this run has read it" in output for output in reads)


def test_what_the_frame_of_a_role_does_not_do_is_skipped_as_one_task_each(tasks):
    skipped = Counter(role for role, _task, output in tasks if output.startswith("skipping"))
    begun = sum(task == "Open a saved state" for _role, task, _output in tasks)
    steps = sum(task == "Record the next step" for _role, task, _output in tasks)
    # the lock and the end of each role; the play itself unlocks nothing
    assert begun >= 3
    assert skipped["node_change"] <= 2 * begun + steps + 1
