"""Slurm of a healthy node, as the collector reports it."""

from __future__ import annotations

NO_SLURM = {
    "slurmd": False,
    "version": None,
    "config": None,
    "cgroup": None,
    "gres": None,
    "plugins_missing": None,
    "ssh_adopted": None,
}


def slurm_of(gpus=8, sockets=2):
    """slurmd with one slurm.conf, cgroup.conf and gres.conf that fit a node with this number of
    GPUs."""
    config = {
        "path": "/etc/slurm/slurm.conf", "task_plugins": ["task/affinity", "task/cgroup"],
        "proctrack": "proctrack/cgroup", "propagate": [],
        "propagate_except": ["memlock"], "prolog_flags": ["contain"],
        "select_parameters": ["cr_core_memory"], "parameters": [], "mpi_default": "pmix",
        "gres_types": ["gpu"], "unkillable_step_timeout_s": 300, "message_timeout_s": 10,
        "slurmd_timeout_s": 300, "node": True, "gpus": gpus,
        "memory_mib": 2000000, "cores": 64 // 2 * sockets, "threads_per_core": 2,
    }  # fmt: skip
    cgroup = {
        "path": "/etc/slurm/cgroup.conf", "plugin": "autodetect", "constrain_devices": True,
        "constrain_cores": True, "constrain_ram": True,
        "allowed_ram_percent": 100,
    }  # fmt: skip
    gres = {"path": "/etc/slurm/gres.conf", "autodetect": "nvml", "rows": []}
    return {
        "slurmd": True,
        "version": "24.05.2",
        "config": config,
        "cgroup": cgroup,
        "gres": gres,
        "plugins_missing": [],
        "ssh_adopted": True,
    }
