"""Complete runs: totals, findings, nodes that could not be read, groups, waivers, and the same
result whatever the cache holds."""

from __future__ import annotations

import copy
import json
import random

import jsonschema_rs
import pytest
from judge_cases import OK, node, rule, sections, write_rules, write_run

from unhang.audit.report.phrases import left_out
from unhang.core.run.documents import decode_node
from unhang.core.run.run_input import read_run_input
from unhang.core.schemas.policy import PolicyFile
from unhang.core.schemas.reading import read_schema
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.engine import Engine, view_of
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import judge_rule, node_world
from unhang.judge.triage.run_judging import conclusion
from unhang_node.base.version import VERSION

TODAY = "2026-06-01"


def judged(tmp_path, rows, *nodes, policy=None, today=TODAY, **more):
    run = write_run(tmp_path / "run", *nodes, **more)
    catalogue = load_catalogue([write_rules(tmp_path / "rules", *rows)], built_in=False)
    assert catalogue.faults == ()
    judge_run(read_run_input(run), catalogue, today, policy, conclude=conclusion(catalogue.rules))
    found = json.loads((run / "findings.json").read_text())
    jsonschema_rs.validator_for(read_schema("findings-1")).validate(found)
    return found


def verdicts(found):
    return [(one["rule"], one["verdict"], one["host"]) for one in found["findings"]]


def test_findings_hold_fail_unknown_and_waived_and_totals_count_all_five(tmp_path):
    waiver = {"rule": "waived", "reason": "known", "by": "ops", "until": "2026-06-01"}
    rows = [
        rule("gpus.count == 2", id="fails"), rule("gpus.count == 3", id="passes"),
        rule("gpus.pci_count == 2", id="unknown"),
        rule("gpus.count == policy.gpu.count", id="skips"), rule("gpus.count == 2", id="waived"),
    ]  # fmt: skip
    found = judged(tmp_path, rows, node("a1", policy={"waivers": [waiver]}))
    assert found["totals"] == {"fail": 1, "pass": 1, "unknown": 1, "skip": 1, "waived": 1}
    assert verdicts(found) == [
        ("fails", "fail", "a1"),
        ("unknown", "unknown", "a1"),
        ("waived", "waived", "a1"),
    ]
    assert found["findings"][2]["waiver"] == {"reason": "known", "by": "ops", "until": "2026-06-01"}
    assert found["totals_by_severity"] == {"error": 1}
    assert found["totals_by_rule"]["waived"] == {
        "fail": 0,
        "pass": 0,
        "unknown": 0,
        "skip": 0,
        "waived": 1,
    }


def test_a_waiver_ends_after_its_last_day(tmp_path):
    waiver = {"rule": "a-rule", "reason": "known", "by": "ops", "until": "2026-06-01"}
    found = judged(
        tmp_path,
        [rule("gpus.count == 2")],
        node("a1", policy={"waivers": [waiver]}),
        today="2026-06-02",
    )
    assert found["totals"]["fail"] == 1
    assert found["totals"]["waived"] == 0


def test_a_waiver_holds_for_its_hosts_alone(tmp_path):
    policy = {
        "waivers": [
            {
                "rule": "a-rule",
                "hosts": ["a[1-2]"],
                "reason": "known",
                "by": "ops",
                "until": "2026-06-01",
            }
        ]
    }
    found = judged(
        tmp_path,
        [rule("gpus.count == 2")],
        *(node(f"a{number}", policy=policy) for number in (1, 2, 3)),
    )
    assert verdicts(found) == [
        ("a-rule", "fail", "a3"),
        ("a-rule", "waived", "a1"),
        ("a-rule", "waived", "a2"),
    ]


def test_the_most_severe_comes_first_and_hosts_count_as_people_count(tmp_path):
    rows = [
        rule("gpus.count == 2", id="mild", severity="warning"),
        rule("gpus.count == 2", id="grave", severity="critical"),
    ]
    found = judged(tmp_path, rows, node("gpu10"), node("gpu9"))
    assert verdicts(found) == [
        ("grave", "fail", "gpu9"),
        ("grave", "fail", "gpu10"),
        ("mild", "fail", "gpu9"),
        ("mild", "fail", "gpu10"),
    ]


