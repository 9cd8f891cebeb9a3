"""`--via clush` through two levels of gateways of the site's ssh_config, on real sshd; what a
gateway that lies, is dead or stops half-way costs."""

from __future__ import annotations

import json
import sys

import audits
import pytest
from four_nodes import CACHE
from sshd_here import Sshds
from testbed.bed import make_key

RACK, ROWS = "127.20.0.1", {"row1": "127.20.1.1", "row2": "127.20.1.2"}
NODES = {f"gpu{number:03d}": f"127.21.0.{number}" for number in range(1, 9)}
HALF = '#!/bin/sh\nprintf \'{"schema": "unhang/node-facts/1", "collector"\'\n'


@pytest.fixture(scope="module")
def sshds():
    """A rack's gateway opens the rows' gateways alone; only behind a gateway do the names of rows
    and nodes mean something."""
    with Sshds(CACHE, 0) as here:
        hosts = "".join(f"{address} {name}.inside\n" for name, address in {**ROWS, **NODES}.items())
        (here.root / "etc" / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        here.start([RACK], PermitOpen="'row1.inside:22 row2.inside:22'")
        here.start(NODES.values())
        here.folder.joinpath("known_hosts").write_text(f"* {here.host_key}\n")
        names = list(NODES)
        lines = "".join(
            f"Host {row}\nHostName {row}.inside\nProxyJump rack\n"
            f"Host {' '.join(names[number::2])}\nProxyJump {row}\n"
            for number, row in enumerate(ROWS)
        )
        settings = (
            f"Host *\nUser root\nIdentityFile {here.folder}/id_ed25519\nIdentitiesOnly"
            f" yes\nGlobalKnownHostsFile {here.folder}/known_hosts\n"
        )
        here.folder.joinpath("ssh_config").write_text(
            f"Host rack\nHostName {RACK}\n{lines}Host gpu*\nHostName %h.inside\n{settings}"
        )
        here.run(
            ["mount", "--bind", str(here.folder / "ssh_config"), "/etc/ssh/ssh_config"], check=True
        )
        yield here


@pytest.fixture
def audit(sshds, tmp_path):
    """hosts' variables -> the finished audit."""
    environment = audits.environment_of(sshds, tmp_path)

    def do(hosts):
        variables = {"ansible_python_interpreter": "/usr/bin/python3", "unhang_node_timeout_s": 100}
        (tmp_path / "hosts.json").write_text(
            json.dumps({"all": {"hosts": hosts, "vars": variables}})
        )
        command = [
            "audit",
            "--via",
            "clush",
            "-i",
            str(tmp_path / "hosts.json"),
            "--out",
            str(tmp_path / "runs"),
        ]
        done = audits.run(
            sshds,
            [sys.executable, "-P", "-m", "unhang", *command],
            environment,
            tmp_path / "runs" / "latest",
        )
        return done, {name: done.node(name)["status"] for name in hosts}

    return do


def test_nodes_behind_two_levels_of_gateways_are_read_by_the_sites_ssh_config(sshds, audit):
    with sshds.listening(*ROWS.values()):
        done, statuses = audit({name: {} for name in NODES})
        assert statuses == dict.fromkeys(NODES, "ok"), done.node("gpu001")["message"]
        for jump in ("none", "rack"):
            way = ["ssh", "-o", "BatchMode=yes", "-J", jump, "gpu001", "true"]
            assert sshds.run(way).returncode == 255, "a node can be reached without its gateways"


def test_a_dead_gateway_costs_the_nodes_behind_it_and_no_others(sshds, audit):
    with sshds.listening(ROWS["row1"]):
        _, statuses = audit({name: {} for name in NODES})
    assert list(statuses.values()) == ["ok", "unreachable"] * 4


def test_a_gateway_that_leads_elsewhere_cannot_answer_for_a_node(sshds, audit):
    """The gateway of the second row says that gpu002 is where another machine listens, with a key
    of its own."""
    make_key(sshds.folder / "other_key")
    (sshds.root / "etc" / "ssh" / "other_key").write_bytes(
        (sshds.folder / "other_key").read_bytes()
    )
    (sshds.root / "etc" / "ssh" / "other_key").chmod(0o600)
    names = sshds.root / "etc" / "hosts"
    before = names.read_text()
    names.write_text(before.replace(f"{NODES['gpu002']} ", "127.22.0.2 "))
    try:
        with (
            sshds.listening(*ROWS.values()),
            sshds.listening("127.22.0.2", HostKey="/etc/ssh/other_key"),
        ):
            done, statuses = audit({name: {} for name in NODES})
    finally:
        names.write_text(before)
    assert statuses == {**dict.fromkeys(NODES, "ok"), "gpu002": "unreachable"}
    assert "host key" in done.node("gpu002")["message"].lower()


def test_half_an_answer_costs_its_node_and_one_node_by_two_ways_is_read_by_both(sshds, audit):
    half = sshds.root / "usr" / "bin" / "python-that-stops"
    half.write_text(HALF)
    half.chmod(0o755)
    direct = {"ansible_host": NODES["gpu001"], "ansible_ssh_common_args": "-J none"}
    with sshds.listening(*ROWS.values()):
        done, statuses = audit(
            {
                "gpu001": {},
                "again001": direct,
                "gpu002": {"ansible_python_interpreter": "/usr/bin/python-that-stops"},
            }
        )
    assert statuses == {"gpu001": "ok", "again001": "ok", "gpu002": "invalid"}, done.node(
        "again001"
    )["message"]
    assert (done.folder / "nodes" / "gpu002.raw").read_text().startswith('{"schema"')
