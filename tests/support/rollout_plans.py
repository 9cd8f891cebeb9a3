"""A small plan on disk, and a journal of its nodes, written in the machine's own order of steps."""

from __future__ import annotations

import datetime

from unhang.act.plan.plan_document import (
    GroupLimit,
    HostPlan,
    Plan,
    PlanLimits,
    PlannedRun,
    Reboot,
    Remedy,
    Wave,
    write_plan,
)
from unhang.act.rollout.conductor import Conductor, Followed, begin
from unhang.act.rollout.steps import STEPS, StepResult

HOSTS = ("a", "b", "c")
GROUPS = {"rack1": ["b", "c"]}
POLICY = {"driver": {"version": "580.95.05"}}
RUNNING = {"driver": "580.95.05"}
EVIDENCE = {
    "lock": {"fencing": 7, "boot_id": "{host}-boot"},
    "drain": {"drained": True, "owned": True, "jobs": []},
    "wait": {"jobs": []},
    "save": {},
    "apply": {"boot_id": "{host}-boot", "needs_reboot": True, "saved_state": "s1"},
    "reboot": {"boot_id": "{host}-boot2", "running": RUNNING},
    "audit": {
        "boot_id": "{host}-boot2",
        "healthy": True,
        "running": RUNNING,
        "gone": ["policy-driver-version"],
        "left": [],
    },
    "smoke_alone": {
        "boot_id": "{host}-boot2",
        "healthy": True,
        "bandwidth": [{"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": 340.0}],
    },
    "smoke_together": {
        "boot_id": "{host}-boot2",
        "healthy": True,
        "bandwidth": [{"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": 350.5}],
    },
    "audit_again": {"boot_id": "{host}-boot2", "healthy": True},
    "release": {"boot_id": "{host}-boot2", "drained": False, "owned": False},
    "roll_back": {"boot_id": "{host}-boot2", "needs_reboot": True},
    "reboot_back": {"boot_id": "{host}-boot3"},
    "audit_back": {"boot_id": "{host}-boot3", "healthy": True},
    "keep": {},
}


def planned(folder):
    """A canary and a wave of two, of a new driver."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    reboots = (Reboot("trial", "kernel"), Reboot("apply", "driver"), Reboot("rollback", "back"))
    remedy = Remedy("gpu_driver", POLICY, ("policy-driver-version",), "535.1", "580.95.05")
    hosts = tuple(
        HostPlan(name, f"{name}-boot", "sha256:" + "0" * 64, (remedy,), reboots) for name in HOSTS
    )
    limits = PlanLimits(2, 0, 3, (GroupLimit("rack1", 1),))
    plan = Plan(
        PlannedRun("20261120T070000Z-0123456789", now, now),
        "2026-11-20",
        limits,
        hosts,
        (Wave("canary 1", ("a",)), Wave("wave 1", ("b", "c"))),
    )
    write_plan(folder, plan)
    return plan


class Recorded(Conductor):
    """A controller whose nodes return the given results."""

    def __init__(self, folder, plan):
        super().__init__(folder, Followed(folder, plan), 0)

    def begin(self):
        """Becomes the current controller."""
        object.__setattr__(
            self,
            "epoch",
            begin(self.folder, HOSTS, {"by": "ops@ctl"}, lambda _holder: True, "")["epoch"],
        )

    def _running(self, host):
        """The node's values, as if it had been read."""
        return RUNNING

    def through(self, host, until=None, failing=None):
        """Runs every step that the node needs; until: the step in which the controller dies;
        failing: the step that fails."""
        for step in STEPS:
            order = self.ask(host, step, GROUPS, "9")
            if order is None:
                continue
            if step == until:
                return
            evidence = {
                key: value.format(host=host) if isinstance(value, str) else value
                for key, value in EVIDENCE[step].items()
            }
            self.record(
                order,
                StepResult("failed", {"why": "it broke"})
                if step == failing
                else StepResult("ok", evidence),
            )
