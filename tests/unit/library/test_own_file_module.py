"""The modules own_file and disabled_setting on planted file trees; what all modules share is in
test_host_tuning_modules."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from fakes.ansible_module import run_module, tree
from fakes.node_tree import Link, plant

from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.change.config.setting_files import (
    BEGIN,
    END,
    FORMATS,
    settled_text,
)
from unhang_node.facts.parse.env_files import parse_enroot_env, parse_environment
from unhang_node.facts.parse.launch_paths import judge_effective
from unhang_node.facts.parse.nccl_conf import parse_nccl_conf
from unhang_node.facts.parse.shell_env import parse_shell, parse_task_prolog
from unhang_node.facts.parse.systemd_env import parse_unit
from unhang_node.facts.sections.nccl import read_system_settings

HAND_WRITTEN = "# ours since 2023\nNCCL_IB_TIMEOUT=22\nNCCL_SOCKET_IFNAME=eth0\n"
WANTED = {"NCCL_SOCKET_IFNAME": "=bond0", "NCCL_DEBUG": "WARN"}
AWKWARD = {
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/var/tmp/it's 100%/trace_",
    "NCCL_SOCKET_IFNAME": "=bond0",
}


def conf(root, **options):
    """The module's answer about /etc/nccl.conf."""
    given = {"path": "/etc/nccl.conf", "format": "nccl_conf", **options}
    return run_module("own_file", rootfs=str(root), **given)


def settings_of(root):
    """{name: [values]} of everything that the audit's reader finds."""
    found = {}
    for row in read_system_settings(Root([str(root)]), Unread(), []).settings:
        found.setdefault(row.name, []).append(row.value)
    return found


NFS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /shared rw - nfs4 server:/shared rw\n"


@pytest.mark.parametrize(
    "options",
    [
        {"path": "/etc/nccl.conf", "format": "nccl_conf", "settings": WANTED},
        {"path": "/etc/apt/apt.conf.d/zz-unhang", "lines": ["x"]},
    ],
)
@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_to_a_file_that_all_nodes_read_is_refused(tmp_path, options, linked):
    path = options["path"]
    folder, name = path.rsplit("/", 1)
    link = {path: Link("/shared/" + name)} if linked == "file" else {folder: Link("/shared")}
    plant(tmp_path, {"/shared/": "", "/proc/self/mountinfo": NFS, **link})
    refused = run_module("own_file", rootfs=str(tmp_path), **options)
    assert refused["failed"]
    assert refused["msg"].startswith(
        f"{path}: this is a link to a file that lies on nfs4 at /shared, which other nodes read too"
    )
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_file_on_a_network_file_system_that_is_named_itself_is_written(tmp_path):
    plant(
        tmp_path,
        {
            "/shared/": "",
            "/proc/self/mountinfo": NFS,
            "/etc/nccl.conf": Link("nccl.here"),
            "/etc/nccl.here": "",
        },
    )
    assert conf(tmp_path, settings=WANTED, path="/shared/nccl.conf")["changed"]
    # a link within the node
    assert conf(tmp_path, settings=WANTED)["changed"]


