"""Policies: faults with path, what was found and what is allowed; policies by group; waivers."""

from __future__ import annotations

import os

import pytest

from unhang.core.errors import UserError
from unhang.core.schemas.policy import load_policy, one_line, policy_faults, waivers_of

WAIVER = {"rule": "a-rule", "reason": "known", "by": "ops", "until": "2026-12-31"}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"drvier": {}},
            "drvier: this key is unknown (did you mean driver?); allowed are driver, kernel",
        ),
        (
            {"driver": {"verison": "1"}},
            "driver.verison: this key is unknown (did you mean version?); allowed are version, min",
        ),
        (
            {"driver": {"version": 535.1}},
            "driver.version: this must be a text, and is 535.1; write '535.1' in quotes",
        ),
        ({"driver": {"version": "latest"}}, "driver.version: 'latest' is not a driver version"),
        (
            {"driver": {"version": "535.261.03 "}},
            "driver.version: found '535.261.03 ' with blanks around it; write '535.261.03'",
        ),
        ({"kernel": {"min": "\t6.1"}}, "kernel.min: found '\\t6.1' with blanks around it"),
        ({"cuda": {"min": "{{ 7*7 }}"}}, "cuda.min: '{{ 7*7 }}' is not a cuda version"),
        (
            {"driver": {"flavour": "opne"}},
            "driver.flavour: 'opne' (did you mean open?) is not allowed; allowed are open, proprietary",
        ),
        ({"gpu": {"count": -1}}, "gpu.count: -1 is not allowed"),
        ({"nccl": {"settings": {"nccl_debug": "WARN"}}}, "nccl.settings"),
        ({"waivers": [{"rule": "a-rule"}]}, "waivers.0: the key reason is missing"),
        (
            {"waivers": [{**WAIVER, "until": "2026-02-31"}]},
            "waivers.0.until: '2026-02-31' is no date",
        ),
        (
            {"waivers": [{**WAIVER, "until": "next week"}]},
            (
                "waivers.0.until: 'next week' does not match"
                " ^[0-9]{4}-[0-9]{2}-[0-9]{2}$, such as 2026-12-31"
            ),
        ),
        ({"waivers": [{**WAIVER, "hosts": ["gpu[001-"]}]}, "waivers.0.hosts.0: "),
        ({"waivers": [{**WAIVER, "hosts": ["gpu[1-999999999]"]}]}, "hosts, more than 100000"),
        ([], "unhang_policy: this must be a map, and is a list"),
        (
            {"driver": {"version": "535.154.05", "min": "580.65.06"}},
            (
                "driver.version: '535.154.05' is below driver.min, which is '580.65.06': no driver"
                " satisfies both"
            ),
        ),
        (
            {"driver": {"version": "595.91.07", "max": "580.999.99"}},
            "driver.version: '595.91.07' is above driver.max, which is '580.999.99'",
        ),
        (
            {"nccl": {"version": "2.9.6", "min": "2.18.3"}},
            "nccl.version: '2.9.6' is below nccl.min",
        ),
        (
            {"driver": {"min": "595.45.04", "max": "580.999.99"}},
            "driver.min: '595.45.04' is above driver.max",
        ),
    ],
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
    [
        (["bond0 mtu"], {"name": "bond0", "field": "mtu"}, True),
        (["bond0 mtu"], {"name": "bond0", "field": "speed_mbps"}, False),
        (["bond0 *"], {"name": "bond0", "field": "speed_mbps"}, True),
        (["bond0 mtu"], {"name": "bond0, bond1", "field": "mtu"}, False),
        (["bond0 mtu", "bond1 mtu"], {"name": "bond0, bond1", "field": "mtu"}, True),
        (["count"], {"field": "count"}, True),
        (["mlx5_3 symbol_error"], {"name": "mlx5_3", "counter": "symbol_error"}, True),
        (["bond0 mtu"], {"name": "bond0"}, False),  # which field it is about is not known
        (["*"], {}, False),
    ],
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
