"""Section nccl: libraries in every place from which a job could load them, plugins, settings with
file and line, and the settings that win."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest
from fakes.node_tree import (
    Link,
    context,
    elf_file,
    ld_cache,
    make_fifo,
    merged,
    nccl_library,
    plant,
)

from unhang_node.facts.sources import libraries

LIB = "/usr/lib/x86_64-linux-gnu/"
SITE = "/opt/conda/lib/python3.11/site-packages"


def read(root, **options):
    return merged(libraries.read(context(root, ["nccl"], **options)), "nccl")


def settings_of(section, name="NCCL_DEBUG"):
    return [
        (row["value"], row["file"], row["line"], row["source"], row["certain"])
        for row in section["settings"]
        if row["name"] == name
    ]


def test_loaders_library_is_reported_with_version_build_and_owner(tmp_path):
    library = nccl_library("2.21.5", "12.4", bytes(20))
    files = {
        LIB + "libnccl.so.2.21.5": library,
        LIB + "libnccl.so.2": Link("libnccl.so.2.21.5"),
        LIB + "libnccl.so": Link("libnccl.so.2"),
    }
    files["/etc/ld.so.cache"] = ld_cache(
        [("libnccl.so.2", LIB + "libnccl.so.2"), ("libnccl.so", LIB + "libnccl.so")]
    )
    section, unread = read(
        plant(
            tmp_path,
            {
                **files,
                "/var/lib/dpkg/info/libnccl2.list": "/usr/lib\n" + LIB + "libnccl.so.2.21.5\n",
            },
        )
    )
    assert section["libraries"] == [
        {
            "path": LIB + "libnccl.so.2.21.5",
            "version": "2.21.5",
            "cuda": "12.4",
            "build_id": "00" * 20,
            "size_bytes": len(library),
            "sha256": None,
            "origin": "loader",
            "where": "host",
            "container": None,
            "package": "libnccl2",
            "is_loader_default": True,
            "mapped_by": [],
        }
    ]
    assert unread == []


def test_library_beside_torch_is_another_than_the_loaders(tmp_path):
    files = {
        LIB + "libnccl.so.2": nccl_library("2.18.5", "12.2"),
        SITE + "/nvidia/nccl/lib/libnccl.so.2": nccl_library("2.21.5"),
    }
    section, _unread = read(
        plant(
            tmp_path,
            {
                **files,
                SITE + "/nvidia_nccl_cu12-2.21.5.dist-info/METADATA": "x",
                SITE + "/torch/version.py": "x",
            },
        )
    )
    assert [
        (row["version"], row["origin"], row["is_loader_default"], row["package"])
        for row in section["libraries"]
    ] == [
        ("2.18.5", "loader", True, None),
        ("2.21.5", "site_packages", False, "nvidia-nccl-cu12"),
    ]


@pytest.mark.parametrize("named", ["/data/nccl", "/data/nccl/build/lib/libnccl.so.2"])
def test_named_root_is_looked_into_and_each_file_told_once(tmp_path, named):
    files = {
        "/data/nccl/build/lib/libnccl.so.2": nccl_library("2.26.2"),
        "/data/nccl/build/lib/libnccl.so": Link("libnccl.so.2"),
    }
    section, _unread = read(plant(tmp_path, files), nccl_roots=[named])
    assert [(row["path"], row["version"], row["origin"]) for row in section["libraries"]] == [
        ("/data/nccl/build/lib/libnccl.so.2", "2.26.2", "policy")
    ]


def test_folders_that_nobody_named_are_not_walked(tmp_path):
    section, _unread = read(
        plant(
            tmp_path,
            {
                "/data/nccl/build/lib/libnccl.so.2": nccl_library(),
                "/home/u/libnccl.so.2": nccl_library(),
            },
        )
    )
    assert section["libraries"] == []


def test_named_root_without_a_library_says_so(tmp_path):
    _section, unread = read(plant(tmp_path, {"/data/": ""}), nccl_roots=["/data"])
    assert unread == [
        {"field": "libraries[/data]", "status": "absent", "reason": "no libnccl.so there"}
    ]


def test_hash_is_made_on_request_alone(tmp_path):
    root = plant(tmp_path, {LIB + "libnccl.so.2": nccl_library()})
    assert read(root)[0]["libraries"][0]["sha256"] is None
    assert (
        read(root, hash_libraries=True)[0]["libraries"][0]["sha256"]
        == hashlib.sha256(nccl_library()).hexdigest()
    )


@pytest.mark.parametrize("content", [b"", b"text", nccl_library()[:100], nccl_library("x", "")])
def test_broken_library_stays_listed_with_a_reason(tmp_path, content):
    section, unread = read(plant(tmp_path, {LIB + "libnccl.so.2": content}))
    assert section["libraries"][0]["version"] is None
    assert section["libraries"][0]["size_bytes"] == len(content)
    assert unread[0]["field"].startswith("libraries[" + LIB)


def test_planted_fifo_in_place_of_a_library_is_passed_over(tmp_path):
    make_fifo(tmp_path, LIB + "libnccl.so.2")
    section, unread = read(plant(tmp_path, {"/etc/": ""}))
    assert section["libraries"][0]["version"] is None
    assert "not a regular file" in unread[0]["reason"]


def test_plugins_in_the_loaders_paths_are_named(tmp_path):
    files = {
        LIB + "libnccl-net.so": elf_file({".dynstr": b"\0ncclNetPlugin_v8\0ncclNetPlugin_v7\0"}),
        "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so.0": "x",
        LIB + "libnccl-tuner-x.so": "x",
        LIB + "libnccl.so.2": nccl_library(),
    }
    section, unread = read(plant(tmp_path, files))
    assert {row["name"]: row["interfaces"] for row in section["net_plugins"]} == {
        "nccl-net": [7, 8],
        "nccl-net-ofi": None,
        "nccl-tuner-x": None,
    }
    assert [(row["field"], row["reason"]) for row in unread if "plugins" in row["field"]] == [
        (
            "net_plugins[/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so.0].interfaces",
            "ValueError: this is not an ELF file",
        ),
    ]
    assert len(section["libraries"]) == 1


FILES = {
    "/etc/nccl.conf": "NCCL_DEBUG=1\n",
    "/root/.nccl.conf": "NCCL_DEBUG=2\n",
    "/etc/environment": "PATH=/x\nNCCL_DEBUG=3\n",
    "/etc/profile": "export NCCL_DEBUG=4\n",
    "/etc/profile.d/nccl.sh": "\nexport NCCL_DEBUG=5\n",
    "/etc/profile.d/x.csh": "setenv NCCL_DEBUG no\n",
    "/etc/systemd/system.conf": '[Manager]\nDefaultEnvironment="NCCL_DEBUG=6"\n',
    "/etc/systemd/system/train.service": (
        "[Service]\nEnvironment=NCCL_DEBUG=7\nEnvironmentFile=-/etc/default/train\n"
    ),
    "/etc/default/train": "NCCL_DEBUG=8\n",
    "/etc/systemd/system/train.service.d/x.conf": "[Service]\nEnvironment=NCCL_DEBUG=9\n",
    "/usr/lib/systemd/system/slurmd.service": "[Service]\nEnvironment=NCCL_DEBUG=10\n",
    "/usr/lib/systemd/system/cron.service": "[Service]\nEnvironment=NCCL_DEBUG=no\n",
    "/etc/slurm/slurm.conf": "TaskProlog=/etc/slurm/task.sh\n",
    "/etc/slurm/task.sh": "echo export NCCL_DEBUG=11\n",
    "/etc/enroot/environ.d/50-nccl.env": "NCCL_DEBUG=12\n",
    "/etc/containers/containers.conf": '[containers]\nenv = ["NCCL_DEBUG=13"]\n',
    "/var/lib/docker/containers/ab/config.v2.json": (
        '{"State": {"Running": true}, "Config": {"Env": ["NCCL_DEBUG=14", "SECRET=x"]}}'
    ),
    "/var/lib/docker/containers/cd/config.v2.json": (
        '{"State": {"Running": false}, "Config": {"Env": ["NCCL_DEBUG=no"]}}'
    ),
    "/etc/security/pam_env.conf": "NCCL_DEBUG DEFAULT=15\n",
    "/etc/ssh/sshd_config": "SetEnv NCCL_DEBUG=16\n",
}


def test_every_file_is_reported_with_line_and_kind(tmp_path):
    root = plant(tmp_path, FILES)
    os.chown(tmp_path / "root" / ".nccl.conf", 0, 0)
    section, unread = read(root)
    assert sorted(settings_of(section), key=lambda row: int(row[0])) == [
        ("1", "/etc/nccl.conf", 1, "nccl_conf", True),
        ("2", "/root/.nccl.conf", 1, "user_nccl_conf", True),
        ("3", "/etc/environment", 2, "environment", True),
        ("4", "/etc/profile", 1, "profile", True),
        ("5", "/etc/profile.d/nccl.sh", 2, "profile", True),
        ("6", "/etc/systemd/system.conf", 2, "systemd", True),
        ("7", "/etc/systemd/system/train.service", 2, "systemd", True),
        ("8", "/etc/default/train", 1, "systemd", True),
        ("9", "/etc/systemd/system/train.service.d/x.conf", 2, "systemd", True),
        ("10", "/usr/lib/systemd/system/slurmd.service", 2, "systemd", True),
        ("11", "/etc/slurm/task.sh", 1, "slurm", True),
        ("12", "/etc/enroot/environ.d/50-nccl.env", 1, "container", True),
        ("13", "/etc/containers/containers.conf", 2, "container", True),
        ("14", "/var/lib/docker/containers/ab/config.v2.json", None, "container", True),
        ("15", "/etc/security/pam_env.conf", 1, "environment", True),
        ("16", "/etc/ssh/sshd_config", 1, "other", True),
    ]
    assert unread == []


def test_winner_is_reported_for_each_launch_path(tmp_path):
    section, _unread = read(
        plant(
            tmp_path,
            {
                name: FILES[name]
                for name in (
                    "/etc/nccl.conf",
                    "/etc/environment",
                    "/etc/profile.d/nccl.sh",
                    "/etc/slurm/slurm.conf",
                    "/etc/slurm/task.sh",
                )
            },
        )
    )
    assert {
        path: names.get("NCCL_DEBUG", "unset") for path, names in section["effective"].items()
    } == {
        "login": "5",
        "ssh": "3",
        "systemd": "1",
        "slurm": "11",
        "container": "unset",
    }


def test_environment_of_a_daemon_does_not_reach_its_jobs(tmp_path):
    section, _unread = read(
        plant(
            tmp_path,
            {
                "/etc/systemd/system/docker.service.d/x.conf": (
                    "[Service]\nEnvironment=NCCL_DEBUG=1\n"
                )
            },
        )
    )
    assert section["settings"][0]["launch_paths"] == []
    assert section["effective"]["systemd"] == {}


def test_named_configuration_file_stands_in_for_the_users(tmp_path):
    root = plant(
        tmp_path,
        {
            "/etc/environment": "NCCL_CONF_FILE=/opt/site.conf\n",
            "/opt/site.conf": "NCCL_DEBUG=TRACE\n",
        },
    )
    section, _unread = read(root)
    assert settings_of(section) == [("TRACE", "/opt/site.conf", 1, "user_nccl_conf", True)]
    assert section["effective"]["ssh"]["NCCL_DEBUG"] == "TRACE"
    assert "NCCL_DEBUG" not in section["effective"]["systemd"]


def test_secrets_in_the_files_stay_on_the_node(tmp_path):
    files = {
        "/etc/environment": (
            "AWS_SECRET_ACCESS_KEY=hunter2\nNCCL_DEBUG=INFO\nTORCH_API_KEY=hunter2\n"
        ),
        "/etc/profile.d/a.sh": "export WANDB_API_KEY=hunter2 NCCL_X=1\n",
    }
    assert "hunter2" not in str(read(plant(tmp_path, files)))


@pytest.mark.parametrize(
    ("plant_it", "reason"),
    [
        (
            lambda folder: plant(
                folder,
                {"/root/.nccl.conf": Link("/etc/shadow"), "/etc/shadow": "NCCL_DEBUG=secret"},
            ),
            "symbolic link",
        ),
        (lambda folder: make_fifo(folder, "/root/.nccl.conf"), "not a regular file"),
        (lambda folder: plant(folder, {"/root/.nccl.conf/": ""}), "not a regular file"),
        (lambda folder: plant(folder, {"/root/.nccl.conf": b"NCCL_DEBUG=1\n" * 100000}), "at most"),
    ],
)
def test_planted_user_file_costs_itself_alone(tmp_path, plant_it, reason):
    plant_it(tmp_path)
    section, unread = read(plant(tmp_path, {"/etc/nccl.conf": "NCCL_DEBUG=INFO\n"}))
    assert [row["value"] for row in section["settings"]] == ["INFO"]
    assert reason in unread[0]["reason"]
    assert "secret" not in str(section)


def test_system_file_that_is_a_fifo_costs_itself_alone(tmp_path):
    make_fifo(tmp_path, "/etc/nccl.conf")
    section, unread = read(plant(tmp_path, {"/etc/environment": "NCCL_DEBUG=INFO\n"}))
    assert section["effective"]["ssh"] == {"NCCL_DEBUG": "INFO"}
    assert "not a regular file" in unread[0]["reason"]


@pytest.mark.slow
def test_named_path_that_hangs_costs_itself_alone_and_names_the_call(tmp_path):
    never = threading.Event()
    root = plant(
        tmp_path,
        {
            "/nfs/nccl/lib/libnccl.so.2": nccl_library(),
            "/data/lib/libnccl.so.2": nccl_library("2.26.2"),
            LIB + "libnccl.so.2": nccl_library("2.18.5"),
        },
    )
    names = root.names

    class Stuck(type(root)):
        def names(self, path):
            self.watch("list " + path)
            if path.startswith("/nfs"):
                never.wait(60)
            return names(path)

    root.__class__ = Stuck
    try:
        section, unread = read(root, nccl_roots=["/nfs/nccl", "/data"], silence_s=5)
    finally:
        never.set()
    assert [row["version"] for row in section["libraries"]] == ["2.18.5", "2.26.2"]
    assert unread == [
        {
            "field": "libraries[/nfs/nccl]",
            "status": "timeout",
            "reason": "list /nfs/nccl did not return in time",
        }
    ]


def test_pieces_say_whether_more_follows(tmp_path):
    root = plant(tmp_path, {"/data/": ""})
    pieces = list(
        libraries.read(
            context(root, ["nccl", "torch"], nccl_roots=["/data"], torch_environments=["/data"])
        )
    )
    assert [(piece[0], len(piece) > 3) for piece in pieces] == [
        ("nccl", True),
        ("torch", True),
        ("nccl", True),
        ("nccl", False),
        ("torch", False),
    ]
