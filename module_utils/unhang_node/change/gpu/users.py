"""Who uses the GPUs of this node, and how the known services among them are stopped, started again, and the kernel modules exchanged."""

from __future__ import annotations

import os
import subprocess
import time

from ...root import Root
from ...section import Unread
from ...sections.processes import read_holders
from ...sections.users import read_users
from ..files import place_of, read_state, write_state, write_text
from ..package.programs import ENVIRONMENT
from . import services

STATE = "gpu_users"
UNIT = "unhang-gpu-reload.service"
SCRIPT = "/var/lib/unhang/gpu-reload.sh"
CALL_DEADLINE_S = 180
PAUSE_S = 0.2


def read_gpu_users(rootfs="/"):
    """{processes, services, modules_held, foreign_modules, unload}. Raises OSError, PermissionError when other users' processes cannot be seen."""
    root = Root([rootfs])
    unread = Unread()
    units = read_services()
    active = [row["unit"] for row in units if row["active"]]
    holders = read_holders(root, unread, read_users(root), collector=os.getpid())
    denied = [row for row in unread.rows if row["status"] == "denied"]
    if denied:
        raise PermissionError(13, denied[0]["reason"], "/proc")
    modules = read_modules(root)
    return {
        "processes": [_row(root, holder, active) for holder in holders],
        "services": units,
        "modules_held": services.modules_held(modules),
        "foreign_modules": services.foreign_modules(modules),
        "unload": services.unload_order(modules),
    }


def _row(root, holder, active):
    try:
        cgroup = root.text("/proc/{}/cgroup".format(holder.pid), 65536)
    except OSError:
        cgroup = ""  # it has ended meanwhile
    row = {"pid": int(holder.pid), "user": holder.user, "command": holder.command, "where": holder.where, "container": holder.container}
    return dict(row, devices=list(holder.devices), service=services.service_of(cgroup, holder.command, active))


def read_modules(root):
    """parse_modules of /proc/modules; {} on a kernel without modules."""
    try:
        return services.parse_modules(root.text("/proc/modules"))
    except FileNotFoundError:
        return {}


def read_services():
    """[{unit, active, enabled}] of the known services that are installed, in the order in which they are stopped; [] without systemd. Raises OSError."""
    try:
        said = call(["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", *services.SERVICES])
    except FileNotFoundError:
        return []
    return parse_services(said)


def parse_services(said):
    """Rows of read_services out of what systemctl show says of SERVICES: one stanza each, in their order, by the real name where one is an alias."""
    rows, seen = [], set()
    for number, stanza in enumerate(said.split("\n\n")[: len(services.SERVICES)]):
        values = dict(line.split("=", 1) for line in stanza.splitlines() if "=" in line)
        if values.get("LoadState") != "loaded" or values.get("Id") in seen:
            continue
        seen.add(values.get("Id"))
        active = values.get("ActiveState") in ("active", "activating", "reloading")
        rows.append({"unit": services.SERVICES[number], "active": active, "enabled": values.get("UnitFileState", "").startswith("enabled")})
    return rows


def call(argv):
    """What a command printed. Raises OSError naming it and its last words when it fails or does not come back."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=CALL_DEADLINE_S, env=ENVIRONMENT, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, "no answer within {} s".format(CALL_DEADLINE_S), " ".join(argv)) from None
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        raise OSError(5, "ended with {}: {}".format(done.returncode, " ".join(said.split())[-300:]), " ".join(argv[:4]))
    return said


def stopped_before(rootfs="/"):
    """Units that an earlier call stopped and nobody has started since. Raises ValueError when what was saved is broken."""
    return services.stop_order(read_state(rootfs, STATE).get("stopped", ()))


def stop_services(units, wait_s, rootfs="/"):
    """Stops units in their order and waits until none of their processes holds a GPU. What was stopped is saved first. Raises OSError, TimeoutError."""
    order = services.stop_order(units)
    kept = services.stop_order({*order, *stopped_before(rootfs)})
    write_state(rootfs, STATE, {"stopped": kept})
    for unit in order:
        call(["systemctl", "stop", unit])
    until = time.monotonic() + wait_s
    while True:
        left = [row for row in read_gpu_users(rootfs)["processes"] if row["service"] in order]
        if not left:
            return order
        if time.monotonic() >= until:
            told = ", ".join("{} ({}, {})".format(row["pid"], row["command"], row["service"]) for row in left)
            raise TimeoutError(110, "stopped, and its processes still hold GPUs after {:g} s: {}".format(wait_s, told), ", ".join(order))
        time.sleep(PAUSE_S)


def start_services(tolerate, rootfs="/"):
    """([started], [why one was not]) of what was stopped, fabric manager first. Raises OSError at the first that does not start, unless `tolerate`."""
    units = services.start_order(stopped_before(rootfs))
    started, left = [], []
    for unit in units:
        try:
            call(["systemctl", "start", unit])
            started.append(unit)
        except OSError as problem:
            if not tolerate:
                raise
            left.append("{}: {}".format(unit, problem.strerror))
    write_state(rootfs, STATE, {})
    return started, left


def reload_modules(lines, deadline_s, rootfs="/"):
    """Runs reload_script's lines in a systemd unit of its own, so that a lost connection does not end them half way. Gives what was logged.

    Raises OSError with the command that failed; the services are running again then, as far as they start.
    """
    write_text(place_of(rootfs, SCRIPT), services.script_text(lines), 0o700)
    # Not fabric manager: nobody may start it again without a reset, which the script itself does.
    units = [line.split()[-1] for line in lines if line.startswith("systemctl stop ") and line.split()[-1] not in services.FABRIC_MANAGER]
    write_state(rootfs, STATE, {"stopped": units})
    try:
        argv = ["systemd-run", "--quiet", "--collect", "--wait", "--unit=" + UNIT, "--description=unhang exchanges the GPU driver's modules"]
        environment = ["--setenv={}={}".format(name, value) for name, value in sorted(ENVIRONMENT.items())]
        argv += environment + ["/bin/sh", SCRIPT]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, "still at work after {:g} s; it goes on, see systemctl status {}".format(deadline_s, UNIT), SCRIPT) from None
    logged = read_log(rootfs)
    if done.returncode:
        failed = next((line for line in logged if line.startswith("failed with ")), " ".join(done.stdout.decode("utf-8", "replace").split())[-300:])
        raise OSError(5, failed or "ended with {}".format(done.returncode), SCRIPT)
    return logged


def read_log(rootfs="/"):
    """Lines that the last exchange of modules logged."""
    try:
        return Root([rootfs]).text(services.LOG, 65536).splitlines()
    except OSError:
        return []
