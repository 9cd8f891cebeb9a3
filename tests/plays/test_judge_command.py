"""The judge's command: exit codes, formats, one line per fault, and no lost finding."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judge_cases import node, rule, sections, write_rules, write_run

from unhang.cli import main
from unhang.core.errors import UserError
from unhang.core.limits import Limits
from unhang.judge.triage.run_judging import judge_folder

pytestmark = pytest.mark.usefixtures("compiled_rules")


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", node("a1"), node("a2"))


def test_a_run_with_findings_exits_with_one_and_leaves_findings_and_page(run, tmp_path, capsys):
    rules = write_rules(
        tmp_path / "rules", rule("gpus.count == 2", id="own-rule", severity="critical")
    )
    assert main(["judge", str(run), "--rules", str(rules)]) == 1
    assert "own-rule" in capsys.readouterr().out
    assert json.loads((run / "findings.json").read_text())["totals"]["fail"] >= 2
    assert (run / "report.html").read_text().startswith("<!")
    assert sorted(entry.name for entry in run.iterdir()) == [
        "findings.json",
        "nodes",
        "parts.json",
        "report.html",
        "run.json",
    ]


def test_fail_on_decides_what_counts(run, tmp_path):
    rules = str(
        write_rules(tmp_path / "rules", rule("gpus.count == 2", id="own-rule", severity="error"))
    )
    worst = {one["severity"] for one in _judged(run, rules)["findings"] if one["verdict"] == "fail"}
    assert main(["judge", str(run), "--rules", rules, "--fail-on", "critical"]) == int(
        "critical" in worst
    )
    assert main(["judge", str(run), "--rules", rules, "--fail-on", "error"]) == 1


def _judged(run, rules):
    main(["judge", str(run), "--rules", rules])
    return json.loads((run / "findings.json").read_text())


def test_judging_twice_gives_the_same_bytes(run):
    main(["judge", str(run), "--now", "2026-06-01"])
    first = (run / "findings.json").read_bytes()
    main(["judge", str(run), "--now", "2026-06-01"])
    assert (run / "findings.json").read_bytes() == first


def test_a_policy_file_judges_the_run_again(run, tmp_path, capsys):
    policy = tmp_path / "policy.yml"
    policy.write_text("kernel: {min: 6.11.0}\n")
    main(["judge", str(run), "--policy", str(policy), "--format", "json"])
    rules = {
        one["rule"]
        for one in json.loads(capsys.readouterr().out)["findings"]
        if one["verdict"] == "fail"
    }
    assert "policy-kernel-min" in rules


def test_another_policy_is_judged_beside_the_record_and_never_over_it(run, tmp_path, capsys):
    policy = tmp_path / "next.yml"
    policy.write_text("kernel: {min: 6.11.0}\n")
    main(["judge", str(run)])
    before = {name: (run / name).read_bytes() for name in ("findings.json", "report.html")}
    capsys.readouterr()
    main(["judge", str(run), "--policy", str(policy)])
    assert {name: (run / name).read_bytes() for name in before} == before
    beside = json.loads((run / "findings-by-next.json").read_text())
    assert beside["judged_by"] == {"policy": str(policy), "rules": []}
    assert "policy-kernel-min" in {cause["rule"] for cause in beside["causes"]}
    assert (run / "report-by-next.html").is_file()
    assert f"policy {policy}" in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(run / "findings-by-next.json")]) == 1
    assert "policy-kernel-min" in capsys.readouterr().out


def test_documents_of_nodes_are_judged_without_a_run(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    facts = json.loads((run / "nodes" / "a1.json").read_text())["facts"]
    (tmp_path / "bare.json").write_text(json.dumps(facts))
    assert main(
        ["judge", str(run / "nodes" / "a2.json"), str(tmp_path / "bare.json"), "--format", "json"]
    ) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["host_count"] == 2
    assert found["nodes"] == {"ok": 2}
    assert main(["judge", str(run / "nodes"), "-q"]) in (0, 1)
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_what_a_machine_collects_is_judged_from_standard_input(tmp_path):
    pipeline = (
        f"'{sys.executable}' -P -m unhang collect | '{sys.executable}' -P -m unhang judge -"
        " --format json"
    )
    environment = {**os.environ, "UNHANG_RUNS": str(tmp_path / "runs")}
    done = subprocess.run(
        ["sh", "-c", pipeline],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=240,
    )
    found = json.loads(done.stdout)
    assert (found["host_count"], found["nodes"]) == (1, {"ok": 1}), done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "odd.json: this is not valid JSON"),
        (
            '{"schema": "unhang/findings/1"}',
            "schema unhang/findings/1 is not a document of unhang collect",
        ),
        ("[]", "list is not a document of unhang collect"),
    ],
)
def test_a_file_that_is_no_nodes_document_is_refused_in_one_line(
    tmp_path, capsys, monkeypatch, content, message
):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    (tmp_path / "odd.json").write_text(content)
    assert main(["judge", str(tmp_path / "odd.json")]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_node_that_is_given_twice_is_named_and_judged_once(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    assert main(["judge", str(run / "nodes" / "a2.json"), str(run / "nodes" / "a2.json")]) == main(
        ["judge", str(run / "nodes" / "a2.json")]
    )
    assert (
        "unhang: 1 node came more than once, one document of each counts: a2"
        in capsys.readouterr().err
    )


def test_out_says_where_the_findings_go(run, tmp_path):
    main(["judge", str(run)])
    before = (run / "findings.json").read_bytes()
    main(["judge", str(run), "--now", "2026-06-01", "--out", str(tmp_path / "own.json")])
    assert json.loads((tmp_path / "own.json").read_text())["run"]["judged"] == "2026-06-01"
    assert (tmp_path / "own.html").is_file()
    assert (run / "findings.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["RUN", "--policy", "none.yml"], "none.yml: cannot be read"),
        (["RUN", "--now", "tomorrow"], "--now takes a date"),
    ],
)
def test_what_cannot_be_judged_exits_with_two_and_one_line(run, capsys, arguments, message):
    assert main(["judge", *(str(run) if one == "RUN" else one for one in arguments)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_a_run_file_at_fault_is_reported(run, capsys):
    (run / "run.json").write_text(
        '{"schema": "unhang/run/1", "id": "../x", "started": "", "hosts": []}'
    )
    assert main(["judge", str(run)]) == 2
    assert "id: '../x' does not match" in capsys.readouterr().err


def test_a_rule_at_fault_is_named_and_the_findings_of_the_others_stand(run, tmp_path, capsys):
    rules = write_rules(
        tmp_path / "rules", rule("gpus.cuont == 2", id="bad"), rule("gpus.count == 2", id="good")
    )
    (rules / "broken.yml").write_text("rules: [\n")
    assert main(["judge", str(run), "--rules", str(rules)]) == 2
    printed = capsys.readouterr()
    assert "did you mean count?" in printed.err
    assert "broken.yml:2: YAML" in printed.err
    found = json.loads((run / "findings.json").read_text())
    assert {"good"} <= {one["rule"] for one in found["findings"]}
    assert len(found["catalogue"]["refused"]) == 2


ENDLESS = [
    "{% for x in range(10 ** 9) %}{% endfor %}",
    "range(10 ** 9) | list | length > 0",
    "'a' * 10 ** 10 == 'b'",
    "gpus.model is match('(a+)+$')",
    "gpus.model.__class__.__mro__ | length > 0",
    "lipsum() == 'x'",
    "cycler.__init__.__globals__.os.system('true') == 0",
]


def test_a_rule_that_would_never_end_is_refused_by_name(run, tmp_path, capsys):
    endless = [rule(when, id=f"endless-{number}") for number, when in enumerate(ENDLESS)]
    rules = write_rules(tmp_path / "rules", *endless, rule("gpus.count == 2", id="good"))
    assert main(["judge", str(run), "--rules", str(rules)]) == 2
    errors = capsys.readouterr().err
    assert [one["id"] for one in endless if f"rule {one['id']}: when: " not in errors] == []
    assert "good" in {
        one["rule"] for one in json.loads((run / "findings.json").read_text())["findings"]
    }


def test_a_rule_that_works_too_long_is_stopped_for_that_node_and_named(tmp_path):
    pairs = [{"a": number, "b": number + 1, "read": "ok"} for number in range(8128)]
    facts = {"interconnect": {"probe": {"status": "ok"}, "pairs": pairs}}
    heavy = (
        " + ".join(["(interconnect.pairs | selectattr('read', '!=', 'ok') | list | length)"] * 50)
        + " > 0"
    )
    run = write_run(tmp_path / "run", node("a1", facts))
    main(
        [
            "judge",
            str(run),
            "--rules",
            str(write_rules(tmp_path / "rules", rule(heavy, id="heavy"))),
        ]
    )
    (found,) = [
        one
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["rule"] == "heavy"
    ]
    assert found["verdict"] == "unknown"
    assert "stopped: it takes too many steps" in found["found"]


def test_judging_that_is_not_done_in_time_is_an_error_and_not_a_crash(run):
    with pytest.raises(UserError, match="judging was stopped: it used up its time"):
        judge_folder(run, [], None, "2026-06-01", Limits(wall_s=0))


def test_a_rule_that_uses_up_the_time_of_all_is_left_out_and_the_others_stand(tmp_path):
    """The limit is measured here with the same nodes but without that rule, so the speed of the
    machine does not matter."""
    nodes = []
    for number in range(250):
        pairs = [{"a": one + number, "b": one} for one in range(160)]
        nodes.append(
            node(
                f"a{number}",
                {**sections(), "interconnect": {"probe": {"status": "ok"}, "pairs": pairs}},
            )
        )
    run = write_run(tmp_path / "run", *nodes)
    heavy = rule(
        "interconnect.pairs | selectattr('a', '>', 99999) | list | length > 0",
        for_each="interconnect.pairs",
        id="heavy",
    )
    good = rule("gpus.count == 2", id="good")
    began_s = _cpu_s_of_children()
    judge_folder(run, [write_rules(tmp_path / "good", good)], None, "2026-06-01")
    plenty_s = 2 + math.ceil(2 * (_cpu_s_of_children() - began_s))
    head = judge_folder(
        run,
        [write_rules(tmp_path / "rules", heavy, good)],
        None,
        "2026-06-01",
        Limits(cpu_s=plenty_s, wall_s=3600),
    )
    assert head["catalogue"]["stopped"] == ["heavy"]
    assert head["totals_by_rule"]["good"]["fail"] == 250
    (found,) = [
        one
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["rule"] == "heavy"
    ]
    assert "was stopped" in found["found"]


def _cpu_s_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("full", ["parts.json", "findings.json"])
def test_a_full_disk_is_reported_and_the_findings_of_before_stand(run, capsys, full):
    assert main(["judge", str(run)]) in (0, 1)
    before = (run / "findings.json").read_bytes()
    parts = (run / "parts.json").stat().st_size  # it is written first and is smaller
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # a write beyond this fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (parts - (full == "parts.json"), hard))
    try:
        code = main(["judge", str(run)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"unhang: File too large at {run / full}"
    assert (run / "findings.json").read_bytes() == before
    assert [entry.name for entry in run.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.timeout(300)
def test_a_judge_that_is_stopped_by_hand_names_its_run_and_how_to_go_on(run, tmp_path):
    rules = tmp_path / "rules"
    rules.mkdir()
    os.mkfifo(rules / "never.yml")
    command = [sys.executable, "-P", "-m", "unhang", "judge", str(run), "--rules", str(rules)]
    options = {
        "text": True,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
    }
    with subprocess.Popen(command, **options) as judge:
        try:
            children = Path(f"/proc/{judge.pid}/task/{judge.pid}/children")
            # waits for the child that judges; it reads a pipe that gets no data
            while not children.read_text():
                assert judge.poll() is None, judge.communicate()
                time.sleep(0.1)
            os.killpg(judge.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
            out, errors = judge.communicate(timeout=240)
        finally:
            judge.kill()
    assert (judge.returncode, out) == (2, "")
    assert errors.startswith("unhang: it was stopped by hand; judge it again with: ")
    assert errors.rstrip().endswith(f"judge {run}")
