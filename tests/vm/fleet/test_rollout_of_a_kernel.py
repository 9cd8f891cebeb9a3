"""`unhang remediate --apply` over two machines under emulation with GRUB; the canary's new kernel
does not boot."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import site_drain
from kernel_plays import DEADLINE_S, boots, default_of, in_folder, reached, site_of
from machine.machine import Machine

CANARY, NEXT = "vm1", "vm2"
BROKEN = "dd if=/dev/urandom of=/boot/initrd.img-{} bs=64k count=64 conv=notrunc status=none"
# Files that a rollout may leave on a node, and the node's current boot.
STATE = (
    "cat /proc/sys/kernel/random/boot_id; grub-editenv /boot/grub/grubenv list; sha256sum"
    " /boot/grub/grub.cfg; ls /boot /var/lib/unhang 2>&1 || true"
)


class Fleet:
    """Two machines on one controller. work: a folder of the controller's."""

    def __init__(self, canary, following, work):
        self.machines, self.work = {CANARY: canary, NEXT: following}, work
        work.mkdir(parents=True)
        common = {**site_drain.install(work, {CANARY: {}, NEXT: {}}), "drain_poll_s": 1}
        hosts = {}
        for name, machine in self.machines.items():
            site = site_of(machine)
            hosts[name] = {
                **reached(machine),
                "unhang_policy": site.policy,
                **site.variables,
                **common,
            }
        (work / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))

    def unhang(self, *argv):
        """CompletedProcess of a command on the controller."""
        options = {
            **in_folder(self.work),
            "capture_output": True,
            "text": True,
            "timeout": DEADLINE_S,
        }
        done = subprocess.run([sys.executable, "-P", "-m", "unhang", *argv], check=False, **options)
        sys.stdout.write(f"$ unhang {' '.join(argv)}\n{done.stdout}\n{done.stderr}\n")
        assert done.returncode in (0, 1), done.returncode
        return done

    def planned(self):
        """The run folder of an audit and of a plan for the kernel, and the plan."""
        self.unhang("audit", "-i", str(self.work / "hosts.json"), "--out", str(self.work / "runs"))
        run = (self.work / "runs" / "latest").resolve()
        self.unhang(
            "plan",
            str(run),
            "--rule",
            "policy-kernel-version",
            "--floor",
            "0",
            "--max-unavailable",
            "2",
        )
        return run, json.loads((run / "plan.json").read_text())

    def rolled_out(self, run):
        """(exit code, status) of the plan's rollout, without a smoke test: the machines have no
        torch."""
        done = self.unhang("remediate", str(run), "--apply", "--no-smoke", "--soak", "0")
        return done.returncode, json.loads(
            self.unhang("remediate", str(run), "--status", "--format", "json").stdout
        )


@pytest.fixture
def fleet(image, folders, booted, installation):
    """The canary has the newer kernel installed, with a file that is no initrd; the next node does
    not have it yet."""
    with (
        Machine(image, folders(), installation[1]) as canary,
        Machine(image, folders(), booted) as following,
    ):
        canary.shell(BROKEN.format(image.new))
        # both go on from one memory image, and so have one machine id and one boot id
        following.shell(f"hostname {NEXT}")
        yield Fleet(canary, following, folders())


# One test: its preparation takes minutes, and two workers would each repeat it.
def test_a_canary_whose_new_kernel_does_not_come_up_is_rolled_back_and_kept_and_the_next_node_is_not_touched(
    image, fleet
):
    canary, following = fleet.machines.values()
    before = following.shell(STATE)
    run, plan = fleet.planned()
    assert [wave["hosts"] for wave in plan["waves"]] == [[CANARY], [NEXT]]
    assert [[one["step"] for one in row["reboots"]] for row in plan["hosts"]] == [
        ["trial", "rollback"]
    ] * 2
    code, status = fleet.rolled_out(run)
    rows = {row["host"]: row for row in status["hosts"]}
    assert (code, status["stopped"]) == (1, f"not proved healthy among the canaries: {CANARY}")
    look_at_the_machine(image, canary, rows[CANARY], plan["hosts"][0])
    look_at_who_is_told(image, fleet, run, rows[CANARY])
    assert (rows[NEXT]["state"], rows[NEXT]["boots"]) == ("to come", [])
    assert site_drain.known(fleet.work, NEXT) == site_drain.FREE
    assert following.shell(STATE) == before


def look_at_the_machine(image, machine, row, planned):
    """It runs the old kernel, which is the default, by itself; no boot is uncounted or beyond the
    plan."""
    assert "Kernel panic" in machine.console()
    assert machine.shell("uname -r").strip() == image.old
    assert default_of(machine).startswith(image.old)
    assert "next_entry" not in boots(machine)
    # The console of the kernel that panicked names its version too; every other start is a boot in
    # the status.
    started = [line for line in machine.console().splitlines() if "Linux version" in line]
    assert [boot.partition(",")[0] for boot in row["boots"]][:1] == ["trial boot"]
    assert len(started) == len(row["boots"]) + 1
    assert len(row["boots"]) <= len(planned["reboots"])


def look_at_who_is_told(image, fleet, run, row):
    """It stays drained with the reason, without a lock, and nothing remains to be rolled back."""
    node = site_drain.known(fleet.work, CANARY)
    assert (row["state"], row["drained"], row["locked"], row["undo"]) == ("kept", True, False, "")
    assert f"kernel {image.old} came up, not {image.new}" in row["why"]
    assert (node["drained"], node["owned"]) == (True, True)
    assert node["reason"].startswith(f"unhang {run.name}: apply: ")
    assert f"kernel {image.old} came up, not {image.new}" in node["reason"]
    assert "lock.json" not in fleet.machines[CANARY].shell("ls /var/lib/unhang")
