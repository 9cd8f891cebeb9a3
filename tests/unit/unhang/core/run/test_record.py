"""What the judge and the gate wrote is read in one place, and a file that is broken is refused in
one line."""

from __future__ import annotations

import json

import pytest
from judge_cases import node, rule, sections, write_rules, write_run

from unhang.core.errors import UserError
from unhang.core.run.record import read_findings_record, read_gate_smoke
from unhang.judge.triage.run_judging import judge_folder


@pytest.mark.slow
def test_what_the_judge_writes_is_what_is_read(tmp_path):
    rules = write_rules(
        tmp_path / "rules", rule("driver.loaded.version is version('600.1.1', '<')", id="own")
    )
    run = write_run(tmp_path / "run", node("gpu1", sections()), node("gpu2", sections(driver=None)))
    judge_folder(run, [rules], None, "2026-11-20")
    written, read = json.loads((run / "findings.json").read_text()), read_findings_record(run)
    assert (read.run.id, read.run.judged) == (written["run"]["id"], "2026-11-20")
    assert [
        (one.rule, one.verdict, one.about(), one.where, one.found) for one in read.findings
    ] == [
        (one["rule"], one["verdict"], one.get("hosts") or [one["host"]], one["where"], one["found"])
        for one in written["findings"]
    ]
    unknown = [one for one in read.findings if (one.rule, one.verdict) == ("own", "unknown")]
    assert [(one.host, one.missing[0].path) for one in unknown] == [
        ("gpu2", "driver.loaded.version")
    ]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        '{"run": {"id": "a"}}',
        '{"run": {"id": "a"}, "findings": [{"rule": 5}]}',
        "{" * 100_000,
    ],
)
def test_findings_that_cannot_be_read_say_where_and_what_to_do(tmp_path, content):
    if content is not None:
        (tmp_path / "findings.json").write_text(content)
    with pytest.raises(
        UserError,
        match=(
            r"^the findings of the run in \S+/findings\.json cannot be read: .{3,}; next: unhang judge \S+$"
        ),
    ):
        read_findings_record(tmp_path)


def test_a_run_without_a_gate_has_no_smoke_tests_of_it(tmp_path):
    assert read_gate_smoke(tmp_path) is None
    (tmp_path / "gate.json").write_text('{"smoke": {"alone": {"gpu1": null}}}')
    assert read_gate_smoke(tmp_path).alone == {"gpu1": None}
    (tmp_path / "gate.json").write_text('{"smoke": 5}')
    with pytest.raises(ValueError, match="smoke"):
        read_gate_smoke(tmp_path)
