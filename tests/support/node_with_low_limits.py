"""A node whose limits for jobs are too low, and the limits and shared memory of its running
system."""

from __future__ import annotations

NODE = "gpu001"
MIB = 1 << 20
UNIT = (
    "[Unit]\nDescription=stands for {name}\n[Service]\nExecStart=/usr/local/sbin/{name}"
    " 1000000\n{more}[Install]\nWantedBy=multi-user.target\n"
)
HOST = {
    "numa_balancing": False,
    "iommu": "passthrough",
    "persistence": True,
    "peer_memory": "nvidia_peermem",
    "remove_ipc": False,
}


def make_stingy(fleet):
    """(fleet, policy): a node whose slurmd and ray run with limits that are too low, and whose GPUs
    are not kept initialised, until the test ends.

    The machine that runs the tests limits what can be requested: a node gets no more than its first
    process has.
    """
    memlock, nofile = limits_of(fleet, "1", hard=True)
    services = {
        "slurmd": f"LimitMEMLOCK=64K:{memlock}\nLimitNOFILE=1024:{nofile}\n",
        "ray": "LimitNOFILE=1024\n",
        "nvidia-persistenced": "",
    }
    fleet.undo.callback(fleet.shell, NODE, "rm -rf /var/lib/unhang; systemctl daemon-reload")
    fleet.plant(NODE, "/etc/security/limits.conf", "* hard memlock 64\n* hard nofile 4096\n")
    for name, more in services.items():
        fleet.plant(
            NODE,
            f"/usr/local/sbin/{name}",
            (fleet.nodes[NODE].root / "usr/bin/sleep").read_bytes(),
            mode=0o755,
        )
        fleet.plant(NODE, f"/etc/systemd/system/{name}.service", UNIT.format(name=name, more=more))
        fleet.undo.callback(fleet.shell, NODE, f"systemctl disable --now {name}")
    fleet.shell(NODE, "systemctl daemon-reload; systemctl enable --now slurmd ray")
    fleet.answer(NODE, all_devices={"nvmlDeviceGetPersistenceMode": 0})
    size = shm_size(fleet)
    fleet.undo.callback(fleet.shell, NODE, f"mount -o remount,size={size} /dev/shm")
    policy = {
        "limits": {
            "memlock_bytes": -1 if memlock == "unlimited" else int(memlock),
            "nofile": int(nofile),
            "shm_bytes": size + 64 * MIB,
        },
        "host": HOST,
    }
    return fleet, policy


def shm_size(fleet):
    """Bytes of the node's /dev/shm."""
    return int(fleet.shell(NODE, "echo $(( $(stat -f -c '%b * %S' /dev/shm) ))"))


def limits_of(fleet, service, hard=False):
    """[memlock, nofile], soft or hard, of a running service or of a process id, as the kernel
    writes them."""
    pid = service if service.isdigit() else f"$(systemctl show -P MainPID {service})"
    lines = fleet.shell(NODE, f"cat /proc/{pid}/limits").splitlines()
    return [
        next(line for line in lines if line.startswith(title)).split()[-2 if hard else -3]
        for title in ("Max locked memory", "Max open files")
    ]
