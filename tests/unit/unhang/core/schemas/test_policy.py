"""Policies: faults with path, what was found and what is allowed; policies by group; waivers."""

from __future__ import annotations

import os

import pytest
from case_rows import case_rows

from unhang.core.errors import UserError
from unhang.core.schemas.policy import load_policy, one_line, policy_faults, waivers_of

ROWS = case_rows(__file__)

WAIVER = {"rule": "a-rule", "reason": "known", "by": "ops", "until": "2026-12-31"}


@pytest.mark.parametrize(
    ("policy", "message"),
    ROWS["test_a_fault_names_the_path_what_was_found_and_what_is_allowed"],
)
def test_a_fault_names_the_path_what_was_found_and_what_is_allowed(policy, message):
    found = [one_line(one) for one in policy_faults(policy)]
    assert message in found[0]
    assert "\n" not in found[0]


def test_a_threshold_that_no_rule_reads_is_a_fault_once_the_rules_are_known():
    assert policy_faults({"thresholds": {"temprature_c": 80}}) == []
    (found,) = policy_faults({"thresholds": {"temprature_c": 80}}, ["temperature_c"])
    assert "did you mean temperature_c?" in one_line(found)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"driver": {"version": "535.154.05", "held": True}},
        {"waivers": [WAIVER]},
        {"limits": {"memlock_bytes": -1}},
        {"driver": {"version": "580.65.06", "min": "580.65.06", "max": "580.999.99"}},
        {"kernel": {"version": "6.8.0-1008-nvidia", "min": "6.8.0-45-generic"}},
    ],
)
def test_a_good_policy_has_no_fault(policy):
    assert policy_faults(policy) == []


def test_a_policy_file_may_hold_one_policy_or_one_for_each_group(tmp_path):
    path = tmp_path / "policy.yml"
    path.write_text("unhang_policy: {gpu: {count: 8}}\n")
    assert load_policy(path).for_groups(["x"]) == {"gpu": {"count": 8}}
    path.write_text("groups:\n  all: {gpu: {count: 8, model: A}}\n  small: {gpu: {count: 2}}\n")
    assert load_policy(path).for_groups(["small"]) == {"gpu": {"count": 2, "model": "A"}}
    assert load_policy(path).for_groups(["big"]) == {"gpu": {"count": 8, "model": "A"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "driver:\n  verison: '1'\n",
            ":2: driver.verison: this key is unknown (did you mean version?)",
        ),
        (
            "groups:\n  gpu:\n    kernel:\n      min: none\n",
            ":4: groups.gpu.kernel.min: 'none' is not a kernel version",
        ),
        ("driver: [\n", ":2: YAML: "),
        ("driver: &a {}\nkernel: *a\n", ":1: aliases and anchors"),
        ("cuda: {version: 12.10}\n", "write '12.1' in quotes"),
        (
            "driver:\n  held: true\ngpu: {count: 010}\n",
            (
                ":3: '010' would be read as another number; write a text in quotes, a number in"
                " plain decimal digits"
            ),
        ),
        ("gpu:\n  count: 1:30:00\n", ":2: '1:30:00' would be read as another number"),
        ("gpu: {count: 0x10}\n", ":1: '0x10' would be read as another number"),
        ("gpu: {count: 1_0}\n", ":1: '1_0' would be read as another number"),
        ("thresholds: {temperature_c: 1:30.5}\n", ":1: '1:30.5' would be read as another number"),
    ],
)
def test_a_policy_file_at_fault_is_reported_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "policy.yml"
    path.write_text(text)
    with pytest.raises(UserError) as problem:
        load_policy(path)
    assert str(problem.value).startswith(f"{path}")
    assert message in str(problem.value)


def test_a_policy_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_policy(tmp_path / "none.yml")


@pytest.mark.parametrize(
    ("hosts", "covered"),
    [
        ([], {"gpu001", "gpu004", "login"}),
        (["gpu[001-003]"], {"gpu001"}),
        (["gpu*"], {"gpu001", "gpu004"}),
        (["login"], {"login"}),
        (["racks"], {"gpu001", "gpu004", "login"}),
        (["gpu00"], set()),
    ],
)
def test_a_waiver_covers_the_hosts_that_it_names(hosts, covered):
    (waiver,) = waivers_of({"waivers": [{**WAIVER, "hosts": hosts}]})
    assert {
        host for host in ("gpu001", "gpu004", "login") if waiver.covers(host, ("racks",), {})
    } == covered


@pytest.mark.parametrize(
    ("parts", "where", "is_covered"),
    ROWS["test_a_waiver_of_a_part_covers_that_part_alone"],
)
def test_a_waiver_of_a_part_covers_that_part_alone(parts, where, is_covered):
    policy = {"waivers": [{**WAIVER, "parts": parts}]}
    assert policy_faults(policy) == []
    (waiver,) = waivers_of(policy)
    assert waiver.covers("gpu001", (), where) is is_covered
    assert waiver.covers_host("gpu001", ())


def test_numbers_in_plain_decimal_digits_are_what_they_say(tmp_path):
    path = tmp_path / "policy.yml"
    path.write_text(
        "gpu: {count: 8}\nlimits: {memlock_bytes: -1}\nthresholds: {temperature_c: 80.5}\n"
    )
    assert load_policy(path).for_groups([]) == {
        "gpu": {"count": 8},
        "limits": {"memlock_bytes": -1},
        "thresholds": {"temperature_c": 80.5},
    }


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_policy_is_refused_and_never_waited_for(tmp_path):
    pipe = tmp_path / "policy.yml"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"policy\.yml: it is not a regular file"):
        load_policy(pipe)


def test_every_fault_of_a_policy_file_is_reported_at_once_in_the_order_of_its_lines(tmp_path):
    path = tmp_path / "policy.yml"
    path.write_text(
        "driver: {minn: '1', held: maybe}\nkernel: 6.8\nwaivers:\n  - {rule: a-rule, until:"
        " '2026-12-31'}\n"
    )
    with pytest.raises(UserError) as refused:
        load_policy(path)
    lines = str(refused.value).splitlines()
    assert sorted(line.partition(": ")[2].split(":")[0] for line in lines) == [
        "driver.held",
        "driver.minn",
        "kernel",
        "waivers.0",
        "waivers.0",
    ]
    assert [line.split(":")[1] for line in lines] == sorted(line.split(":")[1] for line in lines)
    assert {line.rpartition(": ")[2] for line in lines if "waivers" in line} == {
        "the key reason is missing",
        "the key by is missing",
    }


def test_a_policy_with_very_many_faults_names_the_first(tmp_path):
    path = tmp_path / "policy.yml"
    path.write_text("".join(f"key{number}: 1\n" for number in range(30)))
    with pytest.raises(UserError) as refused:
        load_policy(path)
    assert len(str(refused.value).splitlines()) == 21
    assert str(refused.value).endswith("and 10 more")
