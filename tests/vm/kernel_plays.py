"""Applies the role kernel to a machine with the real ansible-playbook."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from fakes.role_play import PROJECT, environment, read_play, write_play

DEADLINE_S = 3600
# Long enough for a boot on a busy machine: an emulated second can take many real ones.
PATIENCE = {
    "kernel_confirm_within_s": 900,
    "kernel_settle_s": 60,
    "kernel_update_cache": False,
    "kernel_trial_options": "panic=5",
}
# The same for reading a node.
READING = {"unhang_node_timeout_s": 600, "unhang_silence_s": 120, "unhang_deadline_s": 300}
GPUS = "/root/gpus.json"
RULES = {
    "policy-kernel-version",
    "policy-kernel-min",
    "kernel-reboot-required",
    "kernel-one-shot-boot-pending",
    "kernel-next-boot-without-driver",
}


@dataclass(frozen=True)
class Site:
    """One machine, its node's policy, and variables of the role."""

    machine: object
    policy: dict
    variables: dict

    def play(self, *arguments, **variables):
        """Runs the role once; gives its Played."""
        command, where = self.prepared(arguments, variables)
        return read_play(
            subprocess.run(command, timeout=DEADLINE_S, capture_output=True, text=True, **where)
        )

    def run(self, playbook, **variables):
        """(Played of one of the project's playbooks, its run folder); variables are given with
        -e."""
        folder = self.run_folder()
        command, where = self.prepared(("-e", json.dumps(variables)), {}, playbook)
        where["env"].update(UNHANG_NEW_RUN=str(folder), UNHANG_JUDGE="0")
        return read_play(
            subprocess.run(command, timeout=DEADLINE_S, capture_output=True, text=True, **where)
        ), folder

    def start(self, *arguments, **variables):
        """The same as a process that continues while the test changes the machine."""
        command, where = self.prepared(arguments, variables)
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where
        )

    def audit(self):
        """Ids of the failed rules about the running kernel and the next boot. (Other rules report
        lockups, which a slow emulation may have.)"""
        folder = self.run_folder()
        command, where = self.prepared((), {}, "playbooks/audit.yml")
        where["env"]["UNHANG_NEW_RUN"] = str(folder)
        done = subprocess.run(command, timeout=DEADLINE_S, capture_output=True, text=True, **where)
        sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
        found = json.loads((folder / "findings.json").read_text())["findings"]
        return sorted({row["rule"] for row in found if row["verdict"] == "fail"} & RULES)

    def run_folder(self):
        """The folder of the next audit."""
        return self.machine.folder / f"run-{len(list(self.machine.folder.glob('run-*')))}"

    def prepared(self, arguments, variables, playbook=None):
        """(command, options of subprocess) of a playbook; by default one that contains only the
        role."""
        work = self.machine.folder
        host = {
            **reached(self.machine),
            "unhang_policy": self.policy,
            **self.variables,
            **variables,
        }
        inventory = work / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": {"vm": host}}}))
        command = [
            sys.executable,
            "-m",
            "ansible.cli.playbook",
            str(playbook or write_play(work, "kernel")),
            "-i",
            str(inventory),
            *arguments,
        ]
        return command, in_folder(work)


def in_folder(work):
    """Options of subprocess for a program of the controller that keeps its own files in this
    folder."""
    # The log has the time of each line, which shows where a slow play spent it.
    return {
        "cwd": PROJECT,
        "env": {**environment(work), "ANSIBLE_LOG_PATH": str(work / "ansible.log")},
        "stdin": subprocess.DEVNULL,
    }


def reached(machine):
    """Variables with which Ansible reaches the machine."""
    options = " ".join(machine.ssh_arguments()).replace(f"-p {machine.port} ", "")
    # A connection that the guest does not answer any more is closed, whatever the reason.
    options += " -o ServerAliveInterval=15 -o ServerAliveCountMax=8"
    # Ansible's own ConnectTimeout of 10 s comes first on ssh's command line and wins; an emulated
    # machine on a busy one takes longer to send its banner.
    return {
        "ansible_host": "127.0.0.1", "ansible_port": machine.port, "ansible_user": "root",
        "ansible_ssh_common_args": options,
        "ansible_ssh_timeout": 90, "ansible_python_interpreter": "/usr/bin/python3",
    }  # fmt: skip


def site_of(machine):
    """A Site whose policy names the newer kernel."""
    return Site(
        machine,
        {"kernel": {"version": machine.image.new}},
        {**PATIENCE, **READING, "unhang_nvml_recording": GPUS},
    )


def boots(machine):
    """GRUB's settings for the next boots: {saved_entry, next_entry} where they are set."""
    lines = machine.shell("grub-editenv /boot/grub/grubenv list").splitlines()
    return {
        name: value
        for name, _equals, value in (line.partition("=") for line in lines)
        if name in ("saved_entry", "next_entry") and value
    }


def default_of(machine):
    """The kernel that an ordinary boot starts, from GRUB's environment block."""
    return boots(machine)["saved_entry"].rpartition(">gnulinux-")[2]
