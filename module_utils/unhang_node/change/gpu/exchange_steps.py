"""The steps that exchange the driver's kernel modules or reset the GPUs, and the script that runs
them. Values in, values out.

All GPUs are reset before fabric manager starts, and fabric manager starts before everything else:
if it restarts without a reset, it breaks NVLS for every later job
(https://github.com/NVIDIA/nccl/issues/1488).
"""

from __future__ import annotations

import shlex
from typing import Collection, List, NamedTuple, Sequence

from .services import FABRIC_MANAGER, start_order, stop_order

LOG = "/var/lib/unhang/gpu-reload.log"
STATE_FILE = "/var/lib/unhang/gpu_users.json"
RESET_ENDED = "the reset has ended, at"
# What the kernel logs from here on, as the services start, is no fault of before.
_END = f"; echo {RESET_ENDED}; cat /proc/uptime; dmesg | tail -n 1"


class ExchangeStep(NamedTuple):
    """action: stop or start a service, unload or load a kernel module, reset GPUs; name: the
    service, the module, or the UUIDs of the GPUs with commas, "" for all GPUs."""

    action: str
    name: str = ""

    def argv(self) -> List[str]:
        """The command that performs the step."""
        programs = {
            "stop": ["systemctl", "stop"],
            "start": ["systemctl", "start"],
            "unload": ["rmmod"],
            "load": ["modprobe"],
            "reset": ["nvidia-smi", "--gpu-reset", "-i"] if self.name else ["nvidia-smi", "-r"],
        }
        return programs[self.action] + ([self.name] if self.name else [])

    def line(self) -> str:
        """The command as one line, for a person and for sh."""
        return " ".join(shlex.quote(argument) for argument in self.argv())


RESET = ExchangeStep("reset")


def reload_steps(
    services: Collection[str], unload: Sequence[str], nvswitch: bool
) -> List[ExchangeStep]:
    """Exchanges the modules. services: units to stop and start again; unload: result of
    unload_order; nvswitch: whether the GPUs must be reset before fabric manager starts."""
    units = stop_order(services)
    fabric = [unit for unit in units if unit in FABRIC_MANAGER]
    loaded = ["nvidia", *[name for name in unload if name != "nvidia"][::-1]]
    steps = [ExchangeStep("stop", unit) for unit in units]
    steps += [ExchangeStep("unload", name) for name in unload]
    steps += [ExchangeStep("load", name) for name in loaded]
    steps += [RESET] if nvswitch else []
    return steps + [
        ExchangeStep("start", unit)
        for unit in [*fabric, *(unit for unit in start_order(units) if unit not in fabric)]
    ]


def reset_steps(services: Collection[str]) -> List[ExchangeStep]:
    """Resets all GPUs and starts fabric manager. services: units to stop and start again."""
    others = [unit for unit in stop_order(services) if unit not in FABRIC_MANAGER]
    steps = [ExchangeStep("stop", unit) for unit in [*others, FABRIC_MANAGER[0]]]
    return [
        *steps,
        RESET,
        *(ExchangeStep("start", unit) for unit in [FABRIC_MANAGER[0], *start_order(others)]),
    ]


def reset_steps_of(services: Collection[str], uuids: Sequence[str]) -> List[ExchangeStep]:
    """Resets these GPUs, all of them if there are none; fabric manager runs on, as it must for the
    reset of a single GPU (https://docs.nvidia.com/deploy/nvidia-smi/). services: units to stop and
    start again."""
    others = [unit for unit in stop_order(services) if unit not in FABRIC_MANAGER]
    return [
        *(ExchangeStep("stop", unit) for unit in others),
        ExchangeStep("reset", ",".join(uuids)),
        *(ExchangeStep("start", unit) for unit in start_order(others)),
    ]


def script_text(steps: Sequence[ExchangeStep], log: str = LOG, state_file: str = STATE_FILE) -> str:
    """The steps as an sh script: it logs each step before running it, and after a failure it starts
    everything that can start."""
    head = [
        "#!/bin/sh",
        "# Exchanges the GPU driver's modules. Written and removed by unhang.",
        f"exec >{log} 2>&1",
        "rescue() {",
    ]
    tail = [
        "}",
        (
            'step() { echo "$*"; "$@" || { code=$?; echo "failed with $code: $*"; rescue; exit'
            ' "$code"; }; }'
        ),
    ]
    rescue = [f"  {line} || :" for line in _rescue_lines(steps)]
    return (
        "\n".join(
            [
                *head,
                *rescue,
                *tail,
                *(f"step {step.line()}{_END if step.action == 'reset' else ''}" for step in steps),
                f"rm -f {state_file}",
            ]
        )
        + "\n"
    )


def _rescue_lines(steps: Sequence[ExchangeStep]) -> List[str]:
    """Shell lines that start everything again after a failure. Fabric manager starts only after a
    reset: jobs that fail at once are better than jobs that hang."""
    lines = []
    for step in steps:
        if step.action == "start" and step.name in FABRIC_MANAGER and RESET in steps:
            lines.append(
                f"systemctl is-active --quiet {step.name} || {{ {RESET.line()} && {step.line()}; }}"
            )
        elif step.action in ("load", "start"):
            lines.append(step.line())
    return lines
