"""The first screen: its length, the lines that are always on it, and commands that can be
pasted."""

from __future__ import annotations

import re
import shlex

import fleets
import hostile
import pytest
from scattered_fleet import finding, fleet

from unhang.audit.report.screen import LINES, render_screen
from unhang.cli import command_and_parser
from unhang.core.nodeset import expand_limit
from unhang.core.run.actions import Setting


@pytest.mark.parametrize("width", [80, 132])
@pytest.mark.parametrize(
    ("nodes", "criticals", "others", "unread"),
    [(4, 1, 3, 1), (4, 0, 0, 0), (1000, 5, 60, 20), (300, 0, 60, 0), (300, 12, 120, 27)],
)
def test_it_is_one_screen_however_many_nodes_there_are(nodes, criticals, others, unread, width):
    lines = render_screen(
        fleet(nodes, criticals, others, unread),
        width,
        setting_of=lambda cause: Setting(list_file="runs/latest/limits/a-cause.txt"),
    ).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= width


def test_more_critical_causes_than_fit_have_a_line_each_and_nothing_else_is_shown():
    findings = fleet(300, 60, 10, 5)
    shown = render_screen(findings, 80)
    assert sum(line.startswith("CRITICAL ") for line in shown.splitlines()) == 60
    assert sum(line.startswith("UNREAD ") for line in shown.splitlines()) == 1
    assert re.search(r"and 10 more causes: 4 error, 3 warning, 3 info", shown)


def test_a_run_with_remarks_alone_does_not_say_that_nothing_was_found():
    document = fleets.document(
        [fleets.finding("a-remark", f"gpu{number}", "info", "t", "e", "f") for number in range(4)],
        {"ok": 4},
    )
    document |= {"causes": [], "totals_by_severity": {"info": 4}}
    assert "nothing above info on gpu[0-3] (4 remarks)" in render_screen(document, 80)
    assert "nothing found on gpu[0-3]" in render_screen(document | {"totals_by_severity": {}}, 80)


@pytest.mark.parametrize("owner", ["user", "sre", "facility", "vendor"])
def test_each_cause_names_who_acts(owner):
    found = fleets.document(
        [
            fleets.finding(
                "xid-fatal", "gpu007", "critical", "A GPU is lost", "no Xid", "Xid 79", owner=owner
            )
        ],
        {"ok": 1},
    )
    shown = render_screen(found, 100)
    assert f"[xid-fatal], for: {owner}\n" in shown
    assert ("\nvendor's ticket: unhang report runs/latest --host gpu007 -o ticket\n" in shown) == (
        owner == "vendor"
    )


def test_each_node_is_counted_once_in_words_that_say_nodes():
    findings = fleet(1000, 2, 9, 20)
    line = next(
        line
        for line in render_screen(findings, 80).splitlines()
        if line.startswith("1,000 nodes: ")
    )
    counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (\w+)", line.partition(": ")[2])
    }
    assert sum(counts.values()) == 1000
    assert counts == {
        verdict: len(hosts) for verdict, hosts in findings["node_verdicts"].items() if hosts
    }
    assert counts["unread"] == 20


def test_it_says_which_nodes_have_to_leave_service_and_which_can_wait():
    found = [
        finding("even", "n1", "critical"),
        finding("xx", "n2", "warning"),
        finding("odd", "n3", "error"),
        finding("odds3", "n2", "error"),
    ]
    shown = render_screen(
        fleets.document(
            [*found, finding("node-unreachable", "n9", "error")], {"ok": 4, "unreachable": 1}
        ),
        80,
    )
    assert (
        "\ncritical  n1: keep jobs off now\nerror     n[2-3]: repair next\nunread    n9: look why\n"
        in shown
    )
    narrow = render_screen(fleet(1000, 12, 20, 90), 40)
    assert "keep jobs off now" not in narrow
    assert all(
        re.fullmatch(r"gpu\d{5}|gpu\[.*|…", one)
        for one in re.findall(r"^(?:critical|unread)  (\S+?)(?:,|$)", narrow, re.MULTILINE)
    )


