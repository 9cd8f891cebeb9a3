"""Decisions about a node of Slurm, state by state, and the owner of a drain."""

from __future__ import annotations

import pytest
from case_rows import case_rows

from unhang_node.base.parse.slurm import Job, Reservation, SlurmNode, parse_config, parse_states
from unhang_node.change.drain.reasons import (
    ANY_RUN,
    MAX_CHARACTERS,
    is_ours,
    is_sealed,
    reason_for,
    run_of,
    sealed,
)
from unhang_node.change.drain.slurm import check_name
from unhang_node.change.drain.slurm_decisions import (
    Asked,
    Host,
    Standing,
    decide_drain,
    decide_release,
    decide_wait,
    decide_window,
    drain_answer,
    is_own_reservation,
    name_of_machine,
    powers_down,
    takes_jobs,
)

ROWS = case_rows(__file__)

OURS, OTHERS, EARLIER = sealed("unhang r1: driver"), "bad DIMM", sealed("unhang r0: driver")
ASKED = Asked("r1", slurm_user="alice")


def standing(states, reason="", jobs=(), reservations=()):
    return Standing(
        SlurmNode("gpu001", parse_states(states), reason, "alice" if reason else "", {}),
        jobs,
        reservations,
    )


@pytest.mark.parametrize(
    ("states", "reason", "act", "refused", "note"),
    ROWS["test_what_is_drained_refused_and_left_alone"],
)
def test_what_is_drained_refused_and_left_alone(states, reason, act, refused, note):
    found = decide_drain(standing(states, reason), ASKED)
    assert found.act is act
    assert refused in found.refused
    assert note in found.note
    assert bool(found.refused) is bool(refused)


@pytest.mark.parametrize(
    ("known", "booted_at", "host", "refused"),
    [
        ("gpu001", 1_000_000, Host("gpu001", 1_000_000), False),
        ("gpu001", 1_000_000, Host("GPU001.example.org", 2_000_000), False),  # its clock was set
        ("gpu001-ib", 1_000_000, Host("node17", 1_000_400), False),  # known by another name
        ("gpu001", 1_000_000, Host("gpu002", 2_000_000), True),
        ("gpu001", 2_000_000, Host("gpu001x", 1_000_000), True),
        ("gpu001", 0, Host("gpu002", 2_000_000), False),  # its slurmd has never reported a time
        ("gpu001", 1_000_000, Host("gpu002", 0), False),
        ("", 1_000_000, Host("gpu002", 2_000_000), False),
    ],
)
def test_a_node_of_another_machine_is_not_drained(known, booted_at, host, refused):
    node = SlurmNode(
        "gpu001", parse_states("IDLE"), "", "", {"NodeHostName": known} if known else {}, booted_at
    )
    found = decide_drain(Standing(node), Asked("r1", host=host))
    assert bool(found.refused) is refused
    assert found.act is not refused
    if refused:
        assert (
            f"is {known}, which booted at another time, not the machine {host.name}:"
            " drain_node names another machine" in found.refused
        )
    ours = Standing(node._replace(states=parse_states("IDLE+DRAIN"), reason=OURS))
    assert not decide_drain(ours, Asked("r1", host=host)).refused


def test_a_machine_that_slurm_has_under_another_name_is_found_by_its_own_name():
    """Also after a power cut, when all boot times are alike."""
    crossed = [
        SlurmNode(name, parse_states("IDLE"), "", "", {"NodeHostName": host}, 1_000_000)
        for name, host in (("gpu001", "gpu002.example.org"), ("gpu002", "GPU001"), ("gpu003", "x"))
    ]
    assert name_of_machine(crossed, Host("gpu001.example.org", 1_000_000)) == "gpu002"
    assert name_of_machine(crossed, Host("node17", 1_000_000)) == ""
    several = [crossed[0], crossed[0]._replace(name="gpu004")]
    assert name_of_machine(several, Host("gpu002", 1_000_000)) == ""


def test_a_text_of_slurmctld_that_a_person_set_is_that_persons():
    found = decide_drain(standing("DOWN", "Not responding"), Asked("r1", slurm_user="slurm"))
    assert (found.act, "left so" in found.note) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        f"{OURS}; RMA 4711 (alice)",
        f"RMA 4711 {OURS}",
        OURS.replace("driver", "drivers"),
        "unhang r1: driver",
    ],
)
def test_a_reason_that_somebody_has_added_to_keeps_the_node_drained(text):
    assert decide_release(standing("IDLE+DRAIN", OURS), ASKED).act
    found = decide_release(standing("IDLE+DRAIN", text), ASKED)
    assert (found.act, "left so" in found.note) == (False, True)
    assert not drain_answer(standing("IDLE+DRAIN", text), ASKED).owned


