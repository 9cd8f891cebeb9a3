"""Stand-ins for programs that hold GPUs on a node: services with the known names, a job, and the
programs that load and unload kernel modules."""

from __future__ import annotations

import shlex

DEVICE = "/dev/nvidia0"
ORDER = "/run/order"
UNITS = ("nvidia-dcgm", "nvidia-persistenced", "nvidia-fabricmanager")
UNIT = """\
[Service]
ExecStartPre=/bin/sh -c 'echo start %p >>{order}'
ExecStart=/bin/sh -c 'exec 3<{device}; exec sleep infinity'
ExecStop=/bin/sh -c 'echo stop %p >>{order}'
"""
# modprobe loads the version that dpkg has installed, as a boot does; the list of calls is the
# evidence of the tests.
PROGRAM = '#!/bin/sh\necho "{name} $*" >>{order}\n{body}\n'
BODIES = {
    "rmmod": "",
    "nvidia-smi": "",
    "modprobe": '[ "$1" != nvidia ] || /usr/local/sbin/testbed-driver',
}


def start(fleet, name, units=UNITS):
    """Runs the services, each with a device open, until the test ends."""
    fleet.shell(name, f"touch {DEVICE} {ORDER}", undo=f"rm -f {DEVICE} {ORDER}")
    for unit in units:
        fleet.plant(
            name, f"/usr/lib/systemd/system/{unit}.service", UNIT.format(order=ORDER, device=DEVICE)
        )
        fleet.shell(name, f"systemctl start {unit}", undo=f"systemctl stop {unit}")
    called(fleet, name)


def called(fleet, name):
    """The services and programs that were started or stopped since the last call, in order."""
    return fleet.shell(name, f"cat {ORDER}; : >{ORDER}").splitlines()


def process_of(fleet, name, unit):
    """The pid of a service's main process, 0 when it does not run."""
    return int(fleet.shell(name, f"systemctl show -p MainPID --value {unit}"))


def start_job(fleet, name, user):
    """A user's process with the GPU open, until the test ends; gives its pid."""
    command = f"exec 3<{DEVICE}; exec sleep infinity"
    fleet.shell(
        name,
        f"systemd-run -q --slice=user.slice --unit=job --uid={user} sh -c '{command}'",
        undo="systemctl stop job 2>/dev/null || :",
    )
    return process_of(fleet, name, "job")


MAPS = f"import mmap, signal; f = open('{DEVICE}', 'r+b'); gpu = mmap.mmap(f.fileno(), 0); signal.pause()"


def start_unit(fleet, name, unit, *argv):
    """Runs a program in a unit of the system that nobody knows, until the test ends."""
    fleet.shell(
        name,
        f"systemd-run -q --unit={unit} {shlex.join(argv)}",
        undo=f"systemctl stop {unit} 2>/dev/null || :",
    )


def plant_programs(fleet, name, **bodies):
    """rmmod, modprobe and nvidia-smi; bodies: another shell text for one of them."""
    for program, body in {**BODIES, **bodies}.items():
        fleet.plant(
            name,
            f"/usr/local/sbin/{program}",
            PROGRAM.format(name=program, order=ORDER, body=body),
            0o755,
        )
