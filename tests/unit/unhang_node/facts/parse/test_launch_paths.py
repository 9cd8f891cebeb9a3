"""The setting that wins on each launch path."""

from __future__ import annotations

import pytest

from unhang_node.facts.parse.launch_paths import Setting, judge_effective

LOGIN = ("login", "ssh")
HOST = ("login", "ssh", "systemd", "slurm")


def setting(value, source="environment", paths=LOGIN, name="NCCL_DEBUG", **more):
    return Setting(name, value, "/file", 1, source, paths, **more)


@pytest.mark.parametrize(
    ("settings", "path", "expected"),
    [
        ([setting("INFO")], "login", {"NCCL_DEBUG": "INFO"}),
        ([setting("INFO")], "systemd", {}),
        (
            [setting("INFO"), setting("WARN", "profile", ("login",))],
            "login",
            {"NCCL_DEBUG": "WARN"},
        ),
        ([setting("INFO"), setting("WARN", "profile", ("login",))], "ssh", {"NCCL_DEBUG": "INFO"}),
        ([setting("INFO"), setting("WARN", "nccl_conf", HOST)], "login", {"NCCL_DEBUG": "INFO"}),
        ([setting("INFO"), setting("WARN", "nccl_conf", HOST)], "systemd", {"NCCL_DEBUG": "WARN"}),
        (
            [setting("INFO", "nccl_conf", HOST), setting("WARN", "nccl_conf", HOST)],
            "systemd",
            {"NCCL_DEBUG": "INFO"},
        ),
        ([setting("INFO", "nccl_conf", HOST)], "container", {}),
        (
            [setting("INFO", "user_nccl_conf", HOST), setting("WARN", "nccl_conf", HOST)],
            "systemd",
            {"NCCL_DEBUG": "INFO"},
        ),
        (
            [
                setting("INFO", "user_nccl_conf", HOST, everyone=False),
                setting("WARN", "nccl_conf", HOST),
            ],
            "systemd",
            {"NCCL_DEBUG": None},
        ),
        ([setting("$(x)", certain=False)], "login", {"NCCL_DEBUG": None}),
        (
            [setting("$(x)", certain=False), setting("INFO", "profile", ("login",))],
            "login",
            {"NCCL_DEBUG": "INFO"},
        ),
        ([setting("INFO"), setting(None, "profile", ("login",))], "login", {}),
        (
            [
                setting("INFO"),
                setting(None, "profile", ("login",)),
                setting("WARN", "nccl_conf", HOST),
            ],
            "login",
            {"NCCL_DEBUG": "WARN"},
        ),
        ([setting("INFO")], "slurm", {"NCCL_DEBUG": None}),
        ([setting("INFO"), setting("WARN", "slurm", ("slurm",))], "slurm", {"NCCL_DEBUG": "WARN"}),
        ([setting("1", "systemd", ("systemd",), everyone=False)], "systemd", {"NCCL_DEBUG": None}),
        (
            [
                setting("1", "systemd", ("systemd",)),
                setting("1", "systemd", ("systemd",), everyone=False),
            ],
            "systemd",
            {"NCCL_DEBUG": "1"},
        ),
        ([setting("0", "nccl_conf", HOST, name="CUDA_VISIBLE_DEVICES")], "login", {}),
        ([setting("0", name="CUDA_VISIBLE_DEVICES")], "login", {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_winner(settings, path, expected):
    assert judge_effective(settings)[path] == expected


def test_every_launch_path_is_reported():
    assert set(judge_effective([])) == {"login", "ssh", "systemd", "slurm", "container"}