def test_a_sealed_reason_is_no_longer_than_slurm_shows_and_is_known_as_a_whole():
    for reason in (reason_for("r1", "driver"), reason_for("r1", "x" * 500)):
        assert len(sealed(reason)) <= MAX_CHARACTERS
        assert is_sealed(sealed(reason))
        assert run_of(sealed(reason)) == "r1"
    assert not is_sealed("unhang r1: driver (000000)")


def test_who_has_the_lock_takes_over_a_node_that_an_ended_rollout_kept_and_nothing_that_a_person_drained():
    anybodys = Asked("r1", takes_over=ANY_RUN)
    assert decide_drain(standing("IDLE+DRAIN", EARLIER), anybodys).act
    assert not decide_drain(standing("IDLE+DRAIN", OTHERS), anybodys).act
    assert not decide_drain(standing("IDLE+DRAIN", f"{EARLIER} RMA 4711"), anybodys).act
    assert not decide_release(standing("IDLE+DRAIN", EARLIER), anybodys).act


@pytest.mark.parametrize("state", ["MIXED", "IDLE+MAINTENANCE"])
@pytest.mark.parametrize("takes_over", ["", ANY_RUN])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_node_that_another_run_waits_for_is_left_to_that_run_which_is_named(
    state, takes_over, is_active
):
    row = Reservation("unhang-r0-gpu001", "gpu001", ("MAINT",), "root", is_active=is_active)
    found, asked = standing(state, reservations=[row]), Asked("r1", takes_over=takes_over)
    assert not is_own_reservation(row, "gpu001", asked)
    window = decide_window(found, asked, 3600, 0)
    assert (
        decide_drain(found, asked).refused
        == window.refused
        == (
            "gpu001 is reserved for unhang's run r0, which waits for its jobs (unhang-r0-gpu001),"
            " and is left to it; next: unhang remediate r0 --apply goes on there, and unhang"
            " remediate --end r0 gives it back"
        )
    )
    mine = row._replace(name="unhang-r1-gpu001")
    assert not decide_window(standing(state, reservations=[mine]), asked, 3600, 0).refused


def test_the_same_run_may_give_another_reason():
    assert decide_drain(
        standing("IDLE+DRAIN", OURS),
        Asked("r1", reason=sealed("unhang r1: not proved: a link is down")),
    ).act
    assert not decide_drain(standing("IDLE+DRAIN", OURS), Asked("r1", reason=OURS)).act
    assert not decide_drain(standing("IDLE+DRAIN", OTHERS), Asked("r1", reason=OURS)).act


def test_a_run_that_is_over_is_taken_over_only_by_name():
    assert decide_drain(standing("IDLE+DRAIN", EARLIER), Asked("r1", takes_over="r0")).act
    assert not decide_drain(standing("IDLE+DRAIN", OTHERS), Asked("r1", takes_over="r0")).act
    assert decide_release(standing("IDLE+DRAIN", EARLIER), Asked("r1", takes_over="r0")).act


def test_a_reservation_is_refused_unless_it_is_named():
    reserved = standing(
        "IDLE+RESERVED+MAINTENANCE",
        reservations=[Reservation("night", "gpu001", ("MAINT",), "ops")],
    )
    assert "night (of ops, flags MAINT)" in decide_drain(reserved, ASKED).refused
    assert decide_drain(reserved, Asked("r1", reservations=["night"])).act


@pytest.mark.parametrize(
    ("states", "reason", "act", "note"),
    [
        ("IDLE+DRAIN", OURS, True, ""),
        ("DOWN+DRAIN", OURS, True, ""),
        ("IDLE", "", False, ""),
        ("IDLE", OURS, False, ""),
        ("IDLE+DRAIN", OTHERS, False, "drained by alice (bad DIMM): it is left so"),
        ("IDLE+DRAIN", "unhang r11: x", False, "unhang's run r11"),
        ("IDLE+DRAIN", "unhang r1", False, "left so"),
        ("IDLE+DRAIN", "see unhang r1: x", False, "left so"),
        ("DOWN", OTHERS, False, "left so"),
        ("DOWN", OURS, False, "left so"),
    ],
)
def test_only_a_drain_with_our_own_reason_is_ended(states, reason, act, note):
    found = decide_release(standing(states, reason), ASKED)
    assert (found.act, found.refused) == (act, "")
    assert note in found.note


def test_a_node_whose_slurmd_does_not_answer_is_not_released():
    assert (
        "it stays drained"
        in decide_release(standing("IDLE+DRAIN+NOT_RESPONDING", OURS), ASKED).refused
    )


