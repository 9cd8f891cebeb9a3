"""The course of a smoke test over simulated nodes: what is tried after a failure, in which order,
within which limits; and the same through a folder."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace

from unhang.core.schemas.check import check_schema
from unhang.core.smoke_result import document_of
from unhang.smoke.container import Container
from unhang.smoke.group import SessionOptions
from unhang.smoke.node_plans import Request, parse_drill
from unhang.smoke.result import judge
from unhang.smoke.session import RoundResult, follow, phase_of_search, smoke_session
from unhang.smoke.smoke_folder import StepInputs, file_name, next_step, read_result
from unhang.smoke.streams import Stream, parse_events
from unhang.smoke.suspects import Suspect

NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
BEGUN = ("environment", "binding", "rendezvous", "consistency", "init")


def survey(place, interfaces=("eth0", "eth1")):
    """A node's answer."""
    rows = [
        {"name": name, "up": True, "kind": "physical", "addresses": [f"10.{number}.0.{place}/24"]}
        for number, name in enumerate(interfaces)
    ]
    routes = [{"dst": f"10.{number}.0.0/24", "dev": name} for number, name in enumerate(interfaces)]
    return {"e": "survey", "interfaces": rows, "routes": routes, "gpus": []}


SURVEYS = {name: survey(place + 1) for place, name in enumerate(NAMES)}


def events_of(plan):
    """The events of a node's agent: its drilled ranks end with code 7 in the requested phase, the
    others raise an error."""
    document = plan if isinstance(plan, dict) else plan.document
    rank, phase = document["rank_offset"], document["phases"][-1]
    hit = {drill["rank"] for drill in document["drills"]}
    events = [{"e": "phase_begin", "rank": rank, "phase": name} for name in (*BEGUN, phase)]
    events += [
        {
            "e": "phase_end",
            "rank": rank,
            "phase": name,
            "status": "ok",
            "duration_s": 0.1,
            "result": {},
        }
        for name in BEGUN
    ]
    if rank in hit:
        events.append(
            {"e": "exit", "rank": rank, "code": 7, "signal": None, "phase": phase, "seq": 1}
        )
    elif document["drills"]:
        events.append(
            {
                "e": "phase_end",
                "rank": rank,
                "phase": phase,
                "status": "error",
                "message": "connection closed",
                "result": None,
            }
        )
    else:
        events += [
            {
                "e": "phase_end",
                "rank": rank,
                "phase": phase,
                "status": "ok",
                "duration_s": 0.1,
                "result": {},
            },
            {"e": "rank_end", "rank": rank},
        ]
    return [*events, {"e": "node_end"}]


class Nodes:
    """Runs groups of simulated nodes, and records them."""

    def __init__(self):
        self.tried = []

    def run(self, plans):
        self.tried.append((tuple(plan.host for plan in plans), plans[0].document))
        lines = [[json.dumps(event).encode() for event in events_of(plan)] for plan in plans]
        return [
            Stream(plan.host, plan.ranks, tuple(parse_events(output, plan.ranks)))
            for plan, output in zip(plans, lines, strict=True)
        ]


def smoke(*drills, options=None, surveys=SURVEYS):
    """(result, groups that were tried)."""
    request = Request(
        backend="gloo", phases=("all_reduce",), drills=tuple(map(parse_drill, drills))
    )
    nodes = Nodes()
    result = follow(
        smoke_session(list(surveys), surveys, request, options or SessionOptions(nproc=1)),
        nodes.run,
    )
    result = document_of(result)
    assert list(check_schema(result, "smoke-1")) == []
    return result, nodes.tried


def test_a_group_that_passes_is_started_once():
    result, tried = smoke()
    assert result["verdict"] == "pass"
    assert [hosts for hosts, _ in tried] == [NAMES]
    assert (result["experiments"], result["isolation"]) == ([], None)


def test_after_a_failure_come_experiments_with_another_interface_and_then_pairs():
    result, tried = smoke("gpu003:exit")
    assert [row["name"] for row in result["experiments"]] == [
        "the same again",
        "one rank alone",
        "interface eth1",
    ]
    assert tried[3][1]["environment"] == {"GLOO_SOCKET_IFNAME": "eth1"}
    assert result["isolation"]["bad_nodes"] == ("gpu003",)
    assert {("gpu001", "gpu002"), ("gpu003", "gpu004")} <= {hosts for hosts, _ in tried[4:]}
    assert all(
        document["phases"] == ["all_reduce"] and document["rendezvous_timeout_s"] < 60
        for _, document in tried[4:]
    )


