"""A rollout in a real Slurm with many failures: slurmctld is down, a smoke test fails after the
fix, a node loses power, a disk is full, a clock is wrong."""

from __future__ import annotations

import json
import time
import types

import audits
import pytest
import shifted_clock
import slurm_nodes
import torch_in_nodes
from slurm_site import DEADLINE_S, SMOKE, Site, boot_ids, entries, node_of, states

NAMES = tuple(f"gpu{number:03d}" for number in range(1, 5))
CANARY, UNFIT, GONE, FULL = NAMES
RULE = "cuda-visible-devices-pinned"
PINNED = "SITE=1\nCUDA_VISIBLE_DEVICES=0\n"
AWAY_S = 60
SHORT_S = 20
LEFT = "umount /var/lib/unhang 2>/dev/null; rm -rf /var/lib/unhang"
pytestmark = slurm_nodes.marks(3000)


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """Runs it once; gives the result of each part for the tests."""
    work = tmp_path_factory.mktemp("day")
    with slurm_nodes.cluster_of(NAMES, fake_library, work) as cluster:
        fleet = cluster.fleet
        for name in NAMES:
            fleet.plant(name, "/etc/environment", PINNED)
            fleet.undo.callback(fleet.shell, name, LEFT)
        fleet.shell(
            FULL,
            "mkdir -p /var/lib/unhang && mount -t tmpfs -o size=4k none /var/lib/unhang && head -c"
            " 4096 /dev/zero > /var/lib/unhang/filled",
        )
        shifted_clock.plant(fleet, CANARY, work)
        crash = {"smoke_test_arguments": [*SMOKE, "--drill", f"{UNFIT}:crash:all_reduce"]}
        yield lived(
            cluster,
            Site(
                cluster,
                work,
                None,
                None,
                {UNFIT: crash, CANARY: {"ansible_python_interpreter": shifted_clock.INTERPRETER}},
            ),
        )


def lived(cluster, site):
    """Two rollouts of one plan: the first ends with the node that lost power, the second continues
    when the node is back."""
    run = site.audit()
    waves = [
        wave["hosts"]
        for wave in site.plan(run, "--rule", RULE, "--max-unavailable", "3", "--floor", "1")[
            "waves"
        ]
    ]
    with site.remediating(run, torch_in_nodes.PYTHON, "--max-failed", "1") as process:
        site.await_step(process, run, CANARY, "apply", "begun")
        away_before_the_change(cluster, run)
        site.await_step(process, run, CANARY, "apply", "done")
        away_for_a_minute(cluster, site, process, run)
        site.await_step(process, run, GONE, "apply", "done")
        cluster.fleet.nodes[GONE].power_off()
        first_code = process.wait(timeout=DEADLINE_S)
    first = reported(cluster, site, run)
    cluster.fleet.nodes[GONE].boot()
    audits.wait_until(
        lambda: (
            not set(cluster.state(GONE)[0].replace("*", "+*").split("+"))
            & {"DOWN", "*", "NOT_RESPONDING"}
        ),
        f"slurmctld has {GONE} again",
    )
    with site.remediating(run, torch_in_nodes.PYTHON, "--max-failed", "1") as process:
        second_code = process.wait(timeout=DEADLINE_S)
    codes = (first_code, second_code)
    return types.SimpleNamespace(
        run=run,
        waves=waves,
        codes=codes,
        first=first,
        second=reported(cluster, site, run),
        cluster=cluster,
        site=site,
    )


def away_before_the_change(cluster, run):
    """slurmctld ends when the canary's jobs are looked for once more. No answer means no change:
    the rollout waits for it."""
    cluster.stop_controller()
    time.sleep(SHORT_S)
    cluster.start_controller()
    assert node_of(run, CANARY).state not in ("deferred", "kept")


def away_for_a_minute(cluster, site, process, run):
    """slurmctld ends after the canary was changed, and returns after the canary asked for its jobs
    before the smoke test without success."""
    cluster.stop_controller()
    stopped = time.monotonic()
    site.await_step(process, run, CANARY, "smoke_alone", "begun")
    audits.wait_until(lambda: time.monotonic() - stopped > AWAY_S, "the minute is over")
    assert node_of(run, CANARY).begun == "smoke_alone"
    cluster.start_controller()