def test_each_error_has_its_line_and_a_warning_is_named_below_one_of_the_same_nodes():
    found = [
        finding("slow-port", "n1", "error"),
        finding("lost-gpu", "n1", "critical"),
        *(finding(f"slow-{number}", "n1", "warning") for number in range(6)),
        finding("slow", "n2", "warning"),
        finding("acs", "n3", "error"),
    ]
    lines = render_screen(fleets.document(found, {"ok": 3}), 100).splitlines()
    titles = [re.sub(r":.*", "", line) for line in lines if re.match(r"[A-Z]+ +n\d", line)]
    assert titles == ["CRITICAL  n1", "ERROR     n1", "ERROR     n3", "WARNING   n2"]
    assert [line for line in lines if line.startswith("  also")] == [
        "  also    warning slow-0, warning slow-1, warning slow-2, warning slow-3, and 2 more"
    ]


def test_no_set_of_nodes_is_broken_inside_a_number():
    sets = re.findall(r"gpu\[[^\]]*\]", render_screen(fleet(1000, 12, 20, 90), 80))
    assert len(sets) > 10
    assert {len(number) for one in sets for number in re.findall(r"\d+", one)} == {5}


def test_a_command_over_several_lines_is_the_command_when_it_is_pasted():
    findings = fleet(40, 1, 1, 0)
    pasted = re.findall(r"^  run     ((?:.*\\\n)*.*)$", render_screen(findings, 60), re.MULTILINE)
    known = {tuple(shlex.split(cause["command"])) for cause in findings["causes"]}
    assert pasted
    assert {tuple(shlex.split(text.replace("\\\n", " "))) for text in pasted} <= known


LONG = "/srv/cluster/tools/unhang/.venv/bin/unhang"


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("planned", [True, False])
def test_a_program_with_a_long_path_is_broken_where_it_can_be_pasted(width, planned):
    run = "/srv/cluster/runs/20261120T175745Z-0123456789"
    shown = render_screen(fleet(40, 1, 3, 2), width, program=LONG, run=run, planned=planned)
    below = shown[shown.index("every finding:") :]
    assert max(map(len, below.splitlines())) <= width
    foot = re.split(r"^(?:every finding|next):\s", shown, flags=re.MULTILINE)[1:]
    after = ["plan", run] if planned else ["report", run, "--format", "html"]
    assert [shlex.split(text.replace("\\\n", " ")) for text in foot] == [
        [LONG, "report", run, "-v"],
        [LONG, *after],
    ]


def test_hosts_of_a_command_are_what_the_limit_of_the_audit_takes():
    (cause,) = fleets.document(
        [finding("node-unreachable", f"gpu{number:03d}", "error") for number in (1, 2, 9)],
        {"unreachable": 3},
    )["causes"]
    assert sorted(expand_limit(shlex.split(cause["command"])[-1])) == ["gpu001", "gpu002", "gpu009"]


@pytest.mark.parametrize("hosts", [("-e",), ("-e", "gpu1"), ("--apply",)])
@pytest.mark.parametrize(
    ("rule", "status"), [("node-unreachable", "unreachable"), ("remove-ipc-on", "ok")]
)
def test_a_host_whose_name_begins_with_a_dash_is_no_option_of_a_command(hosts, rule, status):
    (cause,) = fleets.document(
        [finding(rule, host, "error") for host in hosts], {status: len(hosts)}
    )["causes"]
    _, name, *argv = shlex.split(cause["command"])
    given = command_and_parser(name)[1].parse_args(argv)
    assert sorted(expand_limit(given.host[0])) == sorted(hosts)


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_nothing_that_a_node_says_is_obeyed_by_the_terminal(text):
    findings = fleets.findings_that_say(text)
    shown = render_screen(fleets.document(findings, {"ok": 1}, id=text), 100)
    assert all(line.isprintable() for line in shown.split("\n"))


def test_a_conflict_is_said_with_both_reasons_instead_of_two_answers():
    found = fleets.document([finding("a", "n1", "critical")], {"ok": 1})
    sides = [
        {"wants": "driver.min: 580.65.06", "because": "a"},
        {"wants": "driver.version: 535.154.05", "because": "unhang_policy"},
    ]
    found["causes"][0]["remedy"]["conflicts"] = [
        {"key": "driver", "sides": sides, "decides": "unhang_policy decides"}
    ]
    shown = " ".join(render_screen(found, 100).split())
    assert (
        "conflict driver.min: 580.65.06 (a) against driver.version: 535.154.05 (unhang_policy);"
        " unhang_policy decides" in shown
    )