@pytest.mark.parametrize(
    "options, experiments, isolated",
    [
        (SessionOptions(1, experiments=False), 0, True),
        (SessionOptions(1, isolate=False), 3, False),
    ],
)
def test_both_can_be_left_out(options, experiments, isolated):
    result, _ = smoke("gpu003:exit", options=options)
    assert (len(result["experiments"]), result["isolation"] is not None) == (experiments, isolated)


SWITCHES = {"gpu001": "a", "gpu002": "a", "gpu003": "b", "gpu004": "b"}
ACROSS = [f"{one}+{other}:exit" for one in NAMES[:2] for other in NAMES[2:]]


@pytest.mark.parametrize(
    "drills, answer, why",
    [
        (ACROSS, "only across switch a and b", "fails only across switch a and b"),
        (["*4:exit"], "only from 4 nodes on", "fails only from 4 nodes on"),
        (
            ["gpu002+gpu003:exit"],
            "bad link between gpu002 and gpu003, each is good with others",
            "a bad link between two good nodes",
        ),
    ],
)
def test_what_is_no_nodes_fault_is_a_suspect_of_its_own(drills, answer, why):
    result, _ = smoke(*drills, options=SessionOptions(1, experiments=False, switches=SWITCHES))
    assert result["isolation"]["answer"] == answer
    assert any(why in suspect["why"] and suspect["host"] is None for suspect in result["suspects"])


def test_a_slow_node_is_isolated_by_what_the_others_take_in_the_whole_group():
    def paced(plan, slow):
        time_us = 900.0 if plan.host == slow else 100.0 + plan.ranks[0]
        ended = {
            "e": "phase_end",
            "rank": plan.ranks[0],
            "status": "ok",
            "duration_s": 0.1,
            "result": {"pace_us": time_us},
        }
        shown = [
            {"e": "phase_begin", "rank": plan.ranks[0], "phase": name} for name in (*BEGUN, "pace")
        ]
        shown += [{**ended, "phase": name} for name in (*BEGUN, "pace")]
        return Stream(
            plan.host,
            plan.ranks,
            (*shown, {"e": "rank_end", "rank": plan.ranks[0]}, {"e": "node_end"}),
        )

    request = Request(backend="gloo", phases=("pace",))
    course = smoke_session(NAMES, SURVEYS, request, SessionOptions(1, experiments=False))
    result = follow(course, lambda plans: [paced(plan, "gpu003") for plan in plans])
    assert [suspect.host for suspect in result.suspects] == ["gpu003"]
    assert result.isolation.bad_nodes == ("gpu003",)


def test_the_search_ends_when_its_time_is_over():
    request = Request(backend="gloo", phases=("all_reduce",), drills=(parse_drill("gpu003:exit"),))
    course = smoke_session(NAMES, SURVEYS, request, SessionOptions(1, search_timeout=25.0))
    nodes, rounds = Nodes(), 0
    wanted = next(course)
    with pytest.raises(StopIteration) as done:
        while True:
            rounds += 1
            wanted = course.send(RoundResult([nodes.run(group) for group in wanted.groups], 10.0))
    assert rounds == 4  # the group, and three more until the time was used up
    result = document_of(done.value.value)
    assert "given up after" in result["isolation"]["answer"]
    assert list(check_schema(result, "smoke-1")) == []


def test_nodes_that_did_not_come_to_the_rendezvous_are_cleared_when_only_the_way_to_them_is_broken():
    lost = judge([])
    lost = replace(lost, verdict="fail", suspects=[accused("gpu003", "rendezvous")])
    assert phase_of_search(lost) == "init"
    both = [*lost.suspects, accused("gpu001", "environment")]
    assert phase_of_search(replace(lost, suspects=both)) is None
    assert phase_of_search(replace(lost, verdict="error")) is None


def accused(host, phase):
    return Suspect(host, None, None, phase, "", "")


def written(folder, *drills, switches=None):
    """A folder with all surveys, as the playbook creates it."""
    for part in ("surveys", "rounds", "notes"):
        (folder / part).mkdir(parents=True)
    (folder / "hosts.json").write_text(
        json.dumps(
            {
                "hosts": NAMES,
                "switches": switches or {},
                "command": "ansible-playbook playbooks/smoke.yml",
            }
        )
    )
    for name, answer in SURVEYS.items():
        (folder / "surveys" / file_name(name, ".json")).write_text(json.dumps(answer) + "\n")
    return Request(backend="gloo", phases=("all_reduce",), drills=tuple(map(parse_drill, drills)))