def test_jobs_are_waited_for_and_so_are_those_that_squeue_does_not_list():
    job = Job("7", "COMPLETING", "alice", "")
    assert decide_wait(standing("IDLE+COMPLETING+DRAIN", OURS, [job]), ASKED).act
    hidden = standing("ALLOCATED+DRAIN", OURS)
    assert decide_wait(hidden, ASKED).act
    assert drain_answer(hidden, ASKED).jobs == [
        {"id": "", "user": "", "state": "ALLOCATED", "ends": ""}
    ]
    assert not decide_wait(standing("IDLE+DRAIN", OURS), ASKED).act
    assert not decide_wait(standing("IDLE+DRAIN", OTHERS), ASKED).act
    assert "somebody has ended the drain" in decide_wait(standing("MIXED"), ASKED).refused


def test_an_answer_names_whose_the_drain_is():
    assert drain_answer(standing("IDLE+DRAIN", OURS), ASKED) == (True, "alice", OURS, [], True, "")
    assert drain_answer(standing("IDLE+DRAIN", OTHERS), ASKED) == (
        True,
        "alice",
        OTHERS,
        [],
        False,
        "",
    )
    assert drain_answer(standing("IDLE"), ASKED) == (False, "", "", [], False, "")


@pytest.mark.parametrize(
    "why",
    [
        "driver 580.95.05",
        "two\nlines",
        "State=IDLE [root@2026-11-20T20:21:55]",
        "'; reboot",
        "",
        "x" * 5000,
        "\x1b[31mred\u202e",
    ],
)
def test_a_reason_is_one_line_in_which_its_run_is_found_again(why):
    reason = reason_for("20261120T070000Z-ctl1-4711", why)
    assert run_of(reason) == "20261120T070000Z-ctl1-4711"
    assert reason.isprintable()
    assert len(reason) <= 200
    assert not set("[]='\"\\") & set(reason)
    assert is_ours(reason, ("", "20261120T070000Z-ctl1-4711"))
    assert not is_ours(reason, ("", "20261120T070000Z-ctl1-471"))


@pytest.mark.parametrize("run", ["", "a b", "r1:", "r1\nr2", "x" * 81, "-r"])
def test_a_run_that_could_not_be_found_again_is_refused(run):
    with pytest.raises(ValueError, match="a run's id"):
        reason_for(run, "x")


@pytest.mark.parametrize(
    "name", ["gpu[1-4]", "a,b", "ALL", "all", "-x", "", "gpu001\n", "a b", "é"]
)
def test_a_name_that_is_not_one_nodes_is_refused(name):
    with pytest.raises(ValueError, match="is not the name of one node"):
        check_name(name)


@pytest.mark.parametrize(
    ("states", "plain", "in_our_reservation"),
    ROWS["test_whether_a_node_takes_jobs_now_by_its_states"],
)
def test_whether_a_node_takes_jobs_now_by_its_states(states, plain, in_our_reservation):
    node = standing(states).node
    assert (takes_jobs(node), takes_jobs(node, is_reserved=True)) == (plain, in_our_reservation)


CONFIG = """Configuration data as of 2026-11-22T15:13:00
SlurmctldParameters     = idle_on_node_suspend
SuspendExcNodes         = {nodes}
SuspendExcParts         = {parts}
SuspendExcStates        = {states}
SuspendProgram          = {program}
SuspendRate             = 60 nodes/min
SuspendTime             = {time}
"""
SAVING = {
    "nodes": "(null)",
    "parts": "(null)",
    "states": "(null)",
    "program": "/sbin/off",
    "time": "300 sec",
}


@pytest.mark.parametrize(
    ("given", "kept", "refused"),
    [
        ({}, (), True),
        ({"program": "(null)"}, (), False),
        ({"time": "INFINITE"}, (), False),
        ({"time": "NONE"}, (), False),
        ({"states": "DRAIN"}, (), False),
        ({"states": "down,drain"}, (), False),
        ({"states": "DOWN,CLOUD"}, (), True),
        ({"nodes": "gpu[001-008]"}, ("gpu001", "gpu002"), False),
        ({"nodes": "gpu[002-008]"}, ("gpu002",), True),
        ({"parts": "debug,gpu"}, (), False),
        ({"parts": "gpu:2"}, (), True),
    ],
)
def test_a_node_that_slurm_would_power_down_while_it_is_drained_is_not_drained(
    given, kept, refused
):
    node = SlurmNode("gpu001", parse_states("IDLE"), "", "", {"Partitions": "gpu,all"})
    why = powers_down(parse_config(CONFIG.format(**{**SAVING, **given})), node, kept)
    assert bool(why) is refused
    assert (
        not refused
        or "SuspendProgram and SuspendTime 300 sec are set: Slurm would power gpu001 down while it is changed"
        in why
    )
