"""Services that hold GPUs: their processes, the order in which they stop and start, and the script
that exchanges the modules."""

from __future__ import annotations

import os
import subprocess

import pytest

from unhang_node.change.gpu.exchange_steps import (
    RESET_ENDED,
    ExchangeStep,
    reload_steps,
    reset_steps,
    script_text,
)
from unhang_node.change.gpu.services import (
    FABRIC_MANAGER,
    SERVICES,
    foreign_modules,
    modules_held,
    parse_modules,
    parse_services,
    service_of,
    start_order,
    stop_order,
    unit_of,
    unload_order,
)

MODULES = """\
nvidia_uvm 4374528 2 - Live 0x0 (POE)
nvidia_drm 131072 0 - Live 0x0 (POE)
nvidia_modeset 1728512 1 nvidia_drm, Live 0x0 (POE)
nvidia_peermem 16384 0 - Live 0x0 (POE)
gdrdrv 36864 1 - Live 0x0 (OE)
nvidia 14381056 40 nvidia_uvm,nvidia_modeset,nvidia_peermem,gdrdrv, Live 0x0 (POE)
ib_core 409600 3 nvidia_peermem,ib_uverbs,mlx5_ib, Live 0x0
"""
UNITS = ("nvidia-dcgm.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service")


@pytest.mark.parametrize(
    ("cgroup", "command", "service"),
    [
        (
            "0::/system.slice/nvidia-persistenced.service\n",
            "nvidia-persiste",
            "nvidia-persistenced.service",
        ),
        (
            "12:devices:/system.slice/nvidia-dcgm.service\n0::/system.slice/nvidia-dcgm.service\n",
            "nv-hostengine",
            "nvidia-dcgm.service",
        ),
        (
            "0::/system.slice/nvidia-fabricmanager.service/sub\n",
            "nv-fabricmanage",
            "nvidia-fabricmanager.service",
        ),
        ("0::/user.slice/user-1000.slice/session-4.scope\n", "python3", None),
        ("0::/user.slice/user-1000.slice/session-4.scope\n", "nvidia-persiste", None),
        ("0::/user.slice/user-120.slice/session-c1.scope\n", "Xorg", "display-manager.service"),
        ("0::/kubepods/pod1/nvidia-dcgm.service.evil\n", "x", None),
        ("", "", None),
    ],
)
def test_a_process_belongs_to_the_service_whose_control_group_it_is_in(cgroup, command, service):
    assert service_of(unit_of(cgroup), command, ["display-manager.service"]) == service


def test_a_display_server_that_nobody_manages_is_a_user():
    assert service_of(None, "Xorg", []) is None


def test_fabric_manager_stops_last_and_starts_first():
    assert stop_order(set(UNITS)) == list(UNITS)
    assert start_order(set(UNITS)) == list(UNITS)[::-1]
    assert SERVICES[-len(FABRIC_MANAGER) :] == FABRIC_MANAGER
    assert stop_order(["sshd.service"]) == []


def test_modules_are_unloaded_before_what_they_need():
    modules = parse_modules(MODULES)
    order = unload_order(modules)
    assert sorted(order) == [
        "gdrdrv",
        "nvidia",
        "nvidia_drm",
        "nvidia_modeset",
        "nvidia_peermem",
        "nvidia_uvm",
    ]
    for name in order:
        assert all(order.index(above) < order.index(name) for above in modules[name][1])
    assert foreign_modules(modules) == []
    assert {row["name"]: row["holds"] for row in modules_held(modules)} == {
        "nvidia_uvm": 2,
        "gdrdrv": 1,
        "nvidia": 36,
    }


def test_a_module_of_somebody_else_that_needs_the_driver_is_named():
    modules = parse_modules("weka 1 0 - Live 0x0\nnvidia 1 1 weka, Live 0x0\n")
    assert foreign_modules(modules) == ["weka"]


def test_without_the_driver_there_is_nothing_to_unload():
    assert unload_order(parse_modules("ext4 1 0 - Live 0x0\n")) == []
    assert modules_held({}) == []


def test_services_are_read_in_order_and_an_alias_counts_once():
    def stanza(unit, loaded="loaded", active="active", file="enabled"):
        return f"Id={unit}\nLoadState={loaded}\nActiveState={active}\nUnitFileState={file}\n"

    known = {
        "nvidia-dcgm.service": stanza("nvidia-dcgm.service"),
        "dcgm.service": stanza("nvidia-dcgm.service"),
        "display-manager.service": stanza("gdm.service", active="inactive"),
        "nvidia-fabricmanager.service": stanza("nvidia-fabricmanager.service", file="disabled"),
    }
    output = "\n".join(
        known.get(unit, stanza(unit, "not-found", "inactive", "")) for unit in SERVICES
    )
    assert parse_services(output) == [
        {"unit": "nvidia-dcgm.service", "active": True, "enabled": True},
        {"unit": "display-manager.service", "active": False, "enabled": True},
        {"unit": "nvidia-fabricmanager.service", "active": True, "enabled": False},
    ]