def bring(folder, step, without=()):
    """The events of the nodes of a round; nodes without events add nothing."""
    place = folder / "rounds" / f"{step['round']:03d}"
    for host in step["hosts"]:
        if host not in without:
            plan = json.loads((place / "plans" / file_name(host, ".json")).read_text())["plan"]
            (place / "events" / file_name(host, ".jsonl")).write_text(
                "".join(json.dumps(event) + "\n" for event in events_of(plan))
            )


@pytest.mark.parametrize("drills", [(), ("gpu003:exit",), tuple(ACROSS), ("*4:exit",)])
def test_through_a_folder_it_takes_the_same_rounds_to_the_same_result(tmp_path, drills):
    request = written(tmp_path, *drills, switches=SWITCHES)
    known, rounds = StepInputs(request, SessionOptions(1)), []
    while (step := next_step(tmp_path, known))["round"]:
        rounds.append(step["what"])
        bring(tmp_path, step)
    direct, tried = smoke(*drills, options=SessionOptions(1, switches=SWITCHES))
    result = document_of(read_result(tmp_path))
    for name in ("verdict", "suspects", "isolation", "phases", "hosts"):
        assert result[name] == direct[name]
    assert [row["verdict"] for row in result["experiments"]] == [
        row["verdict"] for row in direct["experiments"]
    ]
    assert len(rounds) <= len(tried)
    assert (result["launcher"], result["command"]) == (
        "ansible",
        "ansible-playbook playbooks/smoke.yml",
    )
    assert list(check_schema(result, "smoke-1")) == []


def test_a_host_that_brings_nothing_is_named_with_what_was_written_beside(tmp_path):
    request = written(tmp_path)
    known = StepInputs(request, SessionOptions(1, experiments=False, isolate=False))
    step = next_step(tmp_path, known)
    bring(tmp_path, step, without=("gpu002", "gpu003"))
    (tmp_path / "rounds" / "001" / "events" / "gpu002.why").write_text(
        "its results\x1b[2J could not be fetched: gone\n"
    )
    (tmp_path / "notes" / "gpu001.001.txt").write_text("gpu001\t/tmp/x could not be removed\n")
    assert next_step(tmp_path, known)["round"] == 0
    result = document_of(read_result(tmp_path))
    problems = {row["host"]: row["problem"] for row in result["hosts"]}
    assert problems["gpu001"] is problems["gpu004"] is None
    assert problems["gpu002"].startswith("its results")
    assert "\x1b" not in problems["gpu002"]
    assert problems["gpu003"] == "its results could not be fetched"
    assert result["notes"] == [{"host": "gpu001", "text": "/tmp/x could not be removed"}]
    assert all(suspect["blind"] for suspect in result["suspects"])


def test_a_host_that_gave_no_survey_takes_no_part_and_is_named(tmp_path):
    request = written(tmp_path)
    os.unlink(tmp_path / "surveys" / "gpu004.json")
    (tmp_path / "surveys" / "gpu004.why").write_text("no route to host")
    step = next_step(tmp_path, StepInputs(request, SessionOptions(1)))
    assert step["hosts"] == ["gpu001", "gpu002", "gpu003"]


def test_an_image_is_told_to_each_node_with_its_folder_left_open(tmp_path):
    request = written(tmp_path)
    next_step(
        tmp_path,
        StepInputs(request, SessionOptions(1), Container("users.img", "podman", gpus=False)),
    )
    work = json.loads((tmp_path / "rounds" / "001" / "plans" / "gpu001.json").read_text())
    assert work["program"][:2] == ["podman", "run"]
    assert "{place}:{place}" in work["program"]
    assert work["deadline_s"] > work["plan"]["total_timeout_s"]


def test_other_gpus_than_the_peers_are_named_and_the_others_go_on():
    surveys = {
        name: {**answer, "gpus": [{"model": "H200"}] * 8} for name, answer in SURVEYS.items()
    }
    surveys["gpu002"]["gpus"] = [{"model": "A100"}] * 8
    result, tried = smoke(surveys=surveys)
    assert [hosts for hosts, _ in tried] == [("gpu001", "gpu003", "gpu004")]
    [suspect] = result["suspects"]
    assert suspect["host"] == "gpu002"
    assert "its peers have 8 × H200, it has 8 × A100" in suspect["why"]
