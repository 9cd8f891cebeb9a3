"""ansible-playbook is killed in one step after another of a rollout to a booted node in a real
Slurm: before the node did the step, during it, after it, and between two steps.

The node gets another driver and its one reboot. Each time the same command continues, and
everything is checked where it is: in Slurm, on the node, in the journal. Two kills by default;
KILL_POINTS=every runs all of them, also during a rollback (`make kill-points`).
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import types

import audits
import driver_node
import kill_points
import pytest
import slurm_nodes
import torch_in_nodes
from fakes.role_play import read_play
from kill_points import PROVED, UNFIT
from role_plays import state_of
from slurm_site import DEADLINE_S, Site, entries, node_of

NODE = "gpu001"
PLUGINS = audits.PROJECT / "tests" / "fakes" / "kill_plugins"
DRIVER = ("nvidia-driver", "nvidia-kernel-dkms", "libnvidia-ml1")
POLICY = {"driver": {"version": driver_node.NEW, "flavour": "proprietary", "held": True}}
AUDITED = {"unhang_policy": POLICY}
DEATHS = kill_points.chosen(
    [(PROVED, "within", "apply"), (PROVED, "after", "reboot")], kill_points.every_on_nodes()
)
# Until something is changed, each controller begins again: what it saved and measured before may be
# out of date.
ONCE = (
    "apply",
    "reboot",
    "audit",
    "smoke_alone",
    "smoke_together",
    "audit_again",
    "roll_back",
    "reboot_back",
    "audit_back",
    "keep",
    "release",
)
# Every boot of the node, and everything that a rollout may leave on it.
BOOTS = "cat /proc/sys/kernel/random/boot_id >>/srv/boots\n"
# dpkg reports that it is at work, and takes as long as the build of a driver's module may take: the
# next controller finds it running.
AT_WORK, LONG_S = (
    "pre-invoke=echo dpkg >>/srv/at-work; sleep $(cat /srv/dpkg-takes-s 2>/dev/null || echo 0)\n",
    40,
)
MARKS = {
    "apply": "/srv/at-work",
    "roll_back": "/srv/at-work",
    "reboot": "/srv/boots",
    "reboot_back": "/srv/boots",
}
LEFT = (
    "cd /var/lib/unhang 2>/dev/null && ls | grep -x -e lock.json -e baseline.json -e"
    " boot_trial.json || true"
)
LOADED = "cat /srv/hardware/sys/module/nvidia/version"
INSTALLED = "dpkg-query -W " + " ".join(DRIVER) + "; apt-mark showhold; ls /etc/apt/preferences.d"
pytestmark = slurm_nodes.marks(7200)


@pytest.fixture(scope="module")
def site(fake_library, tmp_path_factory):
    """A node in Slurm whose driver is older than its policy requires, used for all kills one after
    the other."""
    work = tmp_path_factory.mktemp("deaths")
    with slurm_nodes.cluster_of((NODE,), fake_library, work) as cluster:
        driver_node.prepare(cluster.fleet, NODE, work)
        cluster.fleet.plant(
            NODE,
            "/usr/local/sbin/testbed-driver",
            driver_node.LOAD.replace("\n", "\n" + BOOTS, 1),
            0o755,
        )
        cluster.fleet.plant(NODE, "/etc/dpkg/dpkg.cfg.d/at-work", AT_WORK)
        torch_in_nodes.plant_broken(cluster.fleet, NODE)
        yield Site(cluster, work, host_variables={NODE: AUDITED})


def as_it_is(site):
    """Everything on the node that a rollout changes or may change. Ansible's own folders of
    temporary files do not count."""
    site.cluster.fleet.nodes[NODE].find_leader()
    shell = site.cluster.fleet.shell
    files = {
        line
        for line in state_of(site.cluster.fleet, NODE).splitlines()
        if "/var/lib/unhang" not in line and not line.startswith("/root/.ansible")
    }
    return types.SimpleNamespace(
        files=files,
        packages=shell(NODE, INSTALLED),
        driver=shell(NODE, LOADED).strip(),
        slurm=site.cluster.state(NODE),
        left=shell(NODE, LEFT).split(),
    )


@pytest.fixture
def lent(site):
    """Restores the node for the next kill, and compares it byte by byte with its first state."""
    shell = site.cluster.fleet.shell
    shell(NODE, "rm -f /srv/boots /srv/at-work /srv/dpkg-takes-s; : >/var/log/dpkg.log")
    before = as_it_is(site)
    yield site
    shell(NODE, "rm -rf /var/lib/unhang")
    if "DRAIN" in site.cluster.state(NODE)[0]:
        site.cluster.must("scontrol", "update", f"NodeName={NODE}", "State=RESUME")
    audits.wait_until(
        lambda: site.cluster.state(NODE)[0] == "IDLE", "slurmctld hears from the node"
    )
    after = as_it_is(site)
    assert sorted(after.files ^ before.files) == []
    assert vars(after) == vars(before)


def planned(site):
    """The run folder of a plan for the driver, with its one reboot."""
    run = site.audit()
    plan = site.plan(
        run, "--rule", "policy-driver-version", "--floor", "0", "--max-unavailable", "1"
    )
    assert [wave["hosts"] for wave in plan["waves"]] == [[NODE]]
    return run


def roll_out(site, run, variables, **death):
    """Runs the rollout; gives its Played. death: the point at which it is killed."""
    asked = {"unhang_plan": str(run), "unhang_apply": True, "drain_adapter": "slurm", **variables}
    environment = {
        **site.cluster.environment,
        "UNHANG_RUNS": str(site.work / "runs"),
        "UNHANG_JUDGE": "0",
    }
    environment |= {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_NOCOLOR": "1"}
    if death:
        mark = f"{site.cluster.bed.inner_state}/{NODE}/root{MARKS.get(death['step'], '')}"
        environment["KILL_POINT"] = json.dumps(
            {"host": NODE, "run": str(run), "mark": mark, **death}
        )
        environment["ANSIBLE_CALLBACK_PLUGINS"] = (
            f"{audits.PROJECT / 'plugins' / 'callback'}:{PLUGINS}"
        )
        environment["ANSIBLE_CALLBACKS_ENABLED"] = "unhang_run,unhang_rollout,kill_point"
    return read_play(
        inside(
            site,
            [
                "ansible-playbook",
                "playbooks/remediate.yml",
                "-i",
                str(site.inventory),
                "-e",
                json.dumps(asked),
            ],
            environment,
        )
    )


def inside(site, command, environment):
    """A finished command on the controller."""
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
        "timeout": DEADLINE_S,
    }
    return subprocess.run(
        site.cluster.bed.inside(command, audits.PROJECT), env=environment, check=False, **captured
    )


def status(site, run):
    """The node's row of `unhang remediate --status`."""
    [row] = json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))["hosts"]
    return row


