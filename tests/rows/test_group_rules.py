"""Nodes of a group are compared in every versioned fact and in every setting that has to be alike;
no side is blamed without a majority."""

from __future__ import annotations

import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.core.schemas.shapes import fact_shapes

CATALOGUE = load_catalogue()
GROUP = {rule.id: rule for rule in CATALOGUE.rules if rule.scope == "group"}
NOT_COMPARED = {
    "kernel.modules.*.version": (
        "modules of the driver follow driver.loaded.version; those of the network stack are"
        " compared by their packages"
    ),
    "kernel.installed.*.release": (
        "old kernels stay on some nodes longer; what boots next is compared"
    ),
    "kernel.installed.*.nvidia_module": "kernel-next-boot-without-driver looks at each node",
    "driver.cuda_version": "part of driver.loaded.version",
    "driver.userspace.libcuda.version": "driver-library-mismatch compares it with the driver",
    "driver.userspace.libnvidia_ml.version": "driver-library-mismatch compares it with the driver",
    "driver.on_disk.version": "driver-next-load-differs compares it with the driver",
    "fabric_manager.version": "the fabric manager's rules compare it with the driver",
    "driver.on_disk.kernel": "kernel.release and kernel.boot.default_release are compared",
    "driver.gsp_firmware.version": "part of driver.loaded.version",
    "driver.packages.*.version": "what the packages carry is compared",
    "cuda.build_tools.gcc.version": "comes with the C++ compiler, which is compared",
    "cuda.build_tools.make.version": "no fault is known that hangs on it",
    "cuda.build_tools.ninja.version": "no fault is known that hangs on it",
    "gpus.devices.*.compute_capability": "part of the model",
    "gpus.devices.*.gsp_version": "part of driver.loaded.version",
    "packages.pending.*.installed": "upgrades that wait, of each node",
    "packages.pending.*.candidate": "upgrades that wait, of each node",
}


def versioned(shape, path):
    """Paths of all facts with a version order."""
    if shape.version:
        yield ".".join(path)
    for name, field in (shape.fields or {}).items():
        yield from versioned(field, (*path, name))
    if shape.item is not None:
        yield from versioned(shape.item, (*path, "*"))


FACTS = sorted(
    {path for name, shape in fact_shapes().items() for path in versioned(shape, (name,))}
)
COMPARED = {".".join(path) for rule in GROUP.values() for path in rule.compare.reads} | {
    f"{row['list']}.*.{field}"
    for row in CATALOGUE.tables["like_things"].values()
    if row.get("peers")
    for field in row["fields"]
}


@pytest.mark.parametrize("fact", FACTS)
def test_every_versioned_fact_is_compared_between_peers_or_there_is_a_reason_why_not(fact):
    assert (fact in COMPARED) != (fact in NOT_COMPARED)


@pytest.mark.parametrize(
    "name",
    sorted(
        name for name, row in CATALOGUE.tables["nccl_variables"].items() if row.get("must_agree")
    ),
)
def test_every_setting_that_must_agree_has_its_rule(name):
    assert [
        rule.id
        for rule in GROUP.values()
        if rule.id.startswith("group-setting-") and f"'{name}'" in rule.compare.source
    ]


def test_settings_that_belong_to_one_node_are_not_compared():
    names = [
        name for name, row in CATALOGUE.tables["nccl_variables"].items() if row.get("per_node")
    ]
    assert len(names) >= 5
    assert not [
        name for name in names for rule in GROUP.values() if f"'{name}'" in rule.compare.source
    ]