class TestNcclConf:
    """One file of settings."""

    def test_the_settings_win_over_what_others_wrote_and_their_lines_keep_their_bytes(
        self, tmp_path
    ):
        plant(tmp_path, {"/etc/nccl.conf": HAND_WRITTEN})
        answer = conf(tmp_path, settings=WANTED, note="profile tcp")
        text = (tmp_path / "etc/nccl.conf").read_text()
        assert answer["changed"]
        assert text.endswith(HAND_WRITTEN)
        first = {}
        for row in parse_nccl_conf(text.encode()):
            first.setdefault(row.name, row.value)
        assert first["NCCL_SOCKET_IFNAME"] == "=bond0"
        assert first["NCCL_IB_TIMEOUT"] == "22"
        assert [one["after"] for one in answer["diff"]] == [text]

    def test_hand_written_lines_are_reported_with_their_place(self, tmp_path):
        plant(tmp_path, {"/etc/nccl.conf": HAND_WRITTEN})
        answer = conf(tmp_path, settings=WANTED)
        lines = (tmp_path / "etc/nccl.conf").read_text().splitlines()
        assert answer["hand_written"] == [
            {"path": "/etc/nccl.conf", "line": lines.index(line) + 1, "text": line}
            for line in HAND_WRITTEN.splitlines()[1:]
        ]

    @pytest.mark.parametrize(
        "before",
        [
            None,
            "",
            HAND_WRITTEN,
            "NCCL_IB_TIMEOUT=22\r\n",
            "A=\udcff\n".encode("utf-8", "surrogateescape"),
        ],
    )
    def test_taking_the_settings_away_leaves_the_file_as_it_was(self, tmp_path, before):
        plant(tmp_path, {"/etc/": "", **({"/etc/nccl.conf": before} if before is not None else {})})
        untouched = tree(tmp_path)
        conf(tmp_path, settings=WANTED)
        assert conf(tmp_path, settings={})["changed"]
        assert tree(tmp_path) == untouched

    def test_mode_and_owner_stay(self, tmp_path):
        plant(tmp_path, {"/etc/nccl.conf": HAND_WRITTEN})
        (tmp_path / "etc/nccl.conf").chmod(0o640)
        conf(tmp_path, settings=WANTED)
        assert (tmp_path / "etc/nccl.conf").stat().st_mode & 0o777 == 0o640

    def test_an_absolute_link_is_followed_inside_the_root(self, tmp_path):
        plant(
            tmp_path,
            {"/etc/nccl.conf": Link("/etc/site/nccl.conf"), "/etc/site/nccl.conf": HAND_WRITTEN},
        )
        conf(tmp_path, settings=WANTED)
        assert os.readlink(tmp_path / "etc/nccl.conf") == "/etc/site/nccl.conf"
        assert "=bond0" in (tmp_path / "etc/site/nccl.conf").read_text()

    @pytest.mark.parametrize(
        ("marks", "line"),
        [([BEGIN], 2), ([END], 2), ([END, BEGIN], 3), ([BEGIN, BEGIN, END], 2)],
    )
    def test_marks_that_do_not_match_are_refused_with_their_line(self, tmp_path, marks, line):
        plant(tmp_path, {"/etc/nccl.conf": "\n".join(["NCCL_IB_TIMEOUT=22", *marks, ""])})
        before = tree(tmp_path)
        assert f"/etc/nccl.conf: line {line}: the marks" in conf(tmp_path, settings=WANTED)["msg"]
        assert tree(tmp_path) == before

    @pytest.mark.parametrize(
        ("form", "settings"),
        [
            ("nccl_conf", {"NCCL DEBUG": "WARN"}),
            ("nccl_conf", {"NCCL_DEBUG": "WARN\nX=1"}),
            ("nccl_conf", {"NCCL_DEBUG": " WARN"}),
            ("nccl_conf", {"NCCL_DEBUG": "x" * 1024}),
            ("environment", {"A": "b#c"}),
        ],
    )
    def test_what_the_file_cannot_carry_is_refused(self, tmp_path, form, settings):
        assert conf(tmp_path, format=form, settings=settings)["failed"]
        assert tree(tmp_path) == {}


def test_one_of_several_files_that_cannot_be_written_stops_all(tmp_path):
    files = [
        {"path": "/etc/environment", "format": "environment", "settings": WANTED},
        {"path": "/etc/profile.d/unhang-nccl.sh", "format": "shell", "settings": WANTED},
    ]
    plant(tmp_path, {"/etc/environment": "SITE=1\n", files[1]["path"]: "export SITE=1\n"})
    before = tree(tmp_path)
    answer = run_module("own_file", rootfs=str(tmp_path), files=files)
    assert "/etc/profile.d/unhang-nccl.sh: somebody else wrote this file" in answer["msg"]
    assert tree(tmp_path) == before


def test_a_comment_in_the_block_is_no_setting_to_an_old_nccl():
    text = settled_text(None, "nccl_conf", WANTED, "profile a=b")
    assert {row.name for row in parse_nccl_conf(text.encode())} == set(WANTED)


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_is_read_back_as_it_was_meant(form):
    given = {"NCCL_SOCKET_IFNAME": "=bond0"} if form == "environment" else AWKWARD
    text = settled_text(None, form, given, "a note")
    readers = {
        "nccl_conf": lambda: parse_nccl_conf(text.encode()),
        "environment": lambda: parse_environment(text),
        "shell": lambda: parse_shell(text),
        "systemd": lambda: parse_unit(text)[0],
        "task_prolog": lambda: parse_task_prolog(text),
        "enroot": lambda: parse_enroot_env(text),
        "apptainer": lambda: parse_shell(text),
        "env_file": lambda: parse_enroot_env(text),
    }
    prefix = "APPTAINERENV_" if form == "apptainer" else ""
    assert {row.name: row.value for row in readers[form]()} == {
        prefix + name: value for name, value in given.items()
    }


