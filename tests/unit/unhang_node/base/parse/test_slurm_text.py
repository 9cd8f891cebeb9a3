"""Slurm's output, including text that users can put into it. The lines are from Slurm 22.05.8."""

from __future__ import annotations

import json
import time

import pytest

from unhang_node.base.parse.slurm import (
    parse_jobs,
    parse_nodes,
    parse_nodes_json,
    parse_reservations,
    parse_states,
)

HEAD = (
    "NodeName=gpu001 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=5.56"
    " AvailableFeatures=h200,ib ActiveFeatures=h200,ib Gres=gpu:h200:2 NodeAddr=10.213.9.1"
    " NodeHostName=vm Port=7001 Version=22.05.8 "
)
OS = "OS=Linux 6.1.0-50-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1 "
TAIL = (
    " RealMemory=1 AllocMem=0 FreeMem=15808 Sockets=2 Boards=1 State={state} ThreadsPerCore=1"
    " TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=all,train  BootTime=2026-11-20T15:46:01"
    " SlurmdStartTime=2026-11-20T20:21:52 LastBusyTime=2026-11-20T20:21:53"
    " CfgTRES=cpu=2,mem=1M,billing=2 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0"
    " ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)


def line(state="IDLE", end="", system=OS):
    return f"{HEAD}{system}{TAIL.format(state=state)}{end}\n"


@pytest.mark.parametrize(
    ("written", "booted_at"),
    [
        ("2026-11-20T15:46:01", 1795189561),
        ("None", 0),
        ("Unknown", 0),
        ("2026-11-20", 0),
        ("9999999-01-01T00:00:00", 0),
    ],
)
def test_when_a_node_booted_is_read_as_utc_in_whatever_zone_the_machine_is(
    monkeypatch, written, booted_at
):
    for zone in ("UTC", "UTC+5"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        [node] = parse_nodes(
            line("IDLE", "").replace("BootTime=2026-11-20T15:46:01", f"BootTime={written}")
        )
        assert node.booted_at == booted_at
    monkeypatch.undo()
    time.tzset()


def test_a_nodes_states_fields_and_reason():
    [node] = parse_nodes(
        line("ALLOCATED+DRAIN", " Reason=unhang r1: two words [root@2026-11-20T20:21:55]")
    )
    assert (node.name, node.states, node.reason, node.by) == (
        "gpu001",
        {"ALLOCATED", "DRAIN"},
        "unhang r1: two words",
        "root",
    )
    assert {
        key: node.fields[key] for key in ("Gres", "ActiveFeatures", "Partitions", "NodeAddr")
    } == {
        "Gres": "gpu:h200:2",
        "ActiveFeatures": "h200,ib",
        "Partitions": "all,train",
        "NodeAddr": "10.213.9.1",
    }


def test_a_node_that_has_never_answered_has_no_system_and_no_features():
    text = (
        "NodeName=cpu01 Arch=x86_64 AvailableFeatures=(null) Gres=(null)"
        f" NodeAddr=cpu01{TAIL.format(state='UNKNOWN+NOT_RESPONDING')}\n"
    )
    [node] = parse_nodes(text)
    assert (node.states, node.reason, node.by) == ({"UNKNOWN", "NOT_RESPONDING"}, "", "")
    assert "Gres" not in node.fields
    assert "AvailableFeatures" not in node.fields


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (
            " Reason=bad DIMM Comment=x State=IDLE [root@2026-11-20T20:21:55]",
            "bad DIMM Comment=x State=IDLE",
        ),
        (
            " Reason=bad DIMM [root@2026-11-20T20:21:55] Comment=hello Reason=unhang r1: x",
            "bad DIMM",
        ),
        (" Reason=x [alice@2026-11-20T20:21:55] y [root@2026-11-20T20:21:56]", "x"),
        (" Reason=no user told", "no user told"),
        (" Comment=hello Extra=y", ""),
        (" Comment=hello Reason=bad DIMM [root@2026-11-20T20:21:55]", "bad DIMM"),
    ],
)
def test_a_reason_goes_to_where_slurm_says_who_set_it(end, reason):
    [node] = parse_nodes(line("IDLE+DRAIN", end))
    assert (node.states, node.reason) == ({"IDLE", "DRAIN"}, reason)


def test_a_reason_with_a_line_break_belongs_to_its_node():
    two = line(
        "IDLE+DRAIN", " Reason=unhang r9: new [root@2026-11-20T20:21:58]\n       line State=IDLE"
    ) + line().replace("gpu001", "gpu002")
    assert [(node.name, node.reason) for node in parse_nodes(two)] == [
        ("gpu001", "unhang r9: new"),
        ("gpu002", ""),
    ]


FORGED = "OS=Linux State=IDLE ThreadsPerCore=1 Reason=unhang r1: mine [root@2026-11-20T20:21:55] "


