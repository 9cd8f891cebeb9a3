"""Metrics of a run, read back by the parser of Prometheus' own client."""

from __future__ import annotations

import argparse
from collections import Counter

import five_situations
import fleets
import hostile
import pytest
from prometheus_client.parser import text_string_to_metric_families

from unhang import cli
from unhang.audit.commands.run_output import add_format
from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.prometheus import render_prometheus
from unhang.core.errors import UserError
from unhang.core.labels import OWN_LABELS, parse_labels
from unhang.core.run.findings import hosts_of


@pytest.fixture
def found():
    """The fleet that has something of everything."""
    return five_situations.fleet()[0]


def series(text):
    """{(name, labels): value}; no series occurs twice."""
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    made = {(one.name, *sorted(one.labels.items())): one.value for one in samples}
    assert len(made) == len(samples)
    return made


def test_each_node_is_counted_once_by_its_verdict(found):
    made = series(render_prometheus(found))
    counts = {
        verdict: made["unhang_nodes", ("verdict", verdict)] for verdict in found["node_verdicts"]
    }
    assert counts == {verdict: len(hosts) for verdict, hosts in found["node_verdicts"].items()}
    assert (
        sum(counts.values())
        == sum(value for key, value in made.items() if key[0] == "unhang_nodes_by_status")
        == found["host_count"]
    )


def test_findings_causes_and_rules_are_those_of_the_document(found):
    made = series(render_prometheus(found))
    for severity in ("critical", "error", "warning", "info"):
        assert made["unhang_findings", ("severity", severity)] == found["totals_by_severity"].get(
            severity, 0
        )
        assert (
            made["unhang_causes", ("severity", severity)]
            == Counter(one["severity"] for one in found["causes"])[severity]
        )
    hosts = {}
    for one in found["findings"]:
        if one["verdict"] == "fail":
            hosts.setdefault((one["rule"], one["severity"]), set()).update(hosts_of(one))
    assert {key: value for key, value in made.items() if key[0] == "unhang_rule_nodes"} == {
        ("unhang_rule_nodes", ("rule", rule), ("severity", severity)): len(among)
        for (rule, severity), among in hosts.items()
    }


def test_the_run_says_when_it_was_and_whether_it_is_whole(found):
    made = series(render_prometheus(found))
    assert made["unhang_run_timestamp_seconds",] == 1772421271
    assert made["unhang_run_duration_seconds",] == 24
    assert made["unhang_run_complete",] == 1
    for part in (
        {"catalogue": {**found["catalogue"], "stopped": ["a-rule"]}},
        {"run": {**found["run"], "finished": None}},
    ):
        assert series(render_prometheus({**found, **part}))["unhang_run_complete",] == 0


def test_names_of_nodes_appear_only_when_asked_for_and_the_worst_come_first(found):
    hosts = [host for among in found["node_verdicts"].values() for host in among]
    assert not any(f'"{host}"' in render_prometheus(found) for host in hosts)
    some = series(render_prometheus(found, most_nodes=3))
    named = [dict(key[1:]) for key in some if key[0] == "unhang_node_verdict"]
    assert [one["node"] for one in named] == hosts[:3] and {one["verdict"] for one in named} == {
        "critical"
    }
    assert some["unhang_nodes_without_series",] == len(hosts) - 3
    assert series(render_prometheus(found, most_nodes=1000))["unhang_nodes_without_series",] == 0


def test_ten_times_as_many_nodes_have_no_more_series():
    def fleet(size):
        findings = [
            fleets.finding(
                "a-rule",
                f"gpu{number}",
                "error",
                "t",
                "e",
                f"found {number}",
                where={"index": number},
            )
            for number in range(size)
        ]
        return series(render_prometheus(fleets.document(findings, {"ok": size})))

    assert fleet(400).keys() == fleet(4).keys()


def test_labels_are_on_every_series_and_a_part_of_a_run_counts_that_part(found):
    part = narrowed(found, Filter(frozenset(["gpu001"]), typed="--host gpu001"))
    made = series(render_prometheus(part, labels=parse_labels(["cluster=a\nb", 'rack="7"'])))
    assert all(("cluster", "a\\nb") in key and ("rack", '"7"') in key for key in made)
    assert sum(value for key, value in made.items() if key[0] == "unhang_nodes") == 1


@pytest.mark.parametrize(
    "given",
    [
        ["cluster"],
        ["9=x"],
        ["__name__=x"],
        ["ä=x"],
        ["a=1", "a=2"],
        *([f"{name}=x"] for name in sorted(OWN_LABELS)),
    ],
)
def test_a_label_that_prometheus_would_not_take_is_refused_by_name(given):
    with pytest.raises(UserError, match="--label"):
        parse_labels(given)


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_what_a_node_is_called_adds_no_series_of_its_own(text):
    findings = [fleets.finding("r", f'{text}"}} 1\nevil 7', "error", text, text, text)]
    made = series(render_prometheus(fleets.document(findings, {"ok": 1}), most_nodes=5))
    assert {key[0].partition("_")[0] for key in made} == {"unhang"}
    assert len([key for key in made if key[0] == "unhang_node_verdict"]) == 1


def test_the_command_writes_the_file_and_says_how_many_nodes_it_leaves_out(tmp_path, capsys, found):
    run = fleets.write_run(tmp_path / "run", found, [])
    target = tmp_path / "unhang.prom"
    assert (
        cli.main(
            [
                "report",
                str(run),
                "--format",
                "prometheus",
                "--per-node",
                "2",
                "--label",
                "cluster=x",
                "--out",
                str(target),
            ]
        )
        == 1
    )
    assert capsys.readouterr() == (
        "",
        f"unhang: {found['host_count'] - 2} nodes have no series: --per-node 2\n",
    )
    assert target.read_text() == render_prometheus(found, 2, {"cluster": "x"})
    assert target.stat().st_mode & 0o777 == 0o644  # node_exporter is another user
    assert cli.main(["report", str(run), "--format", "prometheus", "--label", "job=x"]) == 2
    assert "choose another name" in capsys.readouterr().err


def test_a_number_of_nodes_that_is_none_is_refused():
    parser = argparse.ArgumentParser()
    add_format(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--per-node", "many"])