@pytest.mark.parametrize(
    ("form", "command"),
    [
        ("shell", ["sh", "-c", '. {}; printf %s "$TORCH_NCCL_DEBUG_INFO_TEMP_FILE"']),
        ("task_prolog", ["sh", "{}"]),
    ],
)
def test_a_real_shell_gets_the_value_byte_for_byte(tmp_path, form, command):
    path = tmp_path / "script"
    path.write_text(settled_text(None, form, AWKWARD, ""))
    output = subprocess.run(
        [part.format(path) if part != "-c" else part for part in command],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = AWKWARD["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]
    assert wanted in output.replace("'\\''", "'")


PINNED = {
    "/etc/environment": "PATH=/usr/bin\nCUDA_VISIBLE_DEVICES=0\nNCCL_TIMEOUT=1200000\n",
    "/etc/profile.d/site.sh": (
        "export SITE=1\nif [ -e /dev/nvidia0 ]; then\n  export CUDA_VISIBLE_DEVICES=0\nfi\n"
    ),
    "/etc/systemd/system/ray.service": (
        "[Service]\nExecStart=/bin/ray\nEnvironment=CUDA_VISIBLE_DEVICES=0\nEnvironment=SITE=1\n"
    ),
    "/etc/nccl.conf": "NCCL_IB_TIMEOUT=22\nCUDA_VISIBLE_DEVICES=0\n",
    "/etc/enroot/environ.d/10-site.env": "CUDA_VISIBLE_DEVICES=0\n",
    "/etc/security/pam_env.conf": "CUDA_VISIBLE_DEVICES DEFAULT=0\n",
    "/etc/slurm/slurm.conf": "TaskProlog=/etc/slurm/prolog.sh\n",
    "/etc/slurm/prolog.sh": "#!/bin/sh\necho export CUDA_VISIBLE_DEVICES=0\necho export SITE=1\n",
}


class TestSettingAside:
    """Lines that lose their effect and stay."""

    def disable(self, root, names=("CUDA_VISIBLE_DEVICES", "NCCL_TIMEOUT"), **more):
        return run_module(
            "disabled_setting", rootfs=str(root), names=list(names), owner="gpu_binding", **more
        )

    def test_every_file_that_the_audit_reads_loses_the_setting_and_nothing_else(self, tmp_path):
        plant(tmp_path, PINNED)
        before = settings_of(tmp_path)
        answer = self.disable(tmp_path)
        assert answer["needs_manual_action"] == []
        assert len(answer["lines"]) == 8
        after = settings_of(tmp_path)
        assert before.keys() - after.keys() == {"CUDA_VISIBLE_DEVICES", "NCCL_TIMEOUT"}
        assert after == {name: values for name, values in before.items() if name in after}
        environment = (tmp_path / "etc/environment").read_text()
        assert "# disabled by unhang: CUDA_VISIBLE_DEVICES=0\n" in environment
        # the line was all that stood under an if
        subprocess.run(["sh", "-n", str(tmp_path / "etc/profile.d/site.sh")], check=True)

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("/etc/profile.d/x.sh", "export SITE=1 CUDA_VISIBLE_DEVICES=0"),
            ("/etc/profile.d/x.sh", "cd /tmp && export CUDA_VISIBLE_DEVICES=0"),
            ("/etc/profile.d/x.sh", "export CUDA_VISIBLE_DEVICES=$(cat /etc/gpus)"),
            (
                "/etc/systemd/system/ray.service.d/x.conf",
                "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0 SITE=1",
            ),
        ],
    )
    def test_a_line_that_does_more_is_left_for_a_person(self, tmp_path, path, line):
        plant(tmp_path, {path: line + "\n"})
        before = tree(tmp_path)
        answer = self.disable(tmp_path)
        assert not answer["changed"]
        assert tree(tmp_path) == before
        assert [row["file"] for row in answer["needs_manual_action"]] == [path]

    def test_a_line_with_the_wanted_value_stays(self, tmp_path):
        plant(tmp_path, {"/etc/environment": "NCCL_DEBUG=WARN\n"})
        assert not self.disable(tmp_path, names=["NCCL_DEBUG"], settings={"NCCL_DEBUG": "WARN"})[
            "changed"
        ]
        assert self.disable(tmp_path, names=["NCCL_DEBUG"], settings={"NCCL_DEBUG": "VERSION"})[
            "changed"
        ]

    @pytest.mark.parametrize("added", ["", "A=1\nB=2\n"])
    def test_each_line_comes_back_in_its_place_also_behind_added_ones(self, tmp_path, added):
        text = "CUDA_VISIBLE_DEVICES=0\nSITE=1\nCUDA_VISIBLE_DEVICES=0,1\n"
        text += "" if added else "CUDA_VISIBLE_DEVICES=0\n"
        plant(tmp_path, {"/etc/environment": text})
        self.disable(tmp_path)
        place = tmp_path / "etc/environment"
        assert place.read_text().count("# disabled by unhang: ") == 2 + (not added)
        place.write_text(added + place.read_text())
        self.disable(tmp_path, state="restored")
        assert place.read_text() == added + text

    def test_what_unhang_wrote_itself_is_not_disabled(self, tmp_path):
        conf(tmp_path, settings=WANTED)
        assert not self.disable(tmp_path, names=list(WANTED))["changed"]

    def test_a_line_that_somebody_took_out_since_is_named_when_it_should_come_back(self, tmp_path):
        plant(tmp_path, {"/etc/environment": "CUDA_VISIBLE_DEVICES=0\n"})
        self.disable(tmp_path)
        (tmp_path / "etc/environment").write_text("SITE=1\n")
        answer = self.disable(tmp_path, state="restored")
        assert not answer["changed"]
        assert "CUDA_VISIBLE_DEVICES=0" in answer["needs_manual_action"][0]["why"]

    def test_two_owners_keep_their_lines_apart(self, tmp_path):
        plant(tmp_path, PINNED)
        self.disable(tmp_path, names=["CUDA_VISIBLE_DEVICES"])
        run_module(
            "disabled_setting", rootfs=str(tmp_path), names=["NCCL_TIMEOUT"], owner="nccl_profile"
        )
        run_module("disabled_setting", rootfs=str(tmp_path), owner="nccl_profile", state="restored")
        assert "CUDA_VISIBLE_DEVICES" not in settings_of(tmp_path)
        assert settings_of(tmp_path)["NCCL_TIMEOUT"] == ["1200000"]


