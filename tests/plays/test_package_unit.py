"""The package manager in a process that is independent of the module; waits for its real
deadlines."""

from __future__ import annotations

import os
import subprocess

import pytest

from unhang_node.change.package.unit import KILLED, StillAtWork, run_apart


@pytest.mark.skipif(
    os.path.isdir("/run/systemd/system"), reason="the unit is tried on booted nodes"
)
class TestApart:
    """Where systemd does not run: a session of its own."""

    def test_commands_run_until_one_fails_and_all_is_logged(self, tmp_path):
        code, log = run_apart(
            str(tmp_path),
            [["echo", "one two"], ["sh", "-c", "echo bad >&2; exit 3"], ["echo", "never"]],
            60,
        )
        assert (code, log) == (3, "one two\nbad\n")

    def test_a_command_that_was_killed_is_reported(self, tmp_path):
        code, _log = run_apart(str(tmp_path), [["sh", "-c", "kill -9 $PPID"]], 60)
        assert code == KILLED

    def test_a_deadline_ends_the_waiting_and_not_the_command(self, tmp_path):
        with pytest.raises(StillAtWork, match="it continues"):
            run_apart(str(tmp_path), [["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"]], 1)
        os.kill(int((tmp_path / "pid").read_text()), 15)

    def test_a_script_of_a_package_that_does_not_end_is_named(self, tmp_path):
        """By the real dpkg, which configures a package of this test in a tree of its own."""
        tree = tmp_path / "tree"
        package = tmp_path / "slow"
        (package / "DEBIAN").mkdir(parents=True)
        (tree / "var/lib/dpkg/info").mkdir(parents=True)
        (tree / "var/lib/dpkg/updates").mkdir()
        (tree / "var/lib/dpkg/status").touch()
        (package / "DEBIAN/control").write_text(
            "Package: slow\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y.z>\nDescription: x\n"
        )
        script = package / "DEBIAN/postinst"
        script.write_text(
            f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec 3<>{tmp_path}/wait\nread x <&3\n"
        )
        script.chmod(0o755)
        os.mkfifo(tmp_path / "wait")
        subprocess.run(["dpkg-deb", "-b", str(package), str(tmp_path / "slow.deb")], check=True)
        install = ["dpkg", f"--root={tree}", "--force-script-chrootless", "-i"]
        with pytest.raises(StillAtWork, match=r"slow\.postinst \(pid \d+\) of a package is still"):
            run_apart(str(tmp_path), [[*install, str(tmp_path / "slow.deb")]], 5)
        (tmp_path / "wait").write_text("\n")
