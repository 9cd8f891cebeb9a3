"""Limits as people write them: a limit that cannot be kept, or that covers no node, is refused in
one line."""

from __future__ import annotations

import pytest

from unhang.act.plan.asked_limits import (
    amount,
    group_limits,
    most_unavailable,
    named_hosts,
)
from unhang.core.errors import UserError

MEMBERS = {
    "rack1": ["gpu1", "gpu2", "gpu3"],
    "rack2": ["gpu4"],
    "debug": ["gpu1", "gpu4"],
    "empty": [],
}
HOSTS = ["gpu1", "gpu2", "gpu3", "gpu4", "gpu9"]


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("7", 7), ("10%", 2), ("100%", 20), ("1%", 1), (" 5 ", 5)]
)
def test_a_number_or_a_share(text, number):
    assert amount(text, 20, "--x", least=1) == number


def test_a_share_of_a_floor_is_rounded_up():
    assert amount("11%", 20, "--floor", round_up=True) == 3


@pytest.mark.parametrize("text", ["", "ten", "-1", "101%", "1.5", "10 %", "%", "9999999"])
def test_what_is_no_number_is_reported_with_its_option(text):
    with pytest.raises(UserError, match="--x takes a number of nodes or a share such as 10%"):
        amount(text, 20, "--x")


@pytest.mark.parametrize(
    ("most", "floor", "answer"),
    [("10%", "0", (2, 0)), ("10%", "90%", (2, 18)), ("10", "19", (1, 19)), ("50%", "75%", (5, 15))],
)
def test_the_floor_bounds_what_may_be_out(most, floor, answer):
    assert most_unavailable(most, floor, 20) == answer


@pytest.mark.parametrize("floor", ["100%", "20", "500"])
def test_a_floor_that_cannot_be_kept_is_refused(floor):
    with pytest.raises(UserError, match=", and 20 nodes answered") as shown:
        most_unavailable("10%", floor, 20)
    assert "\n" not in str(shown.value)


def test_no_node_at_all_is_no_limit():
    with pytest.raises(UserError, match="--max-unavailable must be at least 1 node"):
        most_unavailable("0", "0", 20)


def test_limits_of_groups():
    assert group_limits(["rack*=1", "debug=50%"], MEMBERS) == {"rack1": 1, "rack2": 1, "debug": 1}
    assert group_limits(["rack*=2", "rack1=1"], MEMBERS) == {"rack1": 1, "rack2": 2}
    assert group_limits([], MEMBERS) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "rack9=1",
            ("names no group of the inventory with nodes that answered .did you mean rack"),
        ),
        ("switch*=1", "answered; there are debug, empty, rack1, rack2"),
        ("empty=1", "names no group of the inventory with nodes that answered"),
        ("rack1", "takes GROUP=N"),
        ("=1", "takes GROUP=N"),
        ("rack1=0", "must be at least 1 node"),
        ("rack1=x", "--group-limit rack1=x takes a number"),
    ],
)
def test_a_group_that_covers_nothing_is_refused(text, says):
    with pytest.raises(UserError, match=says) as shown:
        group_limits([text], MEMBERS)
    assert "\n" not in str(shown.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[1-3]", {"gpu1", "gpu2", "gpu3"}),
        ("gpu9", {"gpu9"}),
        ("rack1", {"gpu1", "gpu2", "gpu3"}),
        ("rack2,gpu2", {"gpu4", "gpu2"}),
        ("*9", {"gpu9"}),
    ],
)
def test_hosts_are_named_as_node_sets_groups_or_wildcards(text, hosts):
    assert named_hosts([text], HOSTS, MEMBERS, "--except") == hosts


@pytest.mark.parametrize("text", ["gpu7", "gpu[1-9]", "nobody", "gpu["])
def test_a_name_without_a_host_is_refused(text):
    with pytest.raises(
        UserError, match=r"names neither hosts nor groups of the run|is not a node set"
    ):
        named_hosts([text], HOSTS, MEMBERS, "--except")


def test_all_names_without_a_host_are_reported_together():
    with pytest.raises(
        UserError,
        match=(r"--except gpu\[1-7\],cpu1: cpu1,gpu\[5-7\] names neither hosts nor groups"),
    ) as shown:
        named_hosts(["gpu[1-7]", "cpu1"], HOSTS, MEMBERS, "--except")
    assert "\n" not in str(shown.value)
