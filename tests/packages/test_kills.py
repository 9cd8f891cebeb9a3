"""SIGKILL at random moments for modules and for the package manager: the next call continues, and a
rollback restores the old state."""

from __future__ import annotations

import json
import sys
import time

import audits
import pytest
from repository import build_package
from trial_node import NODE

PIN = "/etc/apt/preferences.d/unhang-driver"
NAMES = ("nvidia-driver", "libnvidia-ml1")
SLOW = "sleep 0.3"  # so that more of the moments are during dpkg's work


def pair(folder, version, **scripts):
    """The driver requires the library of its own version."""
    library = build_package(folder, NAMES[1], version, [f"/usr/lib/nvidia/{version}"], **scripts)
    return [
        library,
        build_package(
            folder,
            NAMES[0],
            version,
            [f"/usr/share/nvidia/{version}"],
            f"Depends: {NAMES[1]} (= {version})\n",
            **scripts,
        ),
    ]


# As roles do it: continues a saved state that is still open.
CHANGE = """
from unhang_node.change.journal.saved_states import begin_state
from unhang_node.change.package.answer import change_packages
state_id = begin_state("/", "gpu_driver", "r1")[0]["id"]
print(json.dumps(change_packages(dict({options!r}, state_id=state_id), False)))
"""
ROLLBACK = """
from unhang_node.change.journal.saved_states import read_states
from unhang_node.change.rollback.chosen_states import newest_state
from unhang_node.change.rollback.restore import apply_restore, plan_restore
try:
    print(json.dumps([row["name"] for row in apply_restore("/", plan_restore("/", newest_state(read_states("/"))), 300).packages]))
except (OSError, ValueError) as problem:
    print(json.dumps(str(problem)))
"""


def killed_at(trial, code, after_s, victim):
    """The result of a line of Python although some process was killed after a while, None where the
    line's own process was killed."""
    with trial.under_way(code) as process:
        time.sleep(after_s)
        if victim == "module":
            trial.kill_module()
        else:
            trial.shell("systemctl kill --signal=KILL unhang-packages.service 2>/dev/null || :")
        output, errors = process.communicate(timeout=audits.DEADLINE_S)
    assert "Traceback" not in errors
    return json.loads(output.splitlines()[-1]) if output.strip() else None


@pytest.mark.nightly
def test_twenty_kills_at_random_moments_of_changes_and_rollbacks(trial, tmp_path, moments):
    trial.offer(
        *pair(tmp_path, "1", postinst=SLOW), *pair(tmp_path, "2", preinst=SLOW, postinst=SLOW)
    )
    trial.have(*(f"{name}=1" for name in NAMES))
    pin = {"file": PIN, "stanzas": [{"package": "src:nvidia-driver", "version": "2"}]}
    options = {
        "install": {NAMES[0]: "2"},
        "expect": {NAMES[1]: "2"},
        "pin": pin,
        "repair": True,
        "update_cache": False,
        "root_free_min_mib": 20,
    }
    codes = {"change": CHANGE.format(options=options), "rollback": ROLLBACK}
    began = time.monotonic()
    assert trial.code(codes["change"])["changed"]
    whole_s = time.monotonic() - began
    for number in range(20):
        what, victim, after_s = (
            moments.choice(sorted(codes)),
            moments.choice(("module", "package manager")),
            moments.uniform(0, whole_s),
        )
        answer = killed_at(trial, codes[what], after_s, victim)
        sys.stdout.write(
            f"kill {number}: {victim} in a {what} after {after_s:.2f} of {whole_s:.2f} s:"
            f" {answer}\n"
        )
        message = (
            answer
            if isinstance(answer, str)
            else answer.get("msg", "")
            if isinstance(answer, dict)
            else ""
        )
        assert "\n" not in message
    finished = trial.code(codes["change"])
    assert not finished["failed"], finished
    assert trial.installed(*NAMES) == ["ii 2", "ii 2"]
    assert sorted(trial.code(ROLLBACK)) == sorted(NAMES)
    assert trial.installed(*NAMES) == ["ii 1", "ii 1"]
    assert not trial.fleet.nodes[NODE].place(PIN).exists()
    trial.assert_nothing_is_left()
