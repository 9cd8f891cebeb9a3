"""The record that the callback of a preview writes for a real play in check mode: each result under
the plan's role, whichever role it comes from."""

from __future__ import annotations

import json
import subprocess
import sys

import yaml
from fakes.role_play import DEADLINE_S, PROJECT, environment

from unhang.act.rollout.preview import parse_events
from unhang.core.ansible.preview_events import PREVIEW_ENV

OUTER = [
    {"name": "Play a part of another role", "ansible.builtin.import_role": {"name": "inner"}},
    {"name": "Report", "ansible.builtin.debug": {"msg": [{"why": "look at it"}]}},
    {
        "name": "Report values",
        "ansible.builtin.debug": {
            "msg": {
                "driver": "535.1",
                "packages": {"a": "1-1", "b": "2-1"},
                "stops": [],
                "needs_reboot": True,
            }
        },
    },
    {"name": "Refuse", "ansible.builtin.fail": {"msg": "expected one, found none"}},
]
INNER = [
    {
        "name": "Write a file",
        "ansible.builtin.copy": {"dest": "{{ folder }}/made.conf", "content": "one\n"},
    }
]
PLAY = {
    "name": "Preview", "hosts": "all", "gather_facts": False, "check_mode": True, "diff": True,
    "tasks": [
        {"name": "Outside", "ansible.builtin.debug": {"msg": "nothing to do with a role"}},
        {"name": "A role", "block": [{"ansible.builtin.include_role": {"name": "outer"}}],
        "rescue": [{"ansible.builtin.meta": "noop"}]},
    ],
}  # fmt: skip


def test_results_stand_under_the_role_that_was_asked_for_and_nothing_is_written(tmp_path):
    for name, tasks in (("outer", OUTER), ("inner", INNER)):
        (tmp_path / "roles" / name / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / name / "tasks" / "main.yml").write_text(yaml.safe_dump(tasks))
    (tmp_path / "play.yml").write_text(yaml.safe_dump([PLAY]))
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "folder": str(tmp_path),
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"here": host}}}))
    given = {
        **environment(tmp_path),
        PREVIEW_ENV: str(tmp_path / "results.jsonl"),
        "ANSIBLE_CALLBACKS_ENABLED": "unhang_preview",
    }
    options = {
        "cwd": PROJECT,
        "env": given,
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "stdin": subprocess.DEVNULL,
    }
    done = subprocess.run(
        ["ansible-playbook", str(tmp_path / "play.yml"), "-i", str(tmp_path / "hosts.json")],
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "made.conf").exists()
    events = parse_events((tmp_path / "results.jsonl").read_text())
    assert [(one["role"], one["status"], one["text"]) for one in events] == [
        ("", "reported", "nothing to do with a role"),
        ("outer", "changed", ""),
        ("outer", "reported", "look at it"),
        ("outer", "reported", "driver 535.1; needs reboot; packages a 1-1, b 2-1"),
        ("outer", "failed", "expected one, found none"),
    ]
    assert events[1]["diffs"] == [{"name": f"{tmp_path}/made.conf", "before": "", "after": "one\n"}]