def test_an_item_is_named_with_index_uuid_and_address(tmp_path):
    found = judged(
        tmp_path,
        [rule("item.index == 1", for_each="gpus.devices", found="{{ item.uuid }}")],
        node("a1"),
    )
    assert found["findings"][0]["where"] == {
        "path": "gpus.devices[1]",
        "index": 1,
        "uuid": "GPU-1",
        "pci_address": "0000:01:00.0",
    }
    assert found["findings"][0]["found"] == "GPU-1"
    assert found["totals"] == {"fail": 1, "pass": 1, "unknown": 0, "skip": 0, "waived": 0}


BROKEN = [
    (b"{", "not valid JSON"),
    (b"", "not valid JSON"),
    (
        json.dumps(node("b1", {"gpus": {"probe": OK, "count": "8"}})).encode(),
        "facts.sections.gpus.count: Expected int",
    ),
    (json.dumps(node("other")).encode(), "the file is called 'b1' and contains 'other'"),
    (json.dumps(node("b1")).replace('"count": 2', '"count": NaN').encode(), "NaN is not a number"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN)
def test_a_file_that_cannot_be_used_is_a_finding_and_its_neighbours_stand(tmp_path, data, message):
    run = write_run(tmp_path / "run", node("a1"), meant=["a1", "b1"])
    (run / "nodes" / "b1.json").write_bytes(data)
    head = judge_run(read_run_input(run), load_catalogue(), TODAY)
    found = json.loads((run / "findings.json").read_text())
    (broken,) = [one for one in found["findings"] if one["host"] == "b1"]
    assert broken["rule"] == "node-answer-invalid"
    assert message in broken["found"]
    assert head["nodes"] == {"ok": 1, "invalid": 1}


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ("unreachable", "node-unreachable"),
        ("failed", "node-failed"),
        ("timeout", "node-timeout"),
        ("python_too_old", "node-python-too-old"),
        (None, "node-missing"),
    ],
)
def test_a_node_that_was_not_read_is_one_finding_and_unknown_to_the_rules(tmp_path, status, wanted):
    others = (
        [] if status is None else [node("b1", facts={}, status=status, message="no answer\x1b[31m")]
    )
    for one in others:
        one["facts"] = None
    run = write_run(tmp_path / "run", node("a1"), *others, meant=["a1", "b1"])
    catalogue = load_catalogue()
    judge_run(read_run_input(run), catalogue, TODAY)
    found = json.loads((run / "findings.json").read_text())
    assert [(one["rule"], one["verdict"]) for one in found["findings"] if one["host"] == "b1"] == [
        (wanted, "fail")
    ]
    assert found["totals_by_rule"]["driver-not-loaded"]["unknown"] >= 1
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)


def test_a_policy_with_a_misspelt_key_is_a_finding_and_the_other_rules_stand(tmp_path):
    run = write_run(tmp_path / "run", node("a1", policy={"drvier": {}}))
    judge_run(read_run_input(run), load_catalogue(), TODAY)
    found = json.loads((run / "findings.json").read_text())
    (fault,) = [one for one in found["findings"] if one["rule"] == "policy-not-usable"]
    assert "drvier: this key is unknown (did you mean driver?)" in fault["found"]


def test_another_policy_can_be_laid_over_the_runs_own(tmp_path):
    rows = [rule("gpus.count != policy.gpu.count")]
    assert (
        judged(tmp_path, rows, node("a1"), policy=PolicyFile(None, {"gpu": {"gpu": {"count": 8}}}))[
            "totals"
        ]["fail"]
        == 1
    )


