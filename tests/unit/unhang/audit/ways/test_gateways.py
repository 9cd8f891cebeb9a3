"""topology.conf: the ways to nodes, and a file that would make more nodes than a site has."""

from __future__ import annotations

import socket

import pytest

from unhang.audit.ways.gateways import MOST_BYTES, has_own_path, routes_of
from unhang.core.errors import UserError
from unhang.core.nodeset import MAX_HOSTS

HERE = socket.gethostname().partition(".")[0]


def topology(tmp_path, routes):
    place = tmp_path / "topology.conf"
    place.write_text(f"[routes]\n{routes}\n")
    return place


def test_nodes_of_a_group_take_its_gateways_in_turn(tmp_path):
    place = topology(tmp_path, f"{HERE}: gw[1-2]\ngw[1-2]: gpu[001-004]")
    assert routes_of(place, ["gpu001", "gpu002", "gpu004", "other"]) == {
        "gpu001": ("gw1",),
        "gpu002": ("gw2",),
        "gpu004": ("gw2",),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "gateways",
    [
        "gw[1-99999999]",
        "gw[1-99999999]!gw3",
        "gw[1-999]-[1-999]",
        "gw[1-999999999999999]",
        "a[1-60000],b[1-60000]",
    ],
)
def test_more_nodes_than_a_node_set_may_have_are_refused_before_they_are_made(tmp_path, gateways):
    place = topology(tmp_path, f"{HERE}: {gateways}\n{gateways}: gpu001")
    with pytest.raises(
        UserError, match=rf"{place} is not a topology of ClusterShell: .*{MAX_HOSTS}"
    ):
        routes_of(place, ["gpu001"])


def test_a_topology_without_end_is_refused(tmp_path):
    place = topology(tmp_path, f"{HERE}: gw1")
    with place.open("r+b") as source:
        source.truncate(MOST_BYTES + 1)
    with pytest.raises(
        UserError, match=f"ClusterShell: the file is larger than {MOST_BYTES} bytes"
    ):
        routes_of(place, ["gpu001"])


@pytest.mark.parametrize(
    "text",
    [b"no section\n", b"[routes]\na: \xff\n", b"[routes]\na: %(a)s\n", b"[routes]\na: gpu[1-\n"],
)
def test_what_is_no_topology_is_said_to_be_none(tmp_path, text):
    place = tmp_path / "topology.conf"
    place.write_bytes(text)
    with pytest.raises(UserError, match="is not a topology of ClusterShell"):
        routes_of(place, ["gpu001"])


@pytest.mark.parametrize(
    "words",
    [
        ["-oProxyJump=b"],
        ["-o", "ProxyJump=b"],
        ["-o", "proxyjump b"],
        ["-J", "b"],
        ["-Jb"],
        ["-TJb"],
        ["-o", "ProxyCommand=ssh -W %h:%p b"],
        ["-oProxyCommand=none"],
        ["-p", "22", "-vo", "ProxyJump=b"],
    ],
)
def test_a_way_that_arguments_of_ssh_name_is_the_hosts_own(words):
    assert has_own_path(["ssh", "-T", *words, "--", "gpu001"])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-i", "-J"],
        ["-l", "jb"],
        ["-o", "ProxyUseFdpass=no"],
        ["-F", "proxyjump=b"],
        ["-o", "User=proxyjump=b"],
    ],
)
def test_other_arguments_of_ssh_name_no_way(words):
    assert not has_own_path(["ssh", "-T", *words, "--", "proxyjump=b"])
