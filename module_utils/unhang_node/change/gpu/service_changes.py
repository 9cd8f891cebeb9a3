"""Stops and starts the services that hold GPUs, exchanges the driver's kernel modules, resets the
GPUs."""

from __future__ import annotations

import time
from typing import Any, Collection, Dict, List, NamedTuple, Sequence

from ...base.process import ENVIRONMENT, run_process
from ...base.root import Root
from ...facts.sections.fabric_manager import count_switches
from ..atomic_files import place_of, write_state, write_text
from . import exchange_steps, services
from .exchange_steps import ExchangeStep
from .users import STATE, call, read_gpu_users, read_stopped

UNIT = "unhang-gpu-reload.service"
SCRIPT = "/var/lib/unhang/gpu-reload.sh"
PAUSE_S = 0.2
CLOSE_S = 60  # that stopped services may take to close the GPUs
RELOAD_S = 600  # that the exchange of the modules may take


class Started(NamedTuple):
    """units: services that run again; failures: a line for each that does not."""

    units: List[str]
    failures: List[str]


def stop_services(units: Collection[str]) -> List[str]:
    """Stops units in their order and waits until none of their processes holds a GPU. Their names
    are saved first. Raises OSError, TimeoutError."""
    order = services.stop_order(units)
    write_state("/", STATE, {"stopped": services.stop_order({*order, *read_stopped()})})
    for unit in order:
        call(["systemctl", "stop", unit])
    until = time.monotonic() + CLOSE_S
    while True:
        holders = [row for row in read_gpu_users()["processes"] if row["service"] in order]
        if not holders:
            return order
        if time.monotonic() >= until:
            found = ", ".join(
                f"{row['pid']} ({row['command']}, {row['service']})" for row in holders
            )
            raise TimeoutError(
                110,
                f"stopped, and its processes still hold GPUs after {CLOSE_S} s: {found}",
                ", ".join(order),
            )
        time.sleep(PAUSE_S)


def start_services(tolerate_failures: bool) -> Started:
    """Starts the stopped services, fabric manager first. Raises OSError at the first that does not
    start, unless failures are tolerated."""
    started = Started(units=[], failures=[])
    for unit in services.start_order(read_stopped()):
        try:
            call(["systemctl", "start", unit])
            started.units.append(unit)
        except OSError as problem:
            if not tolerate_failures:
                raise
            started.failures.append(f"{unit}: {problem.strerror}")
    write_state("/", STATE, {})
    return started


def plan_reload(users: Dict[str, Any]) -> List[ExchangeStep]:
    """Steps that exchange the modules on this node. users: result of read_gpu_users. Raises
    OSError, ValueError."""
    has_nvswitch = count_switches(Root()) > 0
    return exchange_steps.reload_steps(
        _running_or_stopped(users), users["unload"] or ["nvidia"], has_nvswitch
    )


def plan_reset(users: Dict[str, Any]) -> List[ExchangeStep]:
    """Steps that reset all GPUs of this node and start fabric manager. users: result of
    read_gpu_users. Raises ValueError."""
    return exchange_steps.reset_steps(_running_or_stopped(users))


def plan_reset_of(users: Dict[str, Any], uuids: Sequence[str], whole: bool) -> List[ExchangeStep]:
    """Steps that reset these GPUs. whole: all GPUs of the node together, and with NVSwitch fabric
    manager with them. Raises OSError, ValueError."""
    if whole and count_switches(Root()) > 0:
        return plan_reset(users)
    return exchange_steps.reset_steps_of(_running_or_stopped(users), () if whole else uuids)


def _running_or_stopped(users: Dict[str, Any]) -> Collection[str]:
    """Units that run, and units that this role stopped before: all of them must run afterwards."""
    return {row["unit"] for row in users["services"] if row["active"]} | set(read_stopped())


def run_steps(steps: Sequence[ExchangeStep]) -> List[str]:
    """Runs the steps in a systemd unit, so that a lost connection does not interrupt them, and
    returns their log. Raises OSError with the step that failed; by then the services have been
    started again, except those that fail to start."""
    write_text(place_of("/", SCRIPT), exchange_steps.script_text(steps), 0o700)
    # Fabric manager is excluded: it may restart only after a reset, which the script itself does.
    write_state(
        "/",
        STATE,
        {
            "stopped": [
                step.name
                for step in steps
                if step.action == "stop" and step.name not in services.FABRIC_MANAGER
            ]
        },
    )
    argv = [
        "systemd-run",
        "--quiet",
        "--collect",
        "--wait",
        "--unit=" + UNIT,
        "--description=unhang exchanges the GPU driver's modules",
    ]
    argv += [
        *(f"--setenv={name}={value}" for name, value in sorted(ENVIRONMENT.items())),
        "/bin/sh",
        SCRIPT,
    ]
    result = run_process(argv, RELOAD_S, merged=True)
    if result.timed_out:
        raise TimeoutError(
            110,
            f"still at work after {RELOAD_S} s; it continues, see systemctl status {UNIT}",
            SCRIPT,
        )
    logged = read_log()
    if result.code != 0:
        failed = next(
            (line for line in logged if line.startswith("failed with ")), result.last_words[-300:]
        )
        raise OSError(5, failed or f"ended with {result.code}", SCRIPT)
    return logged


def read_log() -> List[str]:
    """The log of the last exchange of modules, as lines."""
    try:
        return list(Root().text(exchange_steps.LOG, 65536).splitlines())
    except OSError:
        return []