@pytest.mark.parametrize(
    "text",
    [
        line("IDLE+DRAIN", " Reason=bad DIMM", system=FORGED),
        line(
            "IDLE+DRAIN",
            " Comment=a Reason=unhang r1: forged [root@2026-11-20T20:21:55] Reason=bad DIMM"
            " [root@2026-11-20T20:21:56]",
        ),
        "slurm_load_node error: something\n",
        "NodeName= State=IDLE ThreadsPerCore=1\n",
        "NodeName=gpu001 State=IDLE\n",
    ],
    ids=[
        "a system's name that looks like a state",
        "a comment that looks like a reason",
        "an error",
        "no name",
        "cut",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(text):
    with pytest.raises(ValueError, match=r"must begin with|not one|this is not|lacks"):
        parse_nodes(text)


def test_nothing_is_no_node():
    assert parse_nodes("") == []


def test_states_of_older_releases():
    assert parse_states("IDLE*+DRAIN") == {"IDLE", "DRAIN", "NOT_RESPONDING"}
    assert parse_states("MIXED+DRAIN@") == {"MIXED", "DRAIN", "REBOOT_REQUESTED"}
    assert parse_states("idle~") == {"IDLE", "POWERED_DOWN"}


# `sinfo --json` of 22.05.8 printed this of a drained node; `scontrol --json` came with 23.02, where
# the states are a list, by its documentation.
JSON_22 = {
    "name": "gpu003", "address": "10.213.9.1", "hostname": "vm", "state": "idle",
    "state_flags": ["DRAIN"], "features": "h200,ib", "active_features": "h200,ib",
    "gres": "gpu:h200:2", "partitions": ["all", "train"], "operating_system": "Linux 6.1.0 #1 SMP",
    "reason": "bad DIMM Comment=x State=IDLE",
    "reason_changed_at": 1795207515, "reason_set_by_user": "root", "comment": "unhang r1: x",
    "slurmd_version": "22.05.8",
}  # fmt: skip
JSON_23 = {key: value for key, value in JSON_22.items() if key != "state_flags"} | {
    "state": ["IDLE", "DRAIN"],
    "active_features": ["h200", "ib"],
}
BOOTED = 1795189561
JSON_22 |= {"hostname": "node17", "boot_time": BOOTED}
JSON_23 |= {"hostname": "node17", "boot_time": {"set": True, "infinite": False, "number": BOOTED}}


@pytest.mark.parametrize("row", [JSON_22, JSON_23], ids=["22.05", "23.02"])
def test_json_says_the_same_as_text(row):
    [node] = parse_nodes_json(json.dumps({"meta": {}, "errors": [], "nodes": [row]}))
    assert (node.name, node.states, node.reason, node.by) == (
        "gpu003",
        {"IDLE", "DRAIN"},
        "bad DIMM Comment=x State=IDLE",
        "root",
    )
    assert node.fields == {
        "Gres": "gpu:h200:2",
        "ActiveFeatures": "h200,ib",
        "Partitions": "all,train",
        "NodeAddr": "10.213.9.1",
        "NodeHostName": "node17",
    }
    assert node.booted_at == BOOTED


@pytest.mark.parametrize(
    "shown", [None, 0, -1, True, "now", {"set": False, "number": 0}, {"number": "x"}, {}, []]
)
def test_a_time_that_is_none_is_not_known(shown):
    assert (
        parse_nodes_json(json.dumps({"nodes": [{**JSON_23, "boot_time": shown}]}))[0].booted_at == 0
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 100_000, '{"nodes": {}}', '{"nodes": [7]}',
        '{"nodes": [{"name": "a"}]}', '{"nodes": [{"name": "a", "state": []}]}',
        '{"nodes": [{"name": "a", "state": [7]}]}',
        '{"nodes": [{"name": "", "state": "idle"}]}',
        '{"nodes": [{"name": "a", "state": null, "state_flags": ["DRAIN"]}]}',
    ],
)  # fmt: skip
def test_json_of_another_form_is_refused(text):
    with pytest.raises(ValueError, match=r"not JSON with nodes|no list of nodes|lacks a name"):
        parse_nodes_json(text)


RESERVATION = (
    "ReservationName=maint1 StartTime=2026-11-20T20:21:56 EndTime=2026-11-20T21:21:56"
    " Duration=01:00:00 Nodes=gpu[003-004] NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null)"
    " Flags=MAINT,SPEC_NODES TRES=cpu=2 Users=root Groups=(null) Accounts=(null) Licenses=(null)"
    " State={} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)


def test_reservations_active_ones_and_future_ones():
    text = (
        RESERVATION.format("ACTIVE")
        + "\n"
        + RESERVATION.format("INACTIVE").replace("maint1", "later")
    )
    row, later = parse_reservations(text)
    assert (row.is_active, later.is_active, later.name) == (True, False, "later")
    assert row.ends - row.starts == 3600
    assert (row.name, row.nodes, row.flags, row.users) == (
        "maint1",
        "gpu[003-004]",
        ("MAINT", "SPEC_NODES"),
        "root",
    )
    assert parse_reservations("No reservations in the system\n") == []
    with pytest.raises(ValueError, match="a reservation lacks"):
        parse_reservations("Reservation: night\n")


def test_jobs_that_are_on_a_node_and_not_those_that_have_ended():
    jobs = parse_jobs(
        "7|RUNNING|alice|2026-11-21T10:00:00\n12_3|COMPLETING|bob|N/A\n13|PENDING|bob|N/A\n14|COMPLETED|bob|N/A\n15|SUSPENDED|eve|NONE\n\n"
    )
    assert [(job.id, job.state, job.user) for job in jobs] == [
        ("7", "RUNNING", "alice"),
        ("12_3", "COMPLETING", "bob"),
        ("15", "SUSPENDED", "eve"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "7|RUNNING|alice",
        "slurm_load_jobs error",
        "x|RUNNING|a|b",
        "7|running|a|b",
        "7|RUNNING|a|b|c",
    ],
)
def test_a_list_of_jobs_that_is_none_is_not_an_empty_one(text):
    with pytest.raises(ValueError, match="is not a job as ID"):
        parse_jobs(text)
