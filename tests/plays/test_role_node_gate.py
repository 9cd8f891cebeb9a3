"""The role node_gate on a planted root: it installs only this node's record, previews, installs
once, rolls back, and the audit reads the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import audits
import pytest
from fakes.ansible_module import tree
from fakes.role_play import play_here
from recorded_roots import facts

from unhang_node.base.root import Root

SIGNED = (
    "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\nssh-ed25519 AAAAC3Nza"
    " the gate\n"
)


def record(host="planted"):
    """The line of a record."""
    return (
        json.dumps(
            {
                "schema": "unhang/admission/1",
                "host": host,
                "expires": "2027-11-20",
                "versions": {"driver": "580.1"},
            }
        )
        + "\n"
    )


@pytest.fixture
def root(tmp_path):
    """The node's folder, and the controller's with the node's record."""
    (tmp_path / "node/etc").mkdir(parents=True)
    (tmp_path / "admission").mkdir()
    (tmp_path / "admission/planted").write_text(record() + SIGNED)
    return tmp_path / "node"


def play(root, *arguments, **variables):
    given = {
        "node_gate_rootfs": str(root),
        "node_gate_records": str(root.parent / "admission"),
        **variables,
    }
    return play_here(root.parent, "node_gate", given, *arguments)


def files(root):
    """Everything that a role could have touched, except the lock and the saved states."""
    return {
        path: text
        for path, text in tree(root).items()
        if not str(path).lstrip("/").startswith("var")
    }


def test_the_record_is_previewed_placed_once_and_taken_back(root):
    before, whole = files(root), tree(root)
    foretold = play(root, "--check", "--diff")
    assert (foretold.code, foretold.changed) == (0, {"planted": 1})
    assert "580.1" in foretold.output
    assert tree(root) == whole
    assert play(root).changed == {"planted": 1}
    found = facts(Root([str(root)]), "node")["admission"]
    assert (found["record"]["driver"], found["record"]["signed"], found["private_keys"]) == (
        "580.1",
        True,
        [],
    )
    assert play(root).changed == {"planted": 0}
    assert play(root, node_gate_state="absent").changed == {"planted": 1}
    assert files(root) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the admission record of planted is not at"),
        (record("gpu002") + SIGNED, "holds something else"),
        (
            record()
            + "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n",
            "holds something else",
        ),
        ("ssh-ed25519 AAAAC3Nza the gate\n", "holds something else"),
    ],
)
def test_what_is_no_record_of_this_node_is_refused_before_anything_is_written(root, text, message):
    place = root.parent / "admission/planted"
    place.unlink() if text is None else place.write_text(text)
    before = files(root)
    refused = play(root)
    assert refused.code != 0
    assert message in " ".join(refused.output.split())
    assert files(root) == before


PROGRAMS = ["slurm-prolog", "slurm-healthcheck", "systemd", "cloud-init", "kubernetes"]
# Stands for a node's Python with the quick check: its exit code is the one that the test sets.
ENDING = "import sys\nsys.exit(int(open(sys.argv[0] + '.code').read()))\n"


@pytest.fixture
def quick(root):
    """quick(*arguments, **variables): runs the role with only the quick check."""
    (root.parent / "quick.pyz").write_text(ENDING)
    given = {
        "node_gate_record": False,
        "node_gate_quick": True,
        "node_gate_quick_file": str(root.parent / "quick.pyz"),
        "node_gate_python": sys.executable,
    }
    return lambda *arguments, **variables: play(root, *arguments, **{**given, **variables})


def executable(root):
    """Scripts on the node, by their path there."""
    return sorted(
        f"/{path.relative_to(root)}"
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".pyz" and os.access(path, os.X_OK)
    )


def test_the_quick_check_is_placed_for_each_host_program_once_and_taken_back(root, quick):
    before = files(root)
    foretold = quick("--check", "--diff", node_gate_quick_for=PROGRAMS)
    assert foretold.code == 0
    assert files(root) == before
    assert quick(node_gate_quick_for=PROGRAMS).code == 0
    scripts = [
        "/opt/unhang/boot.sh",
        "/opt/unhang/healthcheck.sh",
        "/opt/unhang/node-problem.sh",
        "/opt/unhang/prolog.sh",
    ]
    assert executable(root) == [*scripts, "/var/lib/cloud/scripts/per-boot/unhang-quick"]
    assert (root / "opt/unhang/unhang-quick.pyz").read_text() == ENDING
    assert (
        "ExecStart=/opt/unhang/boot.sh"
        in (root / "etc/systemd/system/unhang-quick.service").read_text()
    )
    link = root / "etc/systemd/system/timers.target.wants/unhang-quick.timer"
    assert os.readlink(link) == "../unhang-quick.timer"
    assert quick(node_gate_quick_for=PROGRAMS).changed == {"planted": 0}
    assert quick(node_gate_quick_for="slurm-prolog").code == 0
    assert executable(root) == ["/opt/unhang/prolog.sh"]
    assert not link.is_symlink()
    assert not (root / "etc/systemd/system/unhang-quick.timer").exists()
    assert quick(node_gate_state="absent").code == 0
    assert {path: text for path, text in files(root).items() if text is not None} == {
        path: text for path, text in before.items() if text is not None
    }


