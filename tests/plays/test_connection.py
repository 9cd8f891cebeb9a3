"""A node cannot choose how it is reached: real ssh plugin and playbook, a stand-in for the program
ssh, and a node that answers every module with settings."""

from __future__ import annotations

import sys

import pytest
import yaml
from local_fleet import envelope

EVIL = "-o ProxyCommand=touch${IFS}owned"
SETTINGS = {
    "ansible_ssh_common_args": EVIL, "ansible_ssh_extra_args": EVIL, "ansible_ssh_args": EVIL,
    "ansible_ssh_executable": "/nowhere/ssh",
    "ansible_host": "203.0.113.9",
    "ansible_connection": "local", "ansible_user": "root", "ansible_port": 2,
    "ansible_become": True, "ansible_become_exe": "/nowhere/sudo",
    "ansible_python_interpreter": "/nowhere/python", "ansible_shell_executable": "/nowhere/sh",
    "inventory_hostname": "other",
    "discovered_interpreter_python": "/nowhere/python",
}  # fmt: skip
HIJACK = envelope(
    ansible_facts={**SETTINGS, "ansible_facts": SETTINGS},
    add_host={"host_name": "other", "groups": ["all"], "host_vars": SETTINGS}, add_group="other",
    hostvars={"gpu001": SETTINGS}, ansible_delegated_vars=SETTINGS,
    _ansible_delegated_vars=SETTINGS, invocation=SETTINGS, **SETTINGS,
)  # fmt: skip
SSH = '#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nfor last; do :; done\nexec /bin/sh -c "$last"\n'
TASKS = [
    {"gpu_node_info": {}},
    {"ansible.builtin.ping": {}},
    {"ansible.builtin.setup": {}, "register": "answer"},
    {"service_running": {"name": "x.timer"}, "register": "answer", "ignore_errors": True},
    {"ansible.builtin.ping": {}},
    {
        "ansible.builtin.debug": {
            "msg": (
                "{{ groups['all'] }} {{ ansible_ssh_common_args | default('none') }} {{"
                " ansible_host }} {{ inventory_hostname }}"
            )
        }
    },
]


@pytest.fixture
def reached(fleet):
    """What ssh was called with by a play over a node that answers with settings: (lines, the
    play)."""
    fleet.answering("gpu001", HIJACK)
    ssh = fleet.folder / "ssh"
    ssh.write_text(SSH.format(log=fleet.folder / "log"))
    ssh.chmod(0o755)
    settings = {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(ssh),
        "ansible_host": "192.0.2.1",
        "ansible_ssh_pipelining": True,
    }
    fleet.hosts["gpu001"] |= settings
    (fleet.folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": TASKS}])
    )
    done = fleet.play(
        playbook=fleet.folder / "play.yml", environment={"ANSIBLE_STDOUT_CALLBACK": "default"}
    )
    return (fleet.folder / "log").read_text().splitlines(), done


def test_what_a_node_answers_changes_no_argument_of_ssh(reached, fleet):
    lines, done = reached
    assert len(lines) >= 5, "each task went through ssh"
    assert not [
        line
        for line in lines
        if "ProxyCommand" in line or "203.0.113.9" in line or "/nowhere" in line
    ]
    assert all("192.0.2.1" in line for line in lines)
    assert "['gpu001'] none 192.0.2.1 gpu001" in done.stdout
    assert not (fleet.folder / "owned").exists()


HOSTILE_SUDO = """#!/bin/sh
# A sudoers that keeps the PATH of the user: !secure_path, env_keep += "PATH".
PATH={folder}/evil:$PATH
export PATH
for last; do :; done
exec /bin/sh -c "$last"
"""


def test_programs_of_a_hostile_path_are_not_run_by_root(fleet):
    """With become: what unhang starts on a node, it finds in the system's folders, whatever PATH
    sudo lets through."""
    evil = fleet.folder / "evil"
    evil.mkdir()
    for name in (
        "systemctl",
        "dpkg-query",
        "apt-get",
        "apt-config",
        "rpm",
        "nvidia-smi",
        "lspci",
        "scontrol",
        "uname",
        "modinfo",
        "ldconfig",
        "update-grub",
    ):
        (evil / name).write_text(f"#!/bin/sh\necho {name} >> {fleet.folder}/owned\n")
        (evil / name).chmod(0o755)
    sudo = fleet.folder / "sudo"
    sudo.write_text(HOSTILE_SUDO.format(folder=fleet.folder))
    sudo.chmod(0o755)
    fleet.host(
        "gpu001",
        ansible_become=True,
        ansible_become_method="sudo",
        ansible_become_exe=str(sudo),
        ansible_python_interpreter=sys.executable,
    )
    tasks = [
        {"gpu_node_info": {}},
        {"service_running": {"name": "unhang-no-such.timer"}, "ignore_errors": True},
        {"package_offers": {"names": ["libc6"]}, "ignore_errors": True},
        {"ansible.builtin.command": {"argv": ["env"]}, "check_mode": False, "register": "shown"},
        {"ansible.builtin.debug": {"msg": "{{ shown.stdout_lines | select('match', 'PATH=') }}"}},
    ]
    (fleet.folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}])
    )
    settings = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_BECOME_ALLOW_SAME_USER": "1"}
    done = fleet.play("--check", playbook=fleet.folder / "play.yml", environment=settings)
    assert f"PATH={evil}:" in done.stdout, "sudo lets the user's PATH through"
    assert not (fleet.folder / "owned").exists(), (fleet.folder / "owned").read_text()