def test_what_was_read_back_decides_in_every_launch_path(tmp_path):
    """NCCL uses the block in nccl.conf when the environment has no other value."""
    plant(
        tmp_path, {"/etc/nccl.conf": HAND_WRITTEN, "/etc/environment": "NCCL_SOCKET_IFNAME=eth0\n"}
    )
    conf(tmp_path, settings=WANTED)
    run_module(
        "disabled_setting",
        rootfs=str(tmp_path),
        names=list(WANTED),
        settings=WANTED,
        owner="nccl_profile",
    )
    effective = judge_effective(read_system_settings(Root([str(tmp_path)]), Unread(), []).settings)
    assert {effective[path]["NCCL_SOCKET_IFNAME"] for path in ("login", "ssh", "systemd")} == {
        "=bond0"
    }


def is_masked(answer):
    """True if no part of SECRET is printed."""
    printed = json.dumps({key: value for key, value in answer.items() if key != "invocation"})
    return "pass" not in printed and "abc123" not in printed


SECRET = "HTTP_PROXY=http://user:pass@proxy:3128\nTOKEN=abc123\n"


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (
            "own_file",
            {
                "path": "/etc/environment",
                "format": "environment",
                "settings": {"NCCL_DEBUG": "WARN"},
            },
        ),
        (
            "disabled_setting",
            {"names": ["CUDA_VISIBLE_DEVICES", "HTTP_PROXY"], "owner": "gpu_binding"},
        ),
        (
            "own_file",
            {"path": "/etc/environment.d/x.conf", "lines": ["P=http://user:pass@proxy:3128"]},
        ),
    ],
)
def test_what_others_wrote_into_a_file_is_printed_nowhere(tmp_path, module, options):
    plant(tmp_path, {"/etc/environment": SECRET + "CUDA_VISIBLE_DEVICES=0\n"})
    answer = run_module(module, rootfs=str(tmp_path), **options)
    assert answer["changed"]
    assert is_masked(answer)
    assert SECRET.split("\n")[1] in (tmp_path / "etc/environment").read_text()


def test_a_rollback_prints_no_secret_either(tmp_path):
    plant(tmp_path, {"/etc/environment": SECRET, "/var/lib/": ""})
    begun = {"rootfs": str(tmp_path), "state": "begun", "role": "nccl_profile", "run": "r"}
    state_id = run_module("saved_state", **begun)["id"]
    options = {"path": "/etc/environment", "format": "environment", "settings": WANTED}
    conf(tmp_path, state_id=state_id, **options)
    answer = run_module("state_restore", rootfs=str(tmp_path), id=state_id)
    assert "NCCL_DEBUG=WARN" in json.dumps(answer)
    assert is_masked(answer)
    assert (tmp_path / "etc/environment").read_text() == SECRET
