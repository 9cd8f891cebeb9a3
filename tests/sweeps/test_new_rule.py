"""`unhang catalogue new`: a condition becomes a row whose examples prove it; texts and sources remain
empty, and `catalogue check` names them."""

from __future__ import annotations

import json

import pytest
import yaml
from case_rows import case_rows

from unhang.cli import main
from unhang.core.catalogue.own_files import folders_of

ROWS = case_rows(__file__)

WORDS = {
    "title": "A fault", "expected": "none", "remedy": {"person": "look at the node"},
    "sources": [{"url": "https://example.org/", "says": "so"}],
}  # fmt: skip
CONDITIONS = ROWS["CONDITIONS"]


def drafted(capsys, name, *more):
    """(exit code, row) of `catalogue new`."""
    # some of these conditions hold on machines of the gallery, where a rule above info needs a
    # reason
    quiet = ("--severity", "info")
    code = main(
        [
            "catalogue",
            "new",
            f"own-{name}",
            *quiet,
            *(part for pair in CONDITIONS[name].items() for part in pair),
            *more,
        ]
    )
    return code, yaml.safe_load(capsys.readouterr().out)["rules"][0]


def checked(tmp_path, capsys, row):
    """(exit code, lines) of `catalogue check` on a folder with this row alone."""
    (tmp_path / "own.yml").write_text(json.dumps({"rules": [row]}))
    code = main(["catalogue", "check", str(tmp_path)])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_new_row_needs_nothing_but_words_and_sources(tmp_path, capsys, name):
    code, row = drafted(capsys, name)
    assert code == 0
    code, lines = checked(tmp_path, capsys, {**row, **WORDS})
    assert code == 0 and lines[-1] == f"{tmp_path}: 1 rule, 0 rows of tables, no fault"
    assert all(
        ": also lacks " in line and line.endswith("; nothing to do if you want that")
        for line in lines[:-1]
    )


ALL = "limits.numa_balancing and gpus.count > 1 and limits.sysctls['vm.swappiness'] == '60'"
EITHER = "limits.numa_balancing or gpus.count > 5"


@pytest.mark.parametrize(("condition", "facts"), [
    (ALL, [".gpus.count", ".limits.numa_balancing", ".limits.sysctls.vm.swappiness"]),
    (EITHER, [".gpus.count", ".limits.numa_balancing"]),
])  # fmt: skip
def test_each_fact_of_the_condition_has_a_near_miss_that_differs_in_it_alone(
    capsys, condition, facts
):
    assert main(["catalogue", "new", "own", "--when", condition]) == 0
    examples = yaml.safe_load(capsys.readouterr().out)["rules"][0]["examples"]
    differing = [
        differences(match, near_miss)
        for match in examples["match"]
        for near_miss in examples["near_miss"]
    ]
    assert sorted({one[0] for one in differing if len(one) == 1}) == facts


def test_a_misspelt_value_of_a_free_text_is_refused(capsys):
    assert main(["catalogue", "new", "own", "--when", "node.os.id == 'ubunto'"]) == 2
    assert "never 'ubunto' (did you mean ubuntu?)" in capsys.readouterr().err
    assert main(["catalogue", "new", "own", "--when", "node.os.id == 'gentoo'"]) == 0


def test_a_fact_that_alone_decides_nothing_is_named(capsys):
    assert (
        main(
            [
                "catalogue",
                "new",
                "own",
                "--when",
                "gpus.count > 1 and (limits.numa_balancing or not limits.numa_balancing)",
            ]
        )
        == 0
    )
    assert (
        "# limits.numa_balancing: no value of it alone makes a near miss" in capsys.readouterr().out
    )


def differences(one, other, path=""):
    """Paths at which two fragments differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            found
            for key in one.keys() | other.keys()
            for found in differences(one.get(key), other.get(key), f"{path}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found
            for number, pair in enumerate(zip(one, other, strict=True))
            for found in differences(*pair, f"{path}[{number}]")
        ]
    return [] if one == other else [path]


def test_what_a_person_has_to_write_is_named_once_each(tmp_path, capsys):
    _, row = drafted(capsys, "numa")
    code, lines = checked(tmp_path, capsys, row)
    assert code == 1
    assert [line.split("rule own-numa: ")[1].split(":")[0] for line in lines] == [
        "title",
        "expected",
        "remedy",
        "sources.0.url",
        "sources.0.says",
    ]


def test_facts_that_decide_are_listed_with_what_they_can_say(capsys):
    main(
        [
            "catalogue",
            "new",
            "own",
            "--when",
            "kernel.release is version('6.12', '>=') and interconnect.fabric_state == 'completed'",
        ]
    )
    shown = capsys.readouterr().out
    assert "#   kernel.release: text, compared as a version (kernel)" in shown
    assert "#   interconnect.fabric_state: one of" in shown and "completed" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    ROWS["test_a_mistake_is_reported_in_one_line"],
)
def test_a_mistake_is_reported_in_one_line(capsys, arguments, message):
    try:
        code = main(["catalogue", "new", *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_condition_that_never_holds_has_no_example_and_says_so(capsys):
    assert main(["catalogue", "new", "own", "--when", "gpus.count > 8 and gpus.count < 2"]) == 1
    assert "match: []  # none was found: write one" in capsys.readouterr().out


def test_a_rule_of_a_site_that_speaks_on_healthy_machines_is_told_so_and_is_no_failure(
    tmp_path, capsys
):
    code, row = drafted(capsys, "numa")
    code, lines = checked(
        tmp_path, capsys, {**row, **WORDS, "severity": "warning", "costs": "some jobs"}
    )
    assert code == 0
    assert "own-numa: finds something on healthy machines" in lines[0]


def test_a_folder_of_the_catalogue_is_left_to_its_tests(capsys):
    assert main(["catalogue", "check", str(folders_of("rules")[0] / "faults")]) == 2
    assert "the catalogue's tests check its own" in capsys.readouterr().err


def test_a_row_above_info_has_what_the_fault_may_cost(tmp_path, capsys):
    main(["catalogue", "new", "own-numa", "--when", CONDITIONS["numa"]["--when"]])
    text = capsys.readouterr().out
    assert "costs: some jobs  # of some jobs, next boot, next upgrade, larger jobs\n" in text
    worded = {**yaml.safe_load(text)["rules"][0], **WORDS}
    assert checked(tmp_path, capsys, worded)[0] == 0
    lines = checked(tmp_path, capsys, {**worded, "costs": ""})[1]
    assert "costs: '' is not allowed; allowed are no job may start," in lines[0]
    lines = checked(tmp_path, capsys, {**worded, "severity": "critical"})[1]
    assert "own-numa: costs must be what makes it critical, 'no job may start'," in lines[0]
