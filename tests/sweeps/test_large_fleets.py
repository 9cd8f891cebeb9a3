"""The cost of a rollout's step is independent of the size of the fleet: counted in calls and bytes
read, not in time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from rollout_plans import EVIDENCE, planned

from unhang.act.plan.plan_document import FILE, Plan, Wave, write_plan
from unhang.act.rollout import conductor
from unhang.act.rollout.conductor import begin
from unhang.act.rollout.for_ansible import conductor_of, plan_of
from unhang.act.rollout.steps import STEPS, StepResult
from unhang.core.errors import UserError

WAVE = 5


def fleet(folder, count):
    """(rollout, the last wave) of this many nodes; all waves before the last have finished."""
    folder.mkdir()
    example = planned(folder)
    hosts = [f"gpu{number:05d}" for number in range(count)]
    entries = tuple(replace(example.hosts[0], host=host, boot_id=f"{host}-boot") for host in hosts)
    waves = [
        Wave("canary 1" if at == 0 else f"wave {at}", tuple(hosts[at : at + WAVE]))
        for at in range(0, count, WAVE)
    ]
    limits = structs.replace(example.limits, max_unavailable=WAVE, in_service=count, groups=())
    write_plan(folder, Plan(example.run, example.day, limits, entries, tuple(waves)))
    rollout = {
        "folder": str(folder),
        "epoch": begin(folder, hosts, {"by": "ops"}, lambda _holder: True, "")["epoch"],
        "read": "",
    }
    for wave in waves[:-1]:
        play(rollout, wave.hosts)
    return rollout, waves[-1].hosts


def play(rollout, hosts):
    """Runs every step of a batch; gives the final states."""
    for step in STEPS:
        for host in hosts:
            order = conductor_of(rollout).ask(host, step, {}, "0")
            if order is not None:
                conductor_of(rollout).record(
                    order,
                    StepResult(
                        "ok", {**EVIDENCE[step], "boot_id": f"{host}-boot", "needs_reboot": False}
                    ),
                )
    return {conductor_of(rollout).standing().node(host).state for host in hosts}


def calls_of(work):
    """How many functions are called, those of C too."""
    found = []
    sys.setprofile(
        lambda _frame, event, _given: found.append(event) if event in ("call", "c_call") else None
    )
    try:
        done = work()
    finally:
        sys.setprofile(None)
    return done, len(found)


def read_by_this_process():
    """Bytes that were read from files so far."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no /proc/self/io")
def test_a_wave_of_a_fleet_ten_times_as_large_takes_the_same_calls_and_reads_the_same_bytes(
    tmp_path,
):
    costs = []
    for count in (10, 100):
        rollout, hosts = fleet(tmp_path / str(count), count)
        conductor_of(rollout).standing()
        before = read_by_this_process()
        states, calls = calls_of(lambda rollout=rollout, hosts=hosts: play(rollout, hosts))
        assert states == {"released"}
        costs.append((calls, read_by_this_process() - before))
    (calls_small, bytes_small), (calls_large, bytes_large) = costs
    assert calls_large < calls_small * 1.2
    assert bytes_large < bytes_small * 1.2


def test_a_plan_is_read_once_and_again_when_it_is_another(tmp_path):
    plan = planned(tmp_path)
    assert plan_of(tmp_path) is plan_of(tmp_path / FILE)
    other = replace(plan, day="2026-11-21")
    write_plan(tmp_path, other)
    assert plan_of(tmp_path) == other
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace('"day": "2026-11-21"', '"day": "2026-11-22"'))
    with pytest.raises(UserError, match="was edited since"):
        plan_of(tmp_path)


def test_one_process_follows_a_journal_and_each_controller_has_its_own_number(tmp_path):
    planned(tmp_path)
    rollouts = [
        {
            "folder": str(tmp_path),
            "epoch": begin(tmp_path, "abc", {"by": "ops"}, lambda _holder: True, "")["epoch"],
        }
        for _ in range(2)
    ]
    first, second = (conductor_of(rollout) for rollout in rollouts)
    assert first.followed is second.followed
    assert (first.epoch, second.epoch) == (1, 2)
    assert first.standing().epoch == 2
    with pytest.raises(conductor.journal.Superseded):
        first.end()