def reported(cluster, site, run):
    """The state of the nodes: in the journal, in Slurm, by `--status`, and on the nodes that are
    on."""
    shown = json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))
    on = [name for name in NAMES if cluster.fleet.nodes[name].leader]
    files = {
        name: cluster.fleet.shell(
            name, "cat /etc/environment; ls /var/lib/unhang | grep lock.json || true"
        )
        for name in on
    }
    slurm = {name: cluster.state(name) for name in NAMES}
    return types.SimpleNamespace(
        states=states(run, NAMES),
        slurm=slurm,
        rows={row["host"]: row for row in shown["hosts"]},
        files=files,
    )


def reason(day):
    return f"unhang {day.run.name}: "


def test_the_plan_has_a_canary_and_two_waves(day):
    assert day.waves == [[CANARY], [UNFIT, GONE], [FULL]]


def test_a_slurmctld_that_is_away_for_a_minute_is_waited_for(day):
    assert day.first.states[CANARY] == "released"
    assert day.first.slurm[CANARY][0] == "IDLE"
    assert len(entries(day.run, CANARY, "release", "begun")) == 1


def test_a_node_whose_smoke_test_fails_after_the_fix_is_rolled_back_and_left_drained_with_the_reason(
    day,
):
    assert day.first.states[UNFIT] == "kept"
    assert day.first.rows[UNFIT]["why"].startswith(f"smoke_alone: the smoke test of {UNFIT}: ")
    states_, why = day.first.slurm[UNFIT]
    assert states_ == "IDLE+DRAIN"
    assert why.startswith(reason(day) + "smoke_alone: ")
    assert day.first.files[UNFIT] == PINNED
    assert day.second.slurm[UNFIT][1].rpartition(" [")[0] == why.rpartition(" [")[0]


def test_a_node_that_vanishes_stops_everything_and_stays_drained(day):
    assert day.codes[0] == 1
    assert day.first.states[GONE] == "unfinished"
    assert "DRAIN" in day.first.slurm[GONE][0]
    assert day.first.slurm[GONE][1].startswith(reason(day))
    assert (day.first.states[FULL], day.first.files[FULL]) == ("to come", PINNED)
    assert "no answer after it was changed" in day.site.output


def test_the_same_command_goes_on_when_the_node_is_back(day):
    assert day.second.states[GONE] == "released"
    assert day.second.slurm[GONE][0] == "IDLE"
    assert "# disabled by unhang: CUDA_VISIBLE_DEVICES=0" in day.second.files[GONE]
    assert (
        len(entries(day.run, CANARY, "apply", "begun"))
        == len(entries(day.run, GONE, "apply", "begun"))
        == 1
    )
    assert boot_ids(day.cluster.fleet, [GONE])[GONE] == node_of(day.run, GONE).boot_id
    assert node_of(day.run, GONE).boots == ()


def test_a_node_whose_disk_is_full_is_named_and_released_as_it_was(day):
    assert day.second.states[FULL] == "deferred"
    assert "No space left on device" in day.second.rows[FULL]["why"]
    assert day.second.slurm[FULL][0] == "IDLE"
    assert day.second.files[FULL] == PINNED


def test_a_clock_that_is_a_day_ahead_keeps_no_node_from_being_proved(day):
    ahead = day.cluster.fleet.shell(
        CANARY, f"{shifted_clock.INTERPRETER} -c 'import time; print(int(time.time()))'; date +%s"
    ).split()
    assert int(ahead[0]) - int(ahead[1]) > 80_000
    assert day.first.states[CANARY] == "released"


def test_no_lock_is_left_and_only_what_is_named_is_drained(day):
    assert [name for name in NAMES if "lock.json" in day.second.files[name]] == []
    drained = day.cluster.must(
        "sinfo", "--noheader", "--Node", "--states=drain,drained,draining,down", "--format=%N"
    ).split()
    assert drained == [name for name in NAMES if day.second.rows[name]["drained"]] == [UNFIT]
    assert day.codes[1] == 1
