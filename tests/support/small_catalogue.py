"""Writes tests/fixtures/catalogue: the rules and rows of tables that the tests on nodes, machines and with torch judge with, as the catalogue has them.

Those tests take hours. With a catalogue of their own they need not be repeated for a new rule. A unit test compares each copied row with its original.
A test that needs another rule or row names it here and runs `python tests/support/small_catalogue.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "tests" / "fixtures" / "catalogue"
RULES = (
    "build-compiler-missing", "build-ninja-missing", "build-nvcc-missing", "build-python-headers-missing", "cuda-visible-devices-pinned",
    "driver-545-23-08-p2p-deadlock", "driver-library-mismatch", "driver-next-load-differs", "extension-lock-stale", "gpu-compute-mode-exclusive",
    "gpu-fell-off-the-bus", "gpu-persistence-off", "kernel-below-5-5", "kernel-next-boot-without-driver", "kernel-one-shot-boot-pending",
    "kernel-reboot-required", "memlock-too-low-for-rdma", "nccl-interface-does-not-exist", "nccl-p2p-disabled", "nccl-setting-not-real",
    "nccl-unlimited-stack", "node-answer-invalid", "node-failed", "node-missing", "node-python-too-old", "node-timeout", "node-unreachable",
    "nofile-too-low-for-rdma", "nvlink-some-inactive", "packages-driver-not-held", "packages-unattended-reboot", "pcie-width-below-max",
    "policy-driver-not-held", "policy-driver-version", "policy-kernel-min", "policy-kernel-version", "policy-memlock",
    "policy-nccl-min", "policy-nccl-setting", "policy-nccl-version", "policy-nofile", "policy-not-usable", "policy-shm", "remove-ipc-on",
    "torch-setting-renamed", "xid-fatal",
)  # fmt: skip
SETTINGS = (
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_HOSTID", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_TIMEOUT",
    "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SOCKET_IFNAME",
)  # fmt: skip
ALL = None
# {table: keys of its rows}
ROWS = {
    "bandwidth": ("h200x8-all-reduce", "h200x8-all-reduce-nvls", "h200x4-all-reduce-nvls"),
    "counter_rates": ALL,
    "cuda_majors": ALL,
    "driver_branches": ("470", "525", "535", "545", "550", "570", "580"),
    "driver_packages": ALL,
    "gpu_architectures": ALL,
    "gpu_models": ("NVIDIA GB200", "NVIDIA GeForce RTX 3090", "NVIDIA H200", "NVIDIA RTX A6000"),
    "hardware_limits": ALL,
    "nccl_variables": SETTINGS,
    "not_real_settings": ("NCCL_SOCKET_TIMEOUT", "NCCL_TIMEOUT"),
    "remedy_steps": ALL,
    "renamed_settings": ALL,
    "torch_variables": ("NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT",
                        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_ENABLE_MONITORING",
                        "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    "ubuntu_driver_packages": ("22.04/linux-modules-nvidia-535-generic",),
    "xid_levels": ALL,
    "xids": (79,),
}  # fmt: skip


def shipped():
    """({id: rule}, {name: table}) of the whole catalogue."""
    rules, tables = {}, {}
    for path in sorted((PROJECT / "tools" / "unhang" / "catalogue").glob("[rt]*/**/*.yml")):
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        rules |= {row["id"]: row for row in content.get("rules", ())}
        tables |= content.get("tables", {})
    return rules, tables


def small_catalogue():
    """{path below FOLDER: text}."""
    rules, tables = shipped()
    few = {name: {**tables[name], "rows": chosen(tables[name], keys)} for name, keys in ROWS.items()}
    return {"rules/rules.yml": written({"rules": [shortened(rules[name]) for name in RULES]}), "tables/tables.yml": written({"tables": few})}


def chosen(table, keys):
    return [row for row in table["rows"] if keys is ALL or row[table["key"]] in keys]


def shortened(rule):
    """A rule with one source and one example of each kind, which names no rule outside the small catalogue."""
    less = {**rule, "sources": rule["sources"][:1], "examples": {kind: rows[:1] for kind, rows in rule["examples"].items()}}
    less |= {field: [name for name in rule[field] if name in RULES] for field in ("also", "explains") if field in rule}
    return {field: value for field, value in less.items() if value != []}


def written(content):
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(content, Dumper=dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=160)
    return f"# Written by tests/support/small_catalogue.py from tools/unhang/core/catalogue.\n{text}"


def judge_with_it():
    """Lets this process and those that it starts judge with the small catalogue."""
    os.environ["UNHANG_CATALOGUE"] = str(FOLDER)


if __name__ == "__main__":
    for name, text in small_catalogue().items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")