def undo(site, row):
    """Restores a released node with the command that the status names."""
    argv = shlex.split(row["undo"])
    done = inside(
        site,
        [
            sys.executable,
            "-P",
            "-m",
            "unhang",
            *argv[argv.index("remediate") :],
            "--apply",
            "--no-smoke",
            "--soak",
            "0",
        ],
        site.cluster.environment,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    site.cluster.fleet.nodes[NODE].find_leader()


def look_at_the_death(site, run, killed, when, step):
    """Asserts that everything that remains is named, and prints a line about it."""
    assert killed.code in (-signal.SIGKILL, 128 + signal.SIGKILL), killed.output[-3000:]
    node = site.cluster.fleet.nodes[NODE]
    audits.wait_until(
        lambda: node.ssh("echo 0 >/srv/dpkg-takes-s").returncode == 0,
        "sshd answers, where the node was booting",
    )
    died, row = as_it_is(site), status(site, run)
    open_step = None if when == "done" else step
    assert (node_of(run, NODE).begun, row["state"], row["step"]) == (
        open_step,
        "unfinished",
        open_step,
    )
    assert row["next"].startswith("the same command goes on: it ")
    is_drained = "DRAIN" in died.slurm[0]
    assert died.slurm[1].startswith(f"unhang {run.name}: ") == is_drained
    assert row["drained"] >= is_drained
    assert row["locked"] >= ("lock.json" in died.left)
    left = [
        *died.left,
        *(["drained"] if is_drained else []),
        f"driver {died.driver}",
        *died.packages.split()[1:2],
    ]
    sys.stdout.write(f"| {when} {step} | {', '.join(left)} | {row['next']} |\n")


def variables_of(host, steps):
    """Variables of the rollout. Nodes that are not proved have a broken torch; unless a kill is in the
    smoke test or after it, it is left out, and the journal records that."""
    smokes = host == UNFIT or any(step.startswith(("smoke_", "audit_again")) for step in steps)
    return {
        "unhang_smoke": smokes,
        "smoke_test_python": str(torch_in_nodes.PYTHON)
        if host == PROVED
        else torch_in_nodes.BROKEN,
    }


@pytest.mark.parametrize("host", sorted({host for host, _when, _step in DEATHS}))
def test_a_rollout_that_is_killed_in_one_step_after_another_is_finished_by_the_same_command(
    lent, host
):
    deaths = [(when, step) for name, when, step in DEATHS if name == host]
    variables, run = variables_of(host, [step for _when, step in deaths]), planned(lent)
    first = lent.cluster.fleet.shell(NODE, "cat /proc/sys/kernel/random/boot_id").strip()
    for when, step in deaths:
        takes_s = LONG_S if when == "within" and MARKS[step] == "/srv/at-work" else 0
        lent.cluster.fleet.shell(NODE, f"echo {takes_s} >/srv/dpkg-takes-s")
        look_at_the_death(
            lent, run, roll_out(lent, run, variables, when=when, step=step), when, step
        )

    finished, ended, row, node = (
        roll_out(lent, run, variables),
        as_it_is(lent),
        status(lent, run),
        node_of(run, NODE),
    )
    boots, changes = (
        lent.cluster.fleet.shell(NODE, f"cat {path}").splitlines()
        for path in ("/srv/boots", "/var/log/dpkg.log")
    )
    moved = [tuple(line.split()[-2:]) for line in changes if " upgrade nvidia-driver:" in line]
    assert (ended.left, node.boot_id) == ([], boots[-1])
    assert {
        step: len(entries(run, NODE, step, "done"))
        for step in ONCE
        if len(entries(run, NODE, step, "done")) > 1
    } == {}
    assert node.state == row["state"] == ("released" if host == PROVED else "kept"), node.why
    there, back = (
        (f"{driver_node.OLD}-1", f"{driver_node.NEW}-1"),
        (f"{driver_node.NEW}-1", f"{driver_node.OLD}-1"),
    )
    if host == PROVED:
        assert (finished.code, ended.slurm[0], ended.driver) == (0, "IDLE", driver_node.NEW)
        assert sorted(lent.cluster.fleet.shell(NODE, "apt-mark showhold").split()) == sorted(DRIVER)
        assert (node.boots, len(boots), moved) == ((("reboot", first),), 1, [there])
        undo(lent, row)
    else:
        assert (finished.code, ended.slurm[0], ended.driver) == (2, "IDLE+DRAIN", driver_node.OLD)
        assert ended.slurm[1].startswith(f"unhang {run.name}: smoke_alone: ")
        assert (node.boots, len(boots), moved) == (
            (("reboot", first), ("reboot_back", boots[0])),
            2,
            [there, back],
        )
