"""The real sudo under a hostile environment and a hostile sudoers: root runs no program and imports
no module that the user's PATH or folder offers.

All of it runs in a mount namespace that ends with the play, where /etc/sudoers and /etc/passwd are
files of the test: the machine's own stay as they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from local_fleet import Fleet, run

from unhang.core.ansible import ansible_env

USER_ID = 61234
SYSTEM = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Programs of nodes that this machine may lack.
MORE = (
    "nvidia-smi",
    "lspci",
    "scontrol",
    "rpm",
    "dkms",
    "update-grub",
    "grubby",
    "dcgmi",
    "systemctl",
    "modinfo",
    "ldconfig",
    "dnf",
)
# Stands in the hostile PATH under the name of each program: says who started it, and does the same
# as the program.
PROGRAM = """#!/bin/sh
echo "${{0##*/}} by $(/usr/bin/id -u)" >>{log}
for folder in {system}; do [ -x "$folder/${{0##*/}}" ] && exec "$folder/${{0##*/}}" "$@"; done
exit 127
"""
MODULE = """
import os
with open({log!r}, "a") as log:
    log.write(f"import {{__name__}} by {{os.geteuid()}}\\n")
raise ImportError
"""
# In the place of ssh: the user's shell, in the user's folder, with the user's environment.
SSH = """#!/bin/sh
for last; do :; done
cd {home} || exit 1
exec setpriv --reuid={user} --regid={user} --clear-groups env -i HOME={home} PATH={evil}:/usr/bin:/bin PYTHONPATH={home} PYTHONHOME={home} PYTHONINSPECT=1 \\
    BASH_ENV={evil}/true ENV={evil}/true PERL5LIB={home} LD_LIBRARY_PATH={home} /bin/sh -c "$last"
"""
INSIDE = (
    'mount --bind "$1/sudoers" /etc/sudoers && mount --bind "$1/passwd" /etc/passwd && shift &&'
    ' exec "$@"'
)
ALL = "operator ALL=(ALL) NOPASSWD: ALL"
HOSTILE = {
    "as Debian has it": ("Defaults env_reset, secure_path=/usr/sbin:/usr/bin:/sbin:/bin",),
    "PATH is kept": ("Defaults !secure_path", 'Defaults env_keep += "PATH"'),
    "nothing is reset": ("Defaults !env_reset, !secure_path",),
    "the secure path is the user's": ("Defaults secure_path={evil}:/usr/bin",),
    "new files are everybody's": (
        "Defaults umask=0000, umask_override, !secure_path",
        'Defaults env_keep += "PATH"',
    ),
}
LETS_PATH_THROUGH = [name for name in HOSTILE if name != "as Debian has it"]
READING = [
    {"gpu_node_info": {}},
    {"gpu_users": {}},
    {"dkms_builds": {"module": "nvidia*", "version": "1", "kernel": "1"}},
    {"service_running": {"name": "unhang-no-such.timer"}},
    {"package_offers": {"names": ["libc6"]}},
    {"package_pin": {"groups": ["kernel"]}},
]
CONTROL = {"ansible.builtin.command": {"argv": ["uname"]}, "check_mode": False}


@pytest.fixture
def node(tmp_path):
    """A fleet of gpu001, which is reached as the user `operator` who becomes root by sudo; with its
    folders `evil` and `home`, and the file `log`."""
    fleet = Fleet(tmp_path)
    evil, home, log = (tmp_path / name for name in ("evil", "home", "log"))
    for folder in (evil, home, tmp_path / "root"):
        folder.mkdir()
    (tmp_path / "program").write_text(PROGRAM.format(log=log, system=" ".join(SYSTEM)))
    (tmp_path / "program").chmod(0o755)
    for name in {*MORE, *(name for folder in SYSTEM for name in os.listdir(folder))} - {"sudo"}:
        (evil / name).symlink_to(tmp_path / "program")
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(user=USER_ID, home=home, evil=evil))
    ssh.chmod(0o755)
    others = [
        line
        for line in Path("/etc/passwd").read_text().splitlines()
        if not line.startswith(("root:", "operator:"))
    ]
    users = [
        f"root:*:0:0:root:{tmp_path}/root:/bin/sh",
        f"operator:*:{USER_ID}:{USER_ID}::{home}:/bin/sh",
        *others,
    ]
    (tmp_path / "passwd").write_text("\n".join(users) + "\n")
    fleet.hosts["gpu001"] = {
        "ansible_host": "192.0.2.1",
        "ansible_ssh_executable": str(ssh),
        "ansible_become": True,
    }
    return fleet


def plant_modules(node):
    """In the user's folder, which is the working folder of what is started there: a module of the
    name of each that Python has itself."""
    for name in sys.stdlib_module_names - {"os", "sys"}:
        (node.folder / "home" / f"{name}.py").write_text(
            MODULE.format(log=str(node.folder / "log"))
        )


def sudoers(node, *lines):
    """Writes the sudoers of the namespace. sudo's own records of who gave a password stay in the
    folder too."""
    text = (
        "\n".join(
            (f"Defaults !lecture, !syslog, !mail_no_user, timestampdir={node.folder}/times", *lines)
        )
        + "\n"
    )
    (node.folder / "sudoers").write_text(text.format(evil=node.folder / "evil"))
    (node.folder / "sudoers").chmod(0o440)


def inside(node, *command):
    """A finished command in the namespace. The machine's own sudoers is the same afterwards."""
    before = Path("/etc/sudoers").read_bytes()
    environment = node.environment(
        ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default",
        HOME=str(node.folder / "controller"),
    )
    done = run(
        ["unshare", "--mount", "sh", "-c", INSIDE, "sh", node.folder, *command],
        environment,
        node.folder,
    )
    sys.stdout.write(done.stdout + done.stderr)
    assert Path("/etc/sudoers").read_bytes() == before
    return done