def test_an_expired_waiver_and_one_of_no_rule_are_findings(tmp_path):
    waivers = [{"rule": "no-such-rule", "reason": "r", "by": "me", "until": "2026-05-31"}]
    run = write_run(tmp_path / "run", node("a1", policy={"waivers": waivers}))
    judge_run(read_run_input(run), load_catalogue(), TODAY)
    found = json.loads((run / "findings.json").read_text())
    assert {"waiver-expired", "waiver-of-unknown-rule"} <= {
        one["rule"] for one in found["findings"]
    }


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("group-setting-algo-differs", "group-settings-differ"),
        ("group-hostname-of-two-nodes", "not-unique-in-the-fabric"),
        ("group-bios-differs", "unlike-the-others-of-its-group"),
        ("fleet-torch-differs", "the rule group-… of the same ending"),
        ("no-such-rule", "`unhang catalogue` lists"),
    ],
)
def test_a_waiver_of_a_rule_of_earlier_releases_is_told_the_name_of_today(tmp_path, was, now):
    waivers = [{"rule": was, "reason": "r", "by": "me", "until": "2030-05-31"}]
    run = write_run(tmp_path / "run", node("a1", policy={"waivers": waivers}))
    judge_run(read_run_input(run), load_catalogue(), TODAY)
    (found,) = [
        one
        for one in json.loads((run / "findings.json").read_text())["findings"]
        if one["rule"] == "waiver-of-unknown-rule"
    ]
    assert now in found["remedy"]["person"]


@pytest.mark.parametrize(("release", "told"), [("0.1.0", True), (VERSION, False)])
def test_what_an_older_collector_does_not_write_is_told(tmp_path, release, told):
    one = node("a1")
    one["facts"] |= {"collector": {"version": release}}
    one["facts"]["sections"] = {"driver": {"probe": {"status": "ok"}, "loaded": None}}
    catalogue, run = load_catalogue(), read_run_input(write_run(tmp_path / "run", one))
    head = judge_run(run, catalogue, TODAY, conclude=conclusion(catalogue.rules))
    assert head.get("unwritten", {}).get("driver.packages") == (["a1"] if told else None)
    assert "driver.loaded" not in head.get("unwritten", {})
    assert any("an older collector read a1" in line for line in left_out(head)) is told
    assert head["node_verdicts"]["partly read" if told else "healthy"] == ["a1"]


@pytest.mark.parametrize(
    ("host", "name"),
    [("../../etc/x", "..%2F..%2Fetc%2Fx"), ("<b>é\x1b", "%3Cb%3E%C3%A9%1B"), ("a b", "a%20b")],
)
def test_a_host_is_what_its_file_says_whatever_it_is_called(tmp_path, host, name):
    run = write_run(tmp_path / "run", meant=[host])
    (run / "nodes" / f"{name}.json").write_text(json.dumps(node(host)))
    assert judge_run(read_run_input(run), load_catalogue(), TODAY)["nodes"] == {"ok": 1}


def test_an_answer_beyond_the_limit_is_not_read(tmp_path):
    run = write_run(tmp_path / "run", meant=["b1"])
    with (run / "nodes" / "b1.json").open("wb") as big:
        big.truncate(100 * 1024 * 1024)
    judge_run(read_run_input(run), load_catalogue(), TODAY)
    assert "at most 4194304 are read" in (run / "findings.json").read_text()


# ---- groups

DRIVER = rule(
    None, id="differs", scope="group", compare="driver.loaded.version",
    expected="{{ majority if outliers | length > 0 else 'one version' }}",
    found="{{ outliers | map(attribute='host') | join(', ') }}",
)  # fmt: skip


def fleet(*versions, group="gpu", **more):
    return [
        node(f"{group}{number}", sections(version), groups=["all", group], **more)
        for number, version in enumerate(versions, 1)
    ]


def test_the_outlier_of_a_group_is_named(tmp_path):
    (found,) = judged(tmp_path, [DRIVER], *fleet("535", "535", "545"))["findings"]
    assert (found["scope"], found["host"], found["hosts"], found["group"]) == (
        "group",
        None,
        ["gpu3"],
        "gpu",
    )
    assert found["comparison"]["majority"] == "535"
    assert [(row["value"], row["hosts"]) for row in found["comparison"]["counts"]] == [
        ("535", ["gpu1", "gpu2"]),
        ("545", ["gpu3"]),
    ]
    assert found["found"] == "gpu3"


def test_with_half_and_half_no_side_is_blamed(tmp_path):
    (found,) = judged(tmp_path, [DRIVER], *fleet("535", "535", "545", "545"))["findings"]
    assert found["hosts"] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert found["comparison"]["majority"] is None


def test_a_value_that_was_not_read_is_unknown_for_that_host_alone(tmp_path):
    found = judged(tmp_path, [DRIVER], *fleet("535", "535", "545", None))
    assert [(one["verdict"], one["hosts"]) for one in found["findings"]] == [
        ("fail", ["gpu3"]),
        ("unknown", ["gpu4"]),
    ]
    assert found["totals"] == {"fail": 1, "pass": 0, "unknown": 1, "skip": 0, "waived": 0}


