"""Commands of the pages that audit nodes, test them or send notifications, run as the pages have
them: on recorded nodes, or on nodes that do not answer."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from documented_command import as_typed
from page_commands import PROJECT, audits, commands

from unhang.core.schemas.check import check_schema

DEADLINE_S = 280
DEMO = str(PROJECT / "inventory" / "demo")


@pytest.fixture
def run(tmp_path):
    """A finished command of a page, in an empty folder; programs in its folder bin are found
    first."""
    (tmp_path / "bin").mkdir()

    def finished(argv):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "UNHANG_"))
        }
        places = {
            "UNHANG_RUNS": str(tmp_path / "runs"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "PATH": f"{tmp_path / 'bin'}:{kept['PATH']}",
        }
        command = [sys.executable, "-P", "-m", *argv] if argv[0] == "unhang" else argv
        options = {
            "capture_output": True,
            "text": True,
            "timeout": DEADLINE_S,
            "check": False,
            "stdin": subprocess.DEVNULL,
        }
        done = subprocess.run(command, cwd=tmp_path, env=kept | places, **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return finished


def program(folder, name, text):
    """A program with this name that the commands find first."""
    path = folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def audited(folder):
    """Names of the nodes that the newest run read."""
    return sorted(path.stem for path in (folder / "runs" / "latest" / "nodes").glob("*.json"))


# Sets of nodes in pages -> one node of the recorded fleet.
LIMITS = {
    "training:!spare": ("fsdp01:!spare", "fsdp01"),
    "gpu[001-016],!gpu007": ("gpu[007-008],!gpu007", "gpu008"),
}


@pytest.mark.parametrize("form", audits())
def test_an_audit_reads_the_nodes_that_it_names_and_writes_a_run(run, tmp_path, form):
    places = {
        "inventory/mycluster": DEMO,
        "hosts.yml": DEMO,
        **{hosts: here for hosts, (here, _) in LIMITS.items()},
    }
    argv = as_typed(form, {example: here for example, here in places.items() if example in form})
    recorded = DEMO in argv
    done = run([*argv, *(["--limit", "gpu007"] if recorded and "--host" not in argv else [])])
    assert done.returncode in (0, 1), done.stdout[-500:] + done.stderr[-2000:]
    if argv[1] == "collect":
        assert json.loads(done.stdout)["schema"] == "unhang/node-facts/1"
        return
    expected = (
        next((name for hosts, (_, name) in LIMITS.items() if hosts in form), "gpu007")
        if recorded
        else "localhost"
    )
    assert audited(tmp_path) == [expected]


class Receiver(http.server.BaseHTTPRequestHandler):
    """Stores the requests that it gets."""

    def do_POST(self):
        self.server.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Prints nothing on the terminal."""