# What only hardware can show: these are the commands, and they were not run on a GPU.
GOLDEN = """\
systemctl stop nvidia-dcgm.service
systemctl stop nvidia-persistenced.service
systemctl stop nvidia-fabricmanager.service
rmmod nvidia_uvm
rmmod nvidia_drm
rmmod nvidia_modeset
rmmod nvidia
modprobe nvidia
modprobe nvidia_modeset
modprobe nvidia_drm
modprobe nvidia_uvm
nvidia-smi -r
systemctl start nvidia-fabricmanager.service
systemctl start nvidia-persistenced.service
systemctl start nvidia-dcgm.service
"""


def lines_of(steps):
    return "".join(step.line() + "\n" for step in steps)


def test_the_commands_that_exchange_the_modules():
    assert (
        lines_of(
            reload_steps(
                UNITS, ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"], nvswitch=True
            )
        )
        == GOLDEN
    )


def test_without_nvswitch_no_gpu_is_reset():
    assert "nvidia-smi" not in lines_of(reload_steps(UNITS, ["nvidia"], nvswitch=False))


def test_the_commands_that_reset_all_gpus_are_in_the_documented_order():
    assert (
        lines_of(reset_steps(["nvidia-persistenced.service", "nvidia-dcgm.service"]))
        == """\
systemctl stop nvidia-dcgm.service
systemctl stop nvidia-persistenced.service
systemctl stop nvidia-fabricmanager.service
nvidia-smi -r
systemctl start nvidia-fabricmanager.service
systemctl start nvidia-persistenced.service
systemctl start nvidia-dcgm.service
"""
    )


def test_the_name_of_a_module_never_becomes_shell_text():
    assert ExchangeStep("unload", "nvidia; reboot").line() == "rmmod 'nvidia; reboot'"


@pytest.fixture
def machine(tmp_path):
    """Runs a script with stand-ins for the programs that it calls; gives (exit code, what was
    called, what was logged)."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "rmmod", "modprobe", "nvidia-smi"):
        (programs / name).write_text(
            f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/called\n! grep -qxF "{name} $*"'
            f" {tmp_path}/fails\n"
        )
        (programs / name).chmod(0o755)
    (tmp_path / "state").write_text("{}")

    def play(steps, fails=()):
        (tmp_path / "fails").write_text("".join(f"{line}\n" for line in fails))
        script = script_text(steps, str(tmp_path / "log"), str(tmp_path / "state"))
        done = subprocess.run(
            ["sh"],
            input=script,
            text=True,
            env={"PATH": f"{programs}:{os.environ['PATH']}"},
            check=False,
        )
        return (
            done.returncode,
            (tmp_path / "called").read_text().splitlines(),
            (tmp_path / "log").read_text(),
        )

    return play


def test_the_script_does_each_step_once_and_forgets_what_it_stopped(machine, tmp_path):
    steps = reload_steps(UNITS, unload_order(parse_modules(MODULES)), nvswitch=True)
    lines = [step.line() for step in steps]
    code, called, logged = machine(steps)
    assert code == 0
    assert called == lines
    noted = logged.splitlines()
    assert [line for line in noted if line in lines] == lines
    assert noted[noted.index("nvidia-smi -r") + 1] == RESET_ENDED
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "fails",
    [
        "rmmod nvidia_uvm",
        "rmmod nvidia",
        "modprobe nvidia",
        "nvidia-smi -r",
        "systemctl stop nvidia-dcgm.service",
    ],
)
def test_after_a_failure_modules_and_services_are_brought_up_again_and_it_is_reported(
    machine, tmp_path, fails
):
    steps = reload_steps(UNITS, ["nvidia_uvm", "nvidia"], nvswitch=True)
    lines = [step.line() for step in steps]
    code, called, logged = machine(steps, [fails])
    assert code == 1
    assert f"failed with 1: {fails}" in logged
    assert called[: lines.index(fails) + 1] == lines[: lines.index(fails) + 1]
    asked, after = (
        "systemctl is-active --quiet nvidia-fabricmanager.service",
        called[lines.index(fails) + 1 :],
    )
    assert [line for line in after if line != asked] == [
        line
        for line in lines
        if line.startswith(("modprobe", "systemctl start")) and "fabric" not in line
    ]
    assert asked in after
    assert (tmp_path / "state").exists()
    assert not any("daemon-reload" in line for line in called)


@pytest.mark.parametrize(("resets", "starts"), [(True, True), (False, False)])
def test_a_fabric_manager_that_was_stopped_comes_up_after_a_reset_alone(machine, resets, starts):
    start = "systemctl start nvidia-fabricmanager.service"
    fails = ["rmmod nvidia", "systemctl is-active --quiet nvidia-fabricmanager.service"] + (
        [] if resets else ["nvidia-smi -r"]
    )
    _code, called, _logged = machine(
        reload_steps(UNITS, ["nvidia_uvm", "nvidia"], nvswitch=True), fails
    )
    assert (start in called) == starts
    if starts:
        assert called.index("nvidia-smi -r") < called.index(start)
