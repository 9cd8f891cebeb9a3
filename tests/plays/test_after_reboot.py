"""A node whose sshd answers before its file systems can be written: the role waits for it."""

from __future__ import annotations

import sys

from fakes.role_play import play_tasks

BOOTING = """\
#!/bin/sh
if [ -s {left} ]; then
    tail -n +2 {left} > {left}.new
    mv {left}.new {left}
    echo "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']" >&2
    exit 1
fi
exec {python} "$@"
"""


def after_a_reboot(folder, refusals, wait_s):
    """(code, output) of a change with a reboot in it, after which the node's Python fails so many
    times."""
    left, python, root = folder / "left", folder / "python", folder / "root"
    root.mkdir()
    left.touch()
    python.write_text(BOOTING.format(left=left, python=sys.executable))
    python.chmod(0o700)
    frame = [
        {"name": step, "ansible.builtin.include_role": {"name": "node_change", "tasks_from": step}}
        for step in ("begin", "after_reboot", "end")
    ]
    boot = {
        "name": "Boot",
        "delegate_to": "localhost",
        "ansible.builtin.copy": {
            "content": "refused\n" * refusals,
            "dest": str(left),
            "mode": "0600",
        },
    }
    own = {
        "ansible_python_interpreter": str(python),
        "node_change_role": "kernel",
        "node_change_rootfs": str(root),
        "unhang_rootfs": [str(root)],
        "node_change_boot_wait_s": wait_s,
    }
    done = play_tasks(folder, {"gpu001": own}, frame[0], boot, *frame[1:])
    return done.code, done.output


def test_a_node_that_answers_before_it_runs_modules_is_waited_for(tmp_path):
    code, output = after_a_reboot(tmp_path, refusals=2, wait_s=120)
    assert code == 0, output
    assert (tmp_path / "left").read_text() == ""


def test_a_node_that_never_runs_modules_again_is_reported_with_the_reason(tmp_path):
    code, output = after_a_reboot(tmp_path, refusals=100000, wait_s=2)
    assert code != 0
    assert "No usable temporary directory found in" in output
