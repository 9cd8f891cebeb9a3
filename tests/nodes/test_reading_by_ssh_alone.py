"""`--via clush` against real sshd: dead nodes wait side by side, stragglers are cut at the
deadline, a lost controller loses nothing, ssh_config counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import audits
import pytest
from controller_process import under_way
from four_nodes import CACHE
from sshd_here import Sshds, addresses

ALIVE = ("gpu001", "gpu002", "gpu003")
# In the place of ssh: the same program, with a line when it starts and one when it ends.
LOGGED = (
    '#!/bin/sh\nfor word; do before=$last; last=$word; done\necho "start $before" >>{log}\nssh'
    ' "$@"\ncode=$?\necho "end $before" >>{log}\nexit $code\n'
)


@pytest.fixture(scope="module")
def sshds():
    with Sshds(CACHE, len(ALIVE)) as here:
        here.swallow("10.9.0.0/24")
        yield here


class Site:
    """An inventory of hosts at addresses behind these sshd processes, and the commands that read
    it."""

    def __init__(self, sshds, work):
        self.sshds, self.work, self.log, self.runs = sshds, work, work / "ssh.log", work / "runs"
        self.hosts = {
            name: {"ansible_host": address}
            for name, address in zip(ALIVE, sshds.addresses, strict=True)
        }
        self.variables = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "unhang_node_timeout_s": 200,
        }
        self.variables["ansible_ssh_common_args"] = " ".join(sshds.ssh_options)
        self.environment = audits.environment_of(sshds, work)
        (work / "ssh").write_text(LOGGED.format(log=self.log))
        (work / "ssh").chmod(0o755)

    @property
    def inventory(self):
        path = self.work / "hosts.json"
        path.write_text(json.dumps({"all": {"hosts": self.hosts, "vars": self.variables}}))
        return str(path)

    def argv(self, *arguments):
        return [sys.executable, "-P", "-m", "unhang", *arguments]

    def audit(self, *arguments, via="clush"):
        command = self.argv(
            "audit", "--via", via, "-i", self.inventory, "--out", str(self.runs), *arguments
        )
        return audits.run(self.sshds, command, self.environment, self.runs / "latest")

    def go_on(self, *arguments, via="clush"):
        command = self.argv(
            "audit", "--via", via, "--continue", str(self.runs / "latest"), *arguments
        )
        return audits.run(self.sshds, command, self.environment, self.runs / "latest")

    def lines(self):
        """(start or end, address) of each ssh process so far."""
        return (
            [tuple(line.split()) for line in self.log.read_text().splitlines()]
            if self.log.exists()
            else []
        )

    def statuses(self):
        """{host: status} of the newest run."""
        return {
            node["host"]: node["status"]
            for node in map(read, (self.runs / "latest" / "nodes").glob("*.json"))
        }


def read(path):
    return json.loads(path.read_text())


@pytest.fixture
def site(sshds, tmp_path):
    return Site(sshds, tmp_path)


def test_dead_nodes_wait_side_by_side_and_the_others_are_read(site, sshds):
    silent = {f"void{number:02d}": f"10.9.0.{number + 1}" for number in range(12)}
    mute = {
        f"mute{number:02d}": address for number, address in enumerate(addresses("127.2.0.1", 12))
    }
    closed = {
        f"closed{number:02d}": address for number, address in enumerate(addresses("127.3.0.1", 12))
    }
    site.hosts |= {
        name: {"ansible_host": address} for name, address in {**silent, **mute, **closed}.items()
    }
    site.variables |= {"ansible_timeout": 40, "ansible_ssh_executable": str(site.work / "ssh")}
    with sshds.mute(mute.values()):
        done = site.audit("--forks", "2")
    assert site.statuses() == {
        **dict.fromkeys(ALIVE, "ok"),
        **dict.fromkeys({**silent, **mute, **closed}, "unreachable"),
    }, done.stderr
    waiting = {*silent.values(), *mute.values()}
    lines = site.lines()
    first_end = next(
        number
        for number, (what, address) in enumerate(lines)
        if what == "end" and address in waiting
    )
    started = {address for what, address in lines[:first_end] if what == "start"}
    assert started >= waiting, (
        "a dead node was asked only when another one's connect deadline had passed"
    )
    assert "timed out" in done.node("void00")["message"]
    assert "banner exchange" in done.node("mute00")["message"]
    assert "refused" in done.node("closed00")["message"]


@pytest.mark.parametrize("via", ["clush", "ansible"])
def test_stragglers_are_cut_at_the_deadline_named_and_read_later(site, sshds, via):
    (address,) = addresses("127.5.0.1", 1)
    site.hosts["late"] = {"ansible_host": address}
    site.hosts["later"] = {"ansible_host": address}
    site.variables["ansible_timeout"] = 100
    limit = (
        ("--forks", "4")
        if via == "clush"
        else ("--forks", "4", "--", "-e", "ansible_pipelining=true")
    )
    with sshds.mute([address]):
        done = site.audit("--deadline", "25", *limit, via=via)
    assert site.statuses() == {
        **dict.fromkeys(ALIVE, "ok"),
        "late": "timeout",
        "later": "timeout",
    }, done.stderr
    assert {done.node(name)["message"] for name in ("late", "later")} == {
        "no answer by the deadline of the run, 25 s"
    }
    assert (
        "unhang: the deadline of the run, 25 s, has passed; 2 hosts cut: late,later; read them"
        f" with: unhang audit --continue {site.runs}/" in done.stderr
    )
    assert {"node-timeout"} == set(done.rules("late"))
    assert done.code == 1
    times = {
        name: (site.runs / "latest" / "nodes" / f"{name}.json").stat().st_mtime_ns for name in ALIVE
    }
    with sshds.listening(address):
        again = site.go_on(via=via)
    assert set(site.statuses().values()) == {"ok"}, again.stderr
    assert {
        name: (site.runs / "latest" / "nodes" / f"{name}.json").stat().st_mtime_ns for name in ALIVE
    } == times


def test_a_deadline_of_a_node_that_was_not_asked_says_so(site, sshds):
    (address,) = addresses("127.6.0.1", 1)
    for number in range(40):
        site.hosts[f"late{number:02d}"] = {"ansible_host": address}
    site.variables["ansible_timeout"] = 100
    with sshds.mute([address]):
        done = site.audit("--forks", "1", "--deadline", "25")
    said = {done.node(name)["message"] for name in site.hosts if name not in ALIVE}
    assert "not asked by the deadline of the run, 25 s" in said
    assert said <= {
        "not asked by the deadline of the run, 25 s",
        "no answer by the deadline of the run, 25 s",
    }


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_controller_that_is_lost_or_stopped_has_what_arrived_and_goes_on(
    site, sshds, how, tmp_path
):
    (address,) = addresses("127.7.0.1", 1)
    site.hosts["late"] = {"ansible_host": address}
    site.variables |= {"ansible_timeout": 100, "ansible_ssh_executable": str(site.work / "ssh")}
    command = site.argv("audit", "--via", "clush", "-i", site.inventory, "--out", str(site.runs))
    with (
        sshds.mute([address]),
        (tmp_path / "log").open("w") as log,
        under_way(sshds.inside(command, audits.PROJECT), site.environment, log) as process,
    ):
        audits.wait_until(
            lambda: len(list(site.runs.glob("*/nodes/*.json"))) == len(ALIVE),
            "three nodes are recorded",
        )
        (unhang,) = (
            int(one)
            for one in subprocess.run(
                ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
            ).stdout.split()
        )
        os.kill(unhang, how)
        audits.wait_until(lambda: process.poll() is not None, "the controller ended")
    said = (tmp_path / "log").read_text()
    (run,) = site.runs.glob("2*")
    assert read(run / "run.json")["finished"] is None
    if how == signal.SIGINT:
        assert (
            f"it was stopped by hand; read the other nodes with: unhang audit --continue {run}"
            in said
        )
        assert "Traceback" not in said
    asked = len(site.lines())
    with sshds.listening(address):
        done = audits.run(
            sshds,
            site.argv("audit", "--via", "clush", "--continue", str(run)),
            site.environment,
            run,
        )
    assert {name: done.node(name)["status"] for name in site.hosts} == dict.fromkeys(
        site.hosts, "ok"
    ), done.stderr
    assert {found for what, found in site.lines()[asked:] if what == "start"} == {address}
    assert read(run / "run.json")["finished"]


def test_the_sites_ssh_config_counts(site, sshds, tmp_path):
    """ProxyJump, HostName, Port, User, IdentityFile and known hosts of /etc/ssh/ssh_config; the
    node's name means something to the gateway only."""
    inner = "127.8.0.1"
    (sshds.root / "etc" / "hosts").write_text(
        f"127.0.0.1 localhost\n{inner} node-behind-the-gate\n"
    )
    settings = (
        f"User root\nIdentityFile {sshds.folder}/id_ed25519\nIdentitiesOnly"
        f" yes\nGlobalKnownHostsFile {tmp_path}/known_hosts\n"
    )
    (tmp_path / "known_hosts").write_text(
        f"127.1.0.1 {sshds.host_key}\n[node-behind-the-gate]:2222 {sshds.host_key}\n"
    )
    (tmp_path / "ssh_config").write_text(
        "Host gate\nHostName 127.1.0.1\nHost gpu*\nHostName node-behind-the-gate\nPort"
        f" 2222\nProxyJump gate\nHost *\n{settings}"
    )
    site.hosts = {
        "gpu001": {},
        "gpu002": {"ansible_ssh_extra_args": "-o GlobalKnownHostsFile=/dev/null"},
    }
    del site.variables["ansible_user"], site.variables["ansible_ssh_common_args"]
    sshds.run(["mount", "--bind", str(tmp_path / "ssh_config"), "/etc/ssh/ssh_config"], check=True)
    try:
        with sshds.listening(inner, Port=2222):
            by_clush, by_ansible = site.audit(), site.audit(via="ansible")
    finally:
        sshds.run(["umount", "/etc/ssh/ssh_config"], check=True)
    for done in (by_clush, by_ansible):
        assert {name: done.node(name)["status"] for name in site.hosts} == {
            "gpu001": "ok",
            "gpu002": "unreachable",
        }, done.node("gpu001")["message"]
        assert "host key" in done.node("gpu002")["message"].lower()
