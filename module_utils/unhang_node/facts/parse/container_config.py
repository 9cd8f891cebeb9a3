"""Configuration files of container runtimes and of the kubelet to values. Values in, values out.

TOML and YAML are read line by line, as far as these files need it: Python 3.8 has no reader of
either.
"""

from __future__ import annotations

import re

from ...base.parse.values import clean, integer_or_none, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RUNTIME = re.compile(r"\.runtimes\.\"?'?([\w-]{1,64})\"?'?(?:\.options)?$")
SIZE = re.compile(r"(\d{1,15})\s*([bkmgt]?)(?:i?b)?$", re.IGNORECASE)
POWERS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
TEXT = 128


def parse_docker(text: str) -> dict[str, Any]:
    """What /etc/docker/daemon.json sets: "", [] or None where it sets nothing. Raises ValueError if
    the text is not a JSON object."""
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("this is not a JSON object")
    options = [str(one) for one in values.get("exec-opts") or [] if isinstance(one, str)]
    runtimes, features, ulimits = (
        values.get("runtimes"),
        values.get("features"),
        values.get("default-ulimits"),
    )
    memlock = ulimits.get("memlock") if isinstance(ulimits, dict) else None
    hard = memlock.get("Hard") if isinstance(memlock, dict) else None
    return {
        "default_runtime": clean(str(values.get("default-runtime") or ""), TEXT),
        "cgroup_driver": next(
            (
                clean(one.partition("=")[2], TEXT)
                for one in options
                if one.startswith("native.cgroupdriver=")
            ),
            "",
        ),
        "storage_driver": clean(str(values.get("storage-driver") or ""), TEXT),
        "runtimes": sorted(clean(str(name), TEXT) for name in runtimes)[:32]
        if isinstance(runtimes, dict)
        else [],
        "cdi": bool(isinstance(features, dict) and features.get("cdi")),
        "memlock_bytes": hard if isinstance(hard, int) and not isinstance(hard, bool) else None,
        "shm_size_bytes": parse_size(str(values.get("default-shm-size") or "")),
    }


def parse_size(text: str) -> int | None:
    """Bytes of "64M", "8G" or "1073741824", None for anything else."""
    match = SIZE.match(text.strip())
    return int(match.group(1)) * 1024 ** POWERS[match.group(2).lower()] if match else None


def toml_rows(text: str) -> list[tuple[str, str, str]]:
    """[(table, key, value)] of a TOML file's simple lines, and (table, "", "") where a table
    begins; without quotes and comments."""
    table, rows = "", []
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            table = line.strip("[] ")
            rows.append((table, "", ""))
            continue
        key, equals, value = line.partition("=")
        if not equals or line.startswith("#"):
            continue
        value = value.strip()
        if value[:1] in ("'", '"'):
            value = value[1:].partition(value[0])[0]
        elif not value.startswith("["):
            value = value.partition("#")[0].strip()
        rows.append((table, key.strip().strip("'\""), clean(value, 1024)))
    return rows


def parse_containerd(text: str) -> dict[str, Any]:
    """{default_runtime, runtimes: [{name, systemd_cgroup}], disabled_plugins, cdi} of one
    configuration file of containerd."""
    runtimes: dict[str, bool] = {}
    found: dict[str, Any] = {"default_runtime": "", "disabled_plugins": [], "cdi": False}
    for table, key, value in toml_rows(text):
        match = RUNTIME.search(table)
        if match:
            runtimes.setdefault(match.group(1), False)
            if key == "SystemdCgroup":
                runtimes[match.group(1)] = value == "true"
        if key == "default_runtime_name":
            found["default_runtime"] = value[:TEXT]
        elif key == "disabled_plugins" and not table:
            found["disabled_plugins"] = re.findall(r"[\"']([\w.-]{1,64})[\"']", value)[:32]
        elif key == "enable_cdi":
            found["cdi"] = value == "true"
    found["runtimes"] = [
        {"name": name, "systemd_cgroup": runtimes[name]} for name in sorted(runtimes)
    ][:32]
    return found


def parse_toolkit(text: str) -> dict[str, Any]:
    """{no_cgroups, ldconfig, mode} of /etc/nvidia-container-runtime/config.toml; "" for what it
    does not set."""
    values = {(table, key): value for table, key, value in toml_rows(text)}
    return {
        "no_cgroups": values.get(("nvidia-container-cli", "no-cgroups")) == "true",
        "ldconfig": values.get(("nvidia-container-cli", "ldconfig"), ""),
        "mode": values.get(("nvidia-container-runtime", "mode"), "")[:TEXT],
    }


def parse_kubelet(text: str) -> dict[str, Any]:
    """{cgroup_driver, pod_pids_limit, cpu_manager, memory_manager, topology_manager} of a
    KubeletConfiguration; "" or None for what it does not set."""
    values = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:  # a key that is indented belongs to another and keeps its spaces
            values[key.strip("'\"")] = clean(value.partition(" #")[0].strip().strip("'\""), TEXT)
    return {
        "cgroup_driver": values.get("cgroupDriver", ""),
        "pod_pids_limit": integer_or_none(values.get("podPidsLimit", "")),
        "cpu_manager": values.get("cpuManagerPolicy", ""),
        "memory_manager": values.get("memoryManagerPolicy", ""),
        "topology_manager": values.get("topologyManagerPolicy", ""),
    }