def test_groups_are_compared_within_themselves(tmp_path):
    assert (
        judged(tmp_path, [DRIVER], *fleet("535", "535"), *fleet("545", "545", group="cpu"))[
            "totals"
        ]["pass"]
        == 2
    )


def test_peers_of_the_policy_join_what_the_inventory_separates(tmp_path):
    nodes = [
        *fleet("535", "535", policy={"peers": "train"}),
        *fleet("545", group="cpu", policy={"peers": "train"}),
    ]
    (found,) = judged(tmp_path, [DRIVER], *nodes)["findings"]
    assert (found["group"], found["hosts"]) == ("train", ["cpu1"])


def test_a_single_node_has_no_peers(tmp_path):
    assert judged(tmp_path, [DRIVER], *fleet("535"))["totals"]["skip"] == 1


def test_a_group_that_differs_from_the_one_it_should_equal_is_a_finding(tmp_path):
    row = {
        **DRIVER,
        "tied": "info",
        "found": (
            "{{ group }} has {{ outliers | map(attribute='value') | unique | join }}, most"
            " {{ majority }}"
        ),
    }
    (found,) = judged(
        tmp_path,
        [row],
        *fleet("535", "535", group="prod"),
        *fleet("545", group="dev", policy={"same_as": "prod"}),
    )["findings"]
    assert (found["scope"], found["group"], found["hosts"]) == ("group", "dev", ["dev1"])
    assert found["found"] == "dev has 545, most 535"
    assert (found["severity"], found["expected"]) == (
        "info", "what most nodes of prod have, so that what was tested is what runs",
    )  # fmt: skip


def test_a_waived_group_finding_is_waived(tmp_path):
    policy = {
        "waivers": [{"rule": "differs", "reason": "upgrade", "by": "ops", "until": "2026-12-31"}]
    }
    (found,) = judged(tmp_path, [DRIVER], *fleet("535", "535", "545", policy=policy))["findings"]
    assert found["verdict"] == "waived"


# ---- cache


def shuffled(facts, chance):
    """The facts with some of their values lost or changed."""
    for section in facts.values():
        _shuffle(section, chance)
        if chance.random() < 0.05:
            section["probe"] = {
                "status": chance.choice(["timeout", "denied", "absent"]),
                "error": "because",
            }
    return facts


def _shuffle(value, chance):
    for key, one in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        if isinstance(one, (dict, list)) and key != "probe":
            _shuffle(one, chance)
        elif isinstance(value, list) and isinstance(one, str) and chance.random() < 0.5:
            value[key] = chance.choice(["", "other", "gpu_idle", "hw_slowdown", "eth0", "NVreg"])
        elif key not in ("probe", "index") and isinstance(value, dict) and chance.random() < 0.15:
            value[key] = chance.choice(
                [None, one + 1 if isinstance(one, int) and not isinstance(one, bool) else one]
            )


@pytest.mark.parametrize("seed", range(3))
def test_a_remembered_verdict_is_the_one_that_a_fresh_look_gives(seed):
    chance = random.Random(seed)
    catalogue = load_catalogue()
    view = catalogue_view(catalogue.tables, tuple(one.id for one in catalogue.rules))
    engine = Engine(catalogue.rules, view)
    examples = [
        one
        for rule_ in catalogue.rules
        if rule_.scope == "node"
        for one in rule_.row["examples"]["match"]
    ]
    for number in range(150):
        base = sections()
        for example in chance.sample(examples, 8):
            base.update(
                copy.deepcopy(
                    {
                        key: {"probe": OK, **value}
                        for key, value in example.items()
                        if key in read_schema("node-facts-1")["$defs"]
                    }
                )
            )
        for device in base.get("gpus", {}).get("devices") or []:
            device.setdefault("index", 0)
        document = node(f"n{number}", shuffled(base, chance))
        try:
            found = view_of(decode_node(json.dumps(document).encode()), {}, "")
        except ValueError:
            continue  # an example without a required key
        remembered: dict = {}
        for outcome in engine.judge(found).answers:
            for rule_number, verdict, count in outcome.counts:
                remembered.setdefault(engine.rules[rule_number].id, {})[verdict] = count
        for one in engine.rules:
            if one.scope != "node":
                continue
            fresh: dict = {}
            for each in judge_rule(one, node_world(found, view)):
                fresh[each.verdict] = fresh.get(each.verdict, 0) + each.items
            assert remembered[one.id] == fresh, one.id