def test_only_a_verdict_ends_a_script_with_a_failure(root, quick, tmp_path):
    assert (
        quick(
            node_gate_quick_for=PROGRAMS,
            node_gate_folder=str(tmp_path / "opt"),
            node_gate_rootfs=str(root),
        ).code
        == 0
    )
    folder = root / str(tmp_path / "opt").lstrip("/")
    (tmp_path / "opt").symlink_to(folder)
    ends = {}
    for code in ("65", "64", "0", "1", "2"):
        (folder / "unhang-quick.pyz.code").write_text(code)
        for name in ("prolog.sh", "boot.sh", "node-problem.sh"):
            ends[name, code] = subprocess.run(
                [folder / name], check=False, capture_output=True
            ).returncode
    (folder / "unhang-quick.pyz").unlink()
    ends |= {
        (name, "gone"): subprocess.run([folder / name], check=False, capture_output=True).returncode
        for name in ("prolog.sh", "node-problem.sh")
    }
    assert {name for name, code in ends.items() if code == 1} == {
        ("prolog.sh", "64"),
        ("boot.sh", "64"),
        ("node-problem.sh", "64"),
    }
    assert {name for name, code in ends.items() if code == 2} == {
        ("node-problem.sh", end) for end in ("0", "1", "2", "gone")
    }


@pytest.fixture
def with_bash(root):
    """The node has bash, as every Debian, Ubuntu and RHEL."""
    (root / "bin").mkdir()
    (root / "bin/bash").symlink_to("/bin/bash")


@pytest.mark.usefixtures("with_bash")
def test_few_descriptors_drain_nobody(root, quick, tmp_path):
    opt = str(tmp_path / "opt")
    assert quick(node_gate_quick_for=PROGRAMS, node_gate_folder=opt).code == 0
    (tmp_path / "opt").symlink_to(f"{root}{opt}")
    (root / f"{opt}/unhang-quick.pyz.code".lstrip("/")).write_text("65")
    for most in range(4, 17):
        limited = ["prlimit", f"--nofile={most}:{most}"]
        codes = {
            name: (
                subprocess.run(
                    [*limited, f"{opt}/{name}.sh"], capture_output=True, check=False
                ).returncode
            )
            for name in (
                "prolog",
                "healthcheck",
                "boot",
                "node-problem",
            )
        }
        assert {
            name: code
            for name, code in codes.items()
            if code not in ((0, 2) if name == "node-problem" else (0,))
        } == {}, most


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"node_gate_quick_for": ["slurm-epilog"]},
            "takes some of slurm-prolog, slurm-healthcheck, systemd, cloud-init, kubernetes, not"
            " slurm-epilog",
        ),
        (
            {"node_gate_quick_for": ["systemd"], "node_gate_quick_file": "/nowhere/quick.pyz"},
            "make collector builds it",
        ),
    ],
)
def test_an_unknown_program_and_a_quick_check_that_was_not_built_are_refused(
    root, quick, variables, message
):
    before = files(root)
    refused = quick(**variables)
    assert refused.code != 0
    assert message in " ".join(refused.output.split())
    assert files(root) == before


# Stands for the node's unhang: it prints its arguments.
PRINTING = "#!/bin/sh\nprintf '<%s>' \"$@\"\n"


@pytest.fixture
def watch(root):
    """watch(*arguments, **variables): runs the role with only the watcher."""
    unhang = root.parent / "the unhang"
    unhang.write_text(PRINTING)
    unhang.chmod(0o755)
    given = {
        "node_gate_record": False,
        "node_gate_watch": True,
        "node_gate_watch_unhang": str(unhang),
    }
    return lambda *arguments, **variables: play(root, *arguments, **{**given, **variables})


def test_the_watcher_is_off_by_default(root):
    assert play(root, node_gate_record=False).changed == {"planted": 0}
    assert not (root / "opt/unhang").exists()


def test_the_files_of_the_watcher_are_previewed_placed_once_and_taken_back(root, watch):
    before = files(root)
    assert watch("--check", "--diff").code == 0
    assert files(root) == before
    assert watch().code == 0
    assert executable(root) == ["/opt/unhang/watch.sh"]
    units = root / "etc/systemd/system"
    assert "ExecStart=/opt/unhang/watch.sh\n" in (units / "unhang-watch.service").read_text()
    link = units / "multi-user.target.wants/unhang-watch.service"
    assert link.is_symlink()
    assert watch("--check").changed == watch().changed == {"planted": 0}
    assert watch(node_gate_state="absent").code == 0
    assert {path: text for path, text in files(root).items() if text is not None} == {
        path: text for path, text in before.items() if text is not None
    }


def test_the_script_watches_all_jobs_with_the_options_that_were_given(root, watch):
    assert watch(node_gate_watch_arguments=["--hook", "/opt/a hook"]).code == 0
    done = subprocess.run(
        [root / "opt/unhang/watch.sh"], check=True, capture_output=True, text=True
    )
    assert done.stdout == "<watch><--all><--hook></opt/a hook>"


def test_the_options_of_the_script_are_those_of_the_command(root, watch):
    given = {"node_gate_watch_unhang": str(audits.PROGRAMS / "unhang")}
    assert watch(**given, node_gate_watch_arguments=["--on-hang", "terminate"]).code == 0
    done = subprocess.run(
        [root / "opt/unhang/watch.sh"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, "only where its user wants it" in done.stderr) == (2, True), (
        done.stderr
    )
