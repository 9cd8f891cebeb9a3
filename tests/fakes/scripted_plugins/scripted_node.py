"""A node of tests/support/scripted_rollout.py: does a step like a healthy node, or as one of its
faults, `KIND STEP`, says.

fails: the task fails; unreachable: the connection is lost; hangs: no answer within the task's own
time limit; lies: returns ok and has done nothing;
unhealthy: not proved; boots: has booted by itself; wrong driver, wrong kernel: boots with the old
one. dies before, dies after: ansible-playbook is killed once, before the node has done the step, or
after that but before any result is reported.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

NEW = {"driver": "535.309.01", "kernel": "6.8.0-57-generic"}
OLD = {"driver": "545.23.08", "kernel": "6.8.0-51-generic"}
PROOFS = ("audit", "smoke_alone", "smoke_together", "audit_again", "audit_back")


class ActionModule(ActionBase):
    """One step of one node."""

    def run(self, tmp=None, task_vars=None):
        """{evidence}."""
        super().run(tmp, task_vars)
        options = {
            "step": {"required": True},
            "order": {"type": "dict"},
            "faults": {"type": "list", "elements": "str"},
            "nodes": {"type": "path"},
        }
        _, given = self.validate_argument_spec(argument_spec=options)
        host, step, folder = (
            str(task_vars["inventory_hostname"]),
            given["step"],
            Path(given["nodes"]),
        )
        with (folder / "acts").open("a") as acts:
            acts.write(f"{host} {step}\n")
        kinds = {
            one.rpartition(" ")[0] for one in given["faults"] if one.rpartition(" ")[2] == step
        }
        if "fails" in kinds:
            raise AnsibleActionFail(f"{step} broke")
        if "unreachable" in kinds:
            raise AnsibleConnectionFailure("no route to host")
        if "hangs" in kinds:
            time.sleep(600)
        _die_once(f"{host} before {step}", "dies before" in kinds, folder)
        evidence = _evidence(host, step, kinds, folder, given["order"].get("boot_id"))
        _die_once(f"{host} after {step}", "dies after" in kinds, folder)
        return {"changed": False, "evidence": evidence}


def _die_once(name, asked, folder):
    deaths = folder / "deaths"
    if asked and name not in (deaths.read_text().splitlines() if deaths.exists() else []):
        with deaths.open("a") as file:
            file.write(f"{name}\n")
        os.kill(os.getppid(), signal.SIGKILL)  # ansible-playbook, whose worker this is
        os.kill(os.getpid(), signal.SIGKILL)


def _evidence(host, step, kinds, folder, left):
    """left: the boot that the order must end; a node that has another boot already is not
    rebooted."""
    boot_of(host, folder, "boots" in kinds)
    boot, running = _state_of(host, folder)
    if "lies" in kinds:
        return {"boot_id": boot} if step == "reboot" else {}
    if step in ("drain", "keep"):
        (folder / f"{host}.drained").touch()
    if step == "release":
        (folder / f"{host}.drained").unlink(missing_ok=True)
    if step in ("reboot", "reboot_back") and boot == left:
        running = {
            name: OLD[name] if step == "reboot_back" or f"wrong {name}" in kinds else NEW[name]
            for name in NEW
        }
        boot = _next_boot(boot)
        _write(host, folder, boot, running)
    more = {
        "lock": {"fencing": 7},
        "drain": {"drained": True, "owned": True, "jobs": []},
        "wait": {"jobs": ["a job"] if "a job stays" in kinds else []},
        "apply": {"needs_reboot": True, "saved_state": "s1"},
        "roll_back": {
            "needs_reboot": step == "roll_back" and _comes_back(host, folder) and running != OLD
        },
        "release": {"drained": False, "owned": False, "held": ""},
        **{
            proof: {
                "healthy": "unhealthy" not in kinds,
                "why": "bandwidth" if "unhealthy" in kinds else "",
            }
            for proof in PROOFS
        },
    }
    return {"boot_id": boot, **more.get(step, {})}


def _comes_back(host, folder):
    """Whether there is anything left to roll back: a repeated rollback does not report what the
    first one restored."""
    mark = folder / f"{host}.rolled-back"
    is_first = not mark.exists()
    mark.touch()
    return is_first


def _next_boot(boot):
    host, _, number = boot.rpartition("-")
    return f"{host}-{int(number) + 1}"


def boot_of(host, folder, boots=False):
    """The boot id of a node, which has booted by itself if `boots`."""
    boot, running = _state_of(host, folder)
    if boots:
        boot = _next_boot(boot)
        _write(host, folder, boot, running)
    return boot


def _state_of(host, folder):
    """(boot id, {driver, kernel} that are running)."""
    [path] = Path(folder).glob(f"runs/*/nodes/{host}.json")
    found = json.loads(path.read_text())["facts"]["sections"]
    return found["node"]["boot_id"], {
        "driver": found["driver"]["loaded"]["version"],
        "kernel": found["kernel"]["release"],
    }


def _write(host, folder, boot, running):
    """The facts, as the next audit reads them."""
    [path] = Path(folder).glob(f"runs/*/nodes/{host}.json")
    document = json.loads(path.read_text())
    sections = document["facts"]["sections"]
    (
        sections["node"]["boot_id"],
        sections["driver"]["loaded"]["version"],
        sections["kernel"]["release"],
    ) = boot, running["driver"], running["kernel"]
    path.write_text(json.dumps(document))