def test_the_run_the_day_the_rules_and_the_policy_are_named():
    found = fleets.document([], {"ok": 1}) | {"judged_by": {"policy": "next.yml", "rules": ["own"]}}
    first = " ".join(render_screen(found, 200).split("\n")[:1])
    assert (
        first
        == "run 2026-03-02T031407Z of 2026-03-02 03:14:31 UTC, judged 2026-03-02 by 87 rules (with"
        " own) and policy next.yml"
    )


@pytest.mark.parametrize(
    ("policies_from", "named"),
    [
        ("inventory", "the inventory's policy"),
        ("documents", "the policies in the nodes' documents"),
        ("none", "no policy"),
    ],
)
def test_without_a_policy_file_the_head_says_which_policies_were_used(policies_from, named):
    found = fleets.document([], {"ok": 1}) | {
        "judged_by": {"policy": None, "rules": [], "policies_from": policies_from}
    }
    assert render_screen(found, 200).split("\n")[0].endswith(f"by 87 rules and {named}")


ADVICE = (
    "drain the node, "
    + "look at the cable and at the switch port of the card, and keep it out of service until then,"
    " since jobs stop or share the rest"
)


def one_error(nodes="n1", severity="error", **remedy):
    found = [
        finding("slow-port", node, severity, remedy=remedy or {"person": ADVICE})
        for node in expand_limit(nodes)
    ]
    return render_screen(fleets.document(found, {"ok": len(found) + 1}), 100)


def test_advice_is_shown_whole_and_every_error_has_a_line_where_there_is_no_room_for_it():
    assert "since jobs stop or share the rest" in " ".join(one_error().split())
    many = fleets.document(
        [
            finding(f"slow-port-{number}", f"n{number}", "error", remedy={"person": ADVICE})
            for number in range(28)
        ],
        {"ok": 28},
    )
    shown = render_screen(many, 100)
    assert {f"slow-port-{number}" for number in range(28)} == set(
        re.findall(r"slow-port-\d+", shown)
    )
    assert shown.count("  do      drain the node") == shown.count("or share the rest")


def test_what_sources_say_otherwise_is_not_on_the_first_screen():
    shown = one_error(person="restart the machine. Sources disagree: gpud: reboot the node")
    assert "  do      restart the machine\n" in shown


BY_ROLE = {"role": "host_tuning", "policy": {"host": {"persistence": True}}}


@pytest.mark.parametrize(
    ("remedy", "named"), [({"person": "return the card"}, True), (BY_ROLE, False)]
)
def test_devices_are_named_for_a_ticket_only_where_no_role_repairs_the_cause(remedy, named):
    lost = finding(
        "slow-port",
        "n1",
        "error",
        remedy=remedy,
        where={"gpu": 3, "uuid": "GPU-1", "pci_address": "0000:41:00.0"},
    )
    assert ("  ticket  n1 GPU 3" in render_screen(fleets.document([lost], {"ok": 1}), 100)) is named


def test_what_was_found_is_on_the_first_screen_and_the_last_to_be_left_out():
    found = [
        fleets.finding("bad", f"n{place}", "error", "t", "e", f"Xid {place}", where={"code": place})
        for place in range(40)
    ]
    shown = render_screen(fleets.document(found[:1] * 3, {"ok": 1}), 100)
    assert "\n  found   Xid 0 (and 2 more)\n  do" in shown
    shown = render_screen(fleets.document(found[:13], {"ok": 13}), 100)
    assert shown.count("\n  found") == 13 > shown.count("\n  do") > 0
    failed = fleets.finding("node-failed", "gpu3", "error", "Not read", "facts", "no such timeout")
    document = fleets.document([failed], {"failed": 1})
    document["causes"][0]["unread"] = True
    assert "\n  found   no such timeout\n" in render_screen(document, 100)