def play(node, tasks):
    """Plays tasks in check mode, each whether or not the one before failed."""
    (node.folder / "play.yml").write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tasks": [{**one, "ignore_errors": True} for one in tasks],
                }
            ]
        )
    )
    return inside(
        node,
        ansible_env.ansible_program("ansible-playbook"),
        "--check",
        node.folder / "play.yml",
        "-i",
        node.inventory,
    )


def run_by_root(node):
    """What the user's PATH and folder offered, and root ran: lines of the log."""
    return (
        [line for line in (node.folder / "log").read_text().splitlines() if line.endswith(" by 0")]
        if (node.folder / "log").exists()
        else []
    )


@pytest.mark.parametrize("given", HOSTILE)
def test_what_unhangs_modules_start_as_root_is_not_the_users(node, given):
    sudoers(node, *HOSTILE[given], ALL)
    done = play(node, [*READING, CONTROL])
    assert f"ok={len(READING) + 1} " in done.stdout and "unreachable=0" in done.stdout, (
        "each of them ran"
    )
    assert run_by_root(node) == (["uname by 0"] if given in LETS_PATH_THROUGH else []), (
        "the user's PATH reaches a module of Ansible itself alone"
    )


@pytest.mark.parametrize("given", [*HOSTILE, "variables of Python are kept"])
def test_an_audit_by_ssh_alone_starts_as_root_nothing_of_the_users(node, given):
    kept = (
        'Defaults !secure_path, env_keep += "PATH PYTHONPATH PYTHONHOME PYTHONINSPECT PYTHONSTARTUP'
        ' BASH_ENV ENV PERL5LIB"'
    )
    sudoers(node, *HOSTILE.get(given, (kept,)), ALL)
    plant_modules(node)
    done = inside(
        node, sys.executable, "-m", "unhang", "audit", "--via", "clush", "-i", node.inventory
    )
    assert {host: found["status"] for host, found in node.nodes().items()} == {"gpu001": "ok"}, (
        done.stderr
    )
    assert run_by_root(node) == []
    [collector] = (node.folder / "root" / ".cache" / "unhang").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (collector.parent, collector)] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("operator ALL=(ALL) ALL",), "password"),
        (("operator ALL=(ALL) NOPASSWD: /bin/true",), "password"),
        (("Defaults requiretty", ALL), "you must have a tty to run sudo"),
        (("operator ALL=(ALL) NOPASSWD: ALL, this is no sudoers",), "sudo"),
    ],
    ids=[
        "it asks for a password",
        "it allows another program",
        "it wants a terminal",
        "it is damaged",
    ],
)
@pytest.mark.parametrize("way", ["ansible", "clush"])
def test_a_sudo_that_refuses_costs_the_nodes_answer_and_says_why(node, way, lines, reason):
    sudoers(node, *lines)
    done = inside(node, sys.executable, "-m", "unhang", "audit", "--via", way, "-i", node.inventory)
    found = node.nodes()["gpu001"]
    assert found["status"] != "ok" and found["facts"] is None
    assert reason in found["message"], done.stderr
    assert run_by_root(node) == []
