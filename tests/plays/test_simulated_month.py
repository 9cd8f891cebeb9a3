"""A fleet of 1,000 nodes for a month: rollouts, undos and ends of rollouts, with jobs, people,
broken nodes, lost connections, schedulers and controllers; and wrong state machines, each of which
is found.

`make simulate` plays 40 months (SIMULATED_MONTHS); 2 by default.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from types import SimpleNamespace

import pytest
from month_people import Month

from unhang.act.rollout import failure_limit, state_machine
from unhang.act.rollout.floor import Floor
from unhang.act.rollout.steps import DONE, PROOFS

MONTHS = int(os.environ.get("SIMULATED_MONTHS", "2"))
DAYS = 30
DAYS_FOR_A_WRONG_MACHINE, SEEDS_FOR_A_WRONG_MACHINE = 4, 12


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(MONTHS))
def test_in_a_month_no_node_is_harmed_beyond_the_limits_or_forgotten_and_no_job_is_killed(seed):
    month = Month(seed)
    month.play(DAYS)
    forgotten = month.finish()
    sys.stdout.write(f"seed {seed}: {len(month.rollouts)} rollouts, {dict(month.checker.counts)}\n")
    assert month.checker.faults == []
    assert forgotten == []
    assert month.checker.counts["change"] > 1000


def with_functions(**wrong):
    """A machine with these functions in place of its own."""
    names = ("next_order", "judge", "refusal", "may_act")
    rules = SimpleNamespace(
        **{name: wrong.get(name, getattr(state_machine, name)) for name in names}
    )
    limits = SimpleNamespace(
        **{name: wrong.get(name, getattr(failure_limit, name)) for name in ("admit", "why_not")}
    )
    return {
        "rules": rules,
        "failure_limit": limits,
        **({"floor": wrong["floor"]} if "floor" in wrong else {}),
    }


def waits_for_no_job(order, answer, target):
    status, evidence = state_machine.judge(order, answer, target)
    return (
        (DONE, evidence)
        if order.step in ("drain", "wait") and answer.status == "ok"
        else (status, evidence)
    )


def sees_no_group(standing, wave, limits, ending=""):
    return failure_limit.admit(standing, wave, dataclasses.replace(limits, groups=()), ending)


def has_no_limit(*_):
    return None


def has_no_floor(service, ours, floor):
    return Floor(len(service.in_service) + len(service.out), "")


def releases_unproved(node, target, epoch, stopped=None, ending=""):
    return state_machine.next_order(
        dataclasses.replace(node, proofs=dict.fromkeys(PROOFS, node.boot_id)),
        target,
        epoch,
        stopped,
        ending,
    )


def forgets_a_withdrawn_node(node, target, epoch, stopped=None, ending=""):
    order = state_machine.next_order(node, target, epoch, stopped, ending)
    return None if order and order.step == "release" and not node.changed else order


def ends_without_a_word(node, target, epoch, stopped=None, ending=""):
    order = state_machine.next_order(node, target, epoch, stopped, ending)
    return (
        dataclasses.replace(order, why="") if order and order.step == "keep" and ending else order
    )


def boots_as_often_as_it_likes(node, target, epoch, stopped=None, ending=""):
    order = state_machine.next_order(node, target, epoch, stopped, ending)
    return (
        dataclasses.replace(order, boot_id=node.boot_id, reboots_left=9)
        if order and order.step == "reboot"
        else order
    )


WRONG = {
    "has no group limits": {"admit": sees_no_group, "why_not": has_no_limit},
    "has no floor": {"floor": has_no_floor},
    "releases what was not proved": {"next_order": releases_unproved},
    "forgets a node that it withdraws": {"next_order": forgets_a_withdrawn_node},
    "ends a rollout without a reason": {"next_order": ends_without_a_word},
    "boots a node again": {"next_order": boots_as_often_as_it_likes, "may_act": has_no_limit},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_month_finds_a_machine_that(wrong):
    assert any(faults_of(seed, wrong) for seed in range(SEEDS_FOR_A_WRONG_MACHINE))


def faults_of(seed, wrong):
    month = Month(seed, with_functions(**WRONG[wrong]))
    month.play(DAYS_FOR_A_WRONG_MACHINE)
    return month.checker.faults or month.finish()


def test_a_step_that_does_not_look_for_jobs_is_found():
    """The steps on a node ask the scheduler themselves, before a change and before a boot: without
    that a month kills jobs."""
    month = Month(0, with_functions(judge=waits_for_no_job))
    month.fleet._in_use = lambda node, step: None
    month.play(DAYS_FOR_A_WRONG_MACHINE)
    assert any("under ['job" in fault for fault in month.checker.faults)
