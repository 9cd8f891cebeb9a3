"""ansible-playbook is killed many times during a rollout, before a node did a step and after it:
each time the same command continues.

Four kills by default; KILL_POINTS=every kills in each step of the change and of the rollback (`make
simulate`).
"""

from __future__ import annotations

import signal

from kill_points import PROVED, UNFIT, chosen
from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

DEATHS = chosen(
    [
        (PROVED, "after", "reboot"),
        (PROVED, "after", "release"),
        (UNFIT, "after", "roll_back"),
        (UNFIT, "after", "keep"),
    ]
)


def node(done, host):
    return replay(read_journal(done.run).entries).node(host)


def test_a_rollout_that_is_killed_in_one_step_after_another_is_finished_by_the_same_command(
    tmp_path,
):
    faults = {
        host: [f"dies {when} {step}" for name, when, step in DEATHS if name == host]
        for host in (PROVED, UNFIT)
    }
    faults[UNFIT].append("unhealthy smoke_alone")
    done = prepare(tmp_path, [[PROVED], [UNFIT]])
    for host, when, step in DEATHS:
        roll_out(done, faults)
        assert done.played.code == -signal.SIGKILL, done.played.output[-3000:]
        assert (tmp_path / "deaths").read_text().splitlines()[-1] == f"{host} {when} {step}"
        assert (node(done, host).begun, node(done, host).state) == (step, "unfinished")
    roll_out(done, faults)
    assert done.states() == {PROVED: "released", UNFIT: "kept"}
    assert done.drained() == [UNFIT]
    assert (done.boot(PROVED), done.boot(UNFIT)) == (f"{PROVED}-boot-2", f"{UNFIT}-boot-3")
    assert [kind for kind, _left in node(done, PROVED).boots] == ["reboot"]
    assert [kind for kind, _left in node(done, UNFIT).boots] == ["reboot", "reboot_back"]
