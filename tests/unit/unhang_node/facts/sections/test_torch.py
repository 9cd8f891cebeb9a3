"""Section torch: environments recognised by their files, caches of extension builds, and stale
locks."""

from __future__ import annotations

import os

import pytest
from fakes.node_tree import Link, context, merged, nccl_library, plant

from unhang_node.base.root import Root
from unhang_node.base.section import Unread
from unhang_node.facts.parse.torch_files import parse_distributions, parse_version_py, python_of
from unhang_node.facts.sections.extension_caches import held_files, read_cache
from unhang_node.facts.sources import libraries

VERSION = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.4.0+cu121'
debug = False
cuda: Optional[str] = '12.1'
git_version = 'd990dad'
hip: Optional[str] = None
"""
CPU = VERSION.replace("'2.4.0+cu121'", "'2.13.0+cpu'").replace("= '12.1'", "= None")
SITE = "/opt/venv/lib/python3.11/site-packages"
TORCH = {
    SITE + "/torch/version.py": VERSION,
    SITE + "/torch-2.4.0+cu121.dist-info/METADATA": "x",
    SITE + "/nvidia_nccl_cu12-2.20.5.dist-info/METADATA": "x",
    SITE + "/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA": "x",
    SITE + "/accelerate-0.34.2.dist-info/METADATA": "x",
    SITE + "/pytorch_lightning-2.2.0.dist-info/METADATA": "x",
    SITE + "/requests-2.0.dist-info/METADATA": "x",
    SITE + "/nvidia/nccl/lib/libnccl.so.2": nccl_library("2.20.5", "12.4"),
}


def read(root, **options):
    return merged(libraries.read(context(root, ["torch"], **options)), "torch")


def test_environment_is_told_from_its_files(tmp_path):
    section, unread = read(plant(tmp_path, TORCH))
    assert section["environments"] == [
        {
            "path": SITE,
            "origin": "system",
            "where": "host",
            "container": None,
            "python": "3.11",
            "torch": "2.4.0+cu121",
            "cuda": "12.1",
            "has_cuda": True,
            "nccl": "2.20.5",
            "cudnn": "9.1.0.70",
            "packages": {
                "accelerate": "0.34.2",
                "nvidia-cudnn-cu12": "9.1.0.70",
                "nvidia-nccl-cu12": "2.20.5",
                "pytorch-lightning": "2.2.0",
                "torch": "2.4.0+cu121",
            },
        }
    ]
    assert unread == []


@pytest.mark.parametrize(
    "named", ["/data/env", "/data/env/", "/data/env/lib/python3.10/site-packages"]
)
def test_named_environment_is_found_by_its_prefix_or_its_folder(tmp_path, named):
    root = plant(
        tmp_path,
        {
            "/data/env/lib/python3.10/site-packages/torch/version.py": VERSION,
            "/data/env/lib64": Link("lib"),
        },
    )
    section, _unread = read(root, torch_environments=[named])
    assert [(row["origin"], row["torch"], row["python"]) for row in section["environments"]] == [
        ("policy", "2.4.0+cu121", "3.10")
    ]


def test_named_environment_without_torch_is_told_so(tmp_path):
    section, unread = read(
        plant(tmp_path, {"/data/env/lib/python3.10/site-packages/x.py": ""}),
        torch_environments=["/data/env"],
    )
    assert section["environments"][0]["torch"] is None
    assert unread[0]["reason"] == "no torch there"


def test_named_environment_that_is_not_there_is_absent(tmp_path):
    section, unread = read(plant(tmp_path, {"/data/": ""}), torch_environments=["/data/env"])
    assert section["environments"] == []
    assert (unread[0]["field"], unread[0]["status"]) == ("environments[/data/env]", "absent")


def test_build_without_cuda_has_no_cuda_and_says_why(tmp_path):
    section, unread = read(plant(tmp_path, {SITE + "/torch/version.py": CPU}))
    assert (section["environments"][0]["cuda"], section["environments"][0]["has_cuda"]) == (
        None,
        False,
    )
    assert unread[0]["reason"] == "torch was built without CUDA"


def test_environments_on_a_network_file_system_are_left_alone_unless_named(tmp_path):
    mounts = "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /opt/conda rw - nfs4 s:/ rw\n"
    root = plant(
        tmp_path,
        {
            "/proc/self/mountinfo": mounts,
            "/opt/conda/lib/python3.9/site-packages/torch/version.py": VERSION,
        },
    )
    assert read(root)[0]["environments"] == []
    assert [
        row["torch"] for row in read(root, torch_environments=["/opt/conda"])[0]["environments"]
    ] == ["2.4.0+cu121"]


def test_conda_environments_are_found(tmp_path):
    root = plant(
        tmp_path, {"/opt/conda/envs/a/lib/python3.9/site-packages/torch/version.py": VERSION}
    )
    assert [row["path"] for row in read(root)[0]["environments"]] == [
        "/opt/conda/envs/a/lib/python3.9/site-packages"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VERSION, ("2.4.0+cu121", "12.1", True)),
        (CPU, ("2.13.0+cpu", None, False)),
        ("__version__ = '1.8.0'\ncuda = '10.2'\n", ("1.8.0", "10.2", True)),
        ("import os; os.system('x')", (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_version_file_is_read_and_not_run(text, expected):
    assert parse_version_py(text) == expected


def test_distributions_are_named_as_on_the_index():
    names = [
        "flash_attn-2.5.8.dist-info",
        "megatron_core-0.7.0.egg-info",
        "Deepspeed-0.14.dist-info",
        "torch-2.1.0-py3.10.egg-info",
        "x-1.dist-info",
        "odd.dist-info",
    ]
    assert parse_distributions(names) == {
        "deepspeed": "0.14",
        "flash-attn": "2.5.8",
        "megatron-core": "0.7.0",
        "torch": "2.1.0",
    }


def test_python_of_a_debian_folder_is_not_known():
    assert python_of("/usr/lib/python3/dist-packages") is None


CACHE = "/root/.cache/torch_extensions"


def test_builds_and_locks_of_a_recorded_cache_are_told_without_a_verdict(tmp_path):
    root = plant(
        tmp_path,
        {
            CACHE + "/py311_cu121/fused_adam/lock": "",
            CACHE + "/py311_cu121/fused_adam/build.ninja": "x",
            CACHE + "/py311_cu121/done/x.so": "x",
        },
    )
    os.utime(str(tmp_path) + CACHE + "/py311_cu121/fused_adam/lock", (999_000, 999_000))
    section, unread = read(root)
    lock = {
        "path": CACHE + "/py311_cu121/fused_adam/lock",
        "age_s": 1000.0,
        "held": None,
        "stale": None,
    }
    builds = ["py311_cu121/done", "py311_cu121/fused_adam"]
    assert section["extension_caches"] == [
        {"path": CACHE, "user": "root", "builds": builds, "locks": [lock]}
    ]
    assert "recorded" in unread[0]["reason"]


@pytest.mark.parametrize("is_open", [True, False])
def test_lock_that_nobody_has_open_is_stale(tmp_path, is_open):
    lock = tmp_path / "cache" / "py311" / "kernels" / "lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "w", encoding="utf-8") as holder:
        if not is_open:
            holder.close()
        row = read_cache(
            Root(), Unread(), [], str(tmp_path / "cache"), "root", lock.stat().st_mtime + 5
        )
    expected = {"path": str(lock), "age_s": 5.0, "held": is_open, "stale": not is_open}
    if os.geteuid() == 0 or is_open:
        assert row["locks"] == [expected]


def test_other_peoples_processes_leave_the_verdict_open(tmp_path):
    (tmp_path / "1" / "fd").mkdir(parents=True)
    held, complete = held_files(frozenset([(1, 2)]), str(tmp_path))
    assert (held, complete) == (set(), True)


def test_cache_that_is_a_link_to_another_owners_folder_is_refused(tmp_path):
    root = plant(
        tmp_path,
        {"/home/u/.cache": Link("/secret"), "/secret/torch_extensions/py311/hidden/x.so": "x"},
    )
    unread = Unread()
    assert (
        read_cache(
            root, unread, [], "/home/u/.cache/torch_extensions", "u", 0, owner=os.getuid() + 1
        )
        is None
    )
    assert "belongs to uid" in unread.rows[0]["reason"]


def test_megatrons_build_folder_is_looked_at_when_the_checkout_is_named(tmp_path):
    root = plant(tmp_path, {"/data/megatron-lm/megatron/fused_kernels/build/lock": ""})
    section, _unread = read(root, torch_environments=["/data/megatron-lm"])
    assert [row["path"] for row in section["extension_caches"]] == [
        "/data/megatron-lm/megatron/fused_kernels/build"
    ]
    assert section["extension_caches"][0]["locks"][0]["path"].endswith("/build/lock")