@pytest.fixture
def receiver():
    """A server on this machine that stores the requests that it gets in `told`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.told = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_hooks_are_told_of_what_two_audits_changed(run, tmp_path, receiver):
    """A node fails and is repaired: the first change is posted, the second is passed to a program,
    and a comparison of the last two runs is posted too."""
    (tmp_path / "webhook").write_text(f"http://127.0.0.1:{receiver.server_port}/hook\n")
    healthy = "all: {hosts: {gpu007: {nvml: h200x8, kernel_log: quiet}}}\n"
    (tmp_path / "mended.yml").write_text(healthy)
    only, mended = ["--limit", "gpu007"], ["-i", str(tmp_path / "mended.yml")]
    hook = program(
        tmp_path,
        "page-somebody",
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/told.json\n',
    )
    assert run(["unhang", "audit", "-q", "-i", DEMO, *mended, *only]).returncode in (0, 1)
    posting = as_typed(
        "unhang audit -q -i inventory/mycluster --webhook @/etc/unhang/webhook",
        {"inventory/mycluster": DEMO, "/etc/unhang": tmp_path},
    )
    # the same inventory in all runs, as `unhang history diff` compares them
    (tmp_path / "mended.yml").write_text("all: {hosts: {gpu007: {}}}\n")
    assert run([*posting, *mended, *only]).returncode == 1
    (tmp_path / "mended.yml").write_text(healthy)
    places = {"inventory/mycluster": DEMO, "/usr/local/bin/page-somebody": hook}
    calling = as_typed(
        "unhang audit -q -i inventory/mycluster --hook '/usr/local/bin/page-somebody --team gpu'",
        places,
    )
    assert run([*calling, *mended, *only]).returncode in (0, 1)
    assert (
        run(
            as_typed(
                "unhang history diff -q --webhook @/etc/unhang/webhook --fail-on error",
                {"/etc/unhang": tmp_path},
            )
        ).returncode
        == 0
    )
    called, (broken, compared) = json.loads((tmp_path / "told.json").read_text()), receiver.told
    assert [list(check_schema(news, "news-1")) for news in (broken, called, compared)] == [
        [],
        [],
        [],
    ]
    assert (tmp_path / "words").read_text() == "--team gpu\n"
    assert (bool(broken["new"]), bool(broken["resolved"])) == (True, False)
    assert (bool(called["new"]), bool(called["resolved"])) == (False, True)
    assert (
        {one["rule"] for one in compared["resolved"]}
        <= {one["rule"] for one in called["resolved"]}
        == {one["rule"] for one in broken["new"]}
    )


SHELL = ("cp", "export", "ansible-inventory", "source", "ssh-keygen")  # in this order


def test_a_smoke_test_over_ssh_names_the_nodes_that_nobody_answers_for(run, tmp_path):
    # on a machine whose resolver knows the names
    program(tmp_path, "ssh", (Path(DEMO) / "recorded" / "bin" / "ssh-no-route").read_text())
    done = run(as_typed("unhang smoke --host gpu[01-08] --python /opt/train/bin/python"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert [f"suspect: gpu0{number}, in launch" in done.stdout for number in range(1, 9)] == [
        True
    ] * 8


def test_a_smoke_test_under_slurm_gives_srun_what_the_page_gives_it(run, tmp_path):
    refusal = "srun: error: Unable to allocate resources: Invalid partition name"
    program(
        tmp_path,
        "srun",
        f'#!/bin/sh\necho "$@" >> {tmp_path}/srun.log\necho "{refusal}" >&2\nexit 1\n',
    )
    done = run(
        as_typed(
            "unhang smoke --launcher slurm --host gpu[01-08] --srun=--partition=gpu"
            " --srun=--gres=gpu:8"
        )
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Invalid partition name" in done.stdout + done.stderr
    words = (tmp_path / "srun.log").read_text().split()
    assert {"--partition=gpu", "--gres=gpu:8", "--nodes=8", "--ntasks-per-node=1"} <= {*words}


def test_the_lines_for_a_shell_work_in_one_after_the_other(tmp_path):
    """A site's own inventory, the programs on PATH, completion, and a key for the gate; a stand-in
    for the user gives ssh-keygen an empty passphrase."""
    lines = {
        one.program: one.text
        for one in commands()
        if one.page in ("docs/first-hour.md", "docs/install.md", "docs/gate.md")
        and one.program in SHELL
    }
    assert {*lines} == {*SHELL}
    shutil.copytree(PROJECT / "inventory" / "example", tmp_path / "inventory" / "example")
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    asked = {"SSH_ASKPASS": "/bin/true", "SSH_ASKPASS_REQUIRE": "force"}
    environment = {
        "PATH": os.defpath,
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
        **asked,
    }
    script = "\n".join([*(lines[name] for name in SHELL), "complete -p unhang"])
    options = {
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "check": False,
        "stdin": subprocess.DEVNULL,
    }
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "@training:" in done.stdout  # the graph of the inventory
    assert done.stdout.splitlines()[-1].startswith("complete ") and done.stdout.splitlines()[
        -1
    ].endswith(" unhang")
    assert (tmp_path / "gate_key.pub").read_text().endswith(" the gate\n")