def test_ten_equal_nodes_cost_one_evaluation(tmp_path):
    found = judged(
        tmp_path, [rule("gpus.count == 2")], *(node(f"n{number}") for number in range(10))
    )
    assert found["catalogue"]["evaluations"] == 1
    assert found["totals"]["fail"] == 10


def test_what_one_rule_takes_is_not_counted_against_the_next(tmp_path):
    pairs = [{"a": number, "b": number + 1} for number in range(8128)]
    costly = (
        " + ".join(["(interconnect.pairs | selectattr('a', '<', 0) | list | length)"] * 20) + " > 0"
    )
    facts = {"interconnect": {"probe": OK, "pairs": pairs}}
    assert (
        judged(
            tmp_path,
            [rule(costly, id=f"costly-{number}") for number in range(3)],
            node("a1", facts),
        )["totals"]["pass"]
        == 3
    )


@pytest.mark.parametrize(
    ("field", "status", "verdict"),
    [
        # the collector names an item by its path
        ("environments[/opt/a].python", "absent", "skip"),
        ("environments[*].python", "absent", "skip"),
        ("environments[0].python", "absent", "skip"),
        # another environment's reason says nothing about this one
        ("environments[/opt/b].python", "absent", "unknown"),
        ("environments[/opt/a].python", "denied", "unknown"),
        ("environments[/opt/a].nccl", "absent", "unknown"),
    ],
)
def test_why_a_fact_has_no_value_is_found_under_each_name_of_its_place(field, status, verdict):
    from unhang.judge.rules.examples import catalogue_view, verdict_of
    from unhang.judge.rules.rules import compile_rule

    row = rule("item.python == '3.9'", for_each="torch.environments")
    torch = {
        "probe": {"status": "ok", "unread": [{"field": field, "status": status, "reason": "why"}]},
        "environments": [{"path": "/opt/a"}],
    }
    assert verdict_of(compile_rule(row), {"torch": torch}, catalogue_view()) == verdict


@pytest.mark.parametrize(
    "changed",
    [
        ("gpus", "count", 1),
        ("driver", "mismatch", True),
        ("node", "uptime_s", 10.0),
        ("limits", "swap_free_bytes", 1),
    ],
)
def test_verdicts_remembered_without_measured_numbers_are_those_of_a_fresh_look(changed):
    """A rule that does not apply is cached by what its `applies` reads alone; whatever else
    changes, the answer is the rule's own."""
    from unhang.judge.rules.rules import compile_rule

    rules = [
        compile_rule(rule("node.uptime_s > 100", id="over-uptime", applies="gpus.count > 1")),
        compile_rule(
            rule(
                "node.uptime_s > 100",
                id="over-each",
                applies="driver.mismatch",
                for_each="gpus.devices",
            )
        ),
        compile_rule(rule("limits.swap_free_bytes < 100", id="over-swap")),
        compile_rule(rule("gpus.count == 2", id="steady")),
    ]
    facts = sections()
    facts["driver"]["mismatch"] = False
    facts |= {
        "node": {"probe": OK, "uptime_s": 1000.0},
        "limits": {"probe": OK, "swap_free_bytes": 1000},
    }
    other = copy.deepcopy(facts)
    other[changed[0]][changed[1]] = changed[2]
    engine = Engine(rules, catalogue_view())
    for document in (facts, other, facts, other):
        view = view_of(decode_node(json.dumps(node("a", document)).encode()), {}, "")
        found = sorted(
            (engine.rules[number].id, verdict, count)
            for outcome in engine.judge(view).answers
            for number, verdict, count in outcome.counts
        )
        fresh = []
        for one in rules:
            tally = {}
            for judged in judge_rule(one, node_world(view, catalogue_view())):
                tally[judged.verdict] = tally.get(judged.verdict, 0) + judged.items
            fresh += [(one.id, verdict, count) for verdict, count in tally.items()]
        assert found == sorted(fresh)
