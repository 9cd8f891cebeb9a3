"""Every fact that is marked `config` is compared between peers, or listed here with the reason why
it may differ."""

from __future__ import annotations

import fnmatch

import pytest
import yaml
from changed_nodes import PLATFORMS, catalogue, changed, found_in_group

from unhang.core.schemas.shapes import every_fact
from unhang.judge.rules.like_things import reads_of_row

MAY_DIFFER = yaml.safe_load("""
node.disks[*].*: their number is compared; models of disks come in several makes
node.arrays[*].*: array-degraded looks at each node
node.slurm.gres.rows[*].*: each node's own lines are judged
kernel.modprobe.options[*].path: module, option and value are compared
kernel.installed[*].*: old kernels stay on some nodes longer; what boots next is compared
kernel.dkms[*].*: kernel-next-boot-without-driver looks at each node
driver.packages[*].*: what the packages carry is compared
fabric_manager.imex.channels[*].*: imex-channel-not-writable looks at each node
cuda.*[*].*: versions of toolkits and cuDNN are compared
nccl.libraries[*].*: version and build are compared; paths may differ
nccl.net_plugins[*].*: names are compared
nccl.settings[*].*: names and values are compared; where they stand may differ
nccl.effective: follows from the settings
torch.environments[*].*: torch, CUDA, NCCL and cuDNN are compared; homes of users differ
torch.extension_caches[*].*: caches of users
gpus.model: models of the devices are compared
interconnect.links[*].*: active links of each GPU are compared
interconnect.by_gpu[*].*: active links are compared
interconnect.acs[*].*: whether it is on for any is compared
network.rdma[*].ports[*].gids[*].*: each node's own; of rails their subnets are compared
packages.installed[*].*: those that matter are compared
packages.pins[*].*: packages-pins-half-set looks at each node
""")
"""Lists that no row of like_things goes through, and why; of what it goes through, the schema has
the reason for a fact that is not compared."""


FACTS = sorted(path for path, one in every_fact() if one.config and not one.not_compared)
READ = {path for rule in catalogue().rules if rule.scope == "group" for path in rule.decision_reads}
COMPARED = {
    ".".join(path).replace(".**", "").replace(".*", "[*]").removesuffix("[*]") for path in READ
}


@pytest.mark.parametrize("fact", FACTS)
def test_configuration_is_compared_between_peers_or_there_is_a_reason_why_not(fact):
    pattern_of = [
        pattern
        for pattern in MAY_DIFFER
        if fnmatch.fnmatchcase(fact.replace("[", "("), pattern.replace("[", "("))
    ]
    assert fact in COMPARED or fact.removesuffix("[*]") in COMPARED or pattern_of


NUMBERS_OF_LISTS = yaml.safe_load("""
node.arrays.*: array-degraded looks at each node
node.earlier.*: of an earlier run, with which this one is compared
node.slurm.gres.rows.*: each node's own lines are judged
node.kubernetes.*: what the cluster placed there
nccl.libraries.*: version and build are compared; processes differ
nccl.settings.*.line: where a setting stands may differ
nccl.net_plugins.*: names are compared
torch.extension_caches.*: caches of users
packages.pins.*: packages-pins-half-set looks at each node
faults.events.*: rules look at each fault
gpus.holders.*: numbers of processes
gpus.devices.*.processes.*: numbers of processes, and what each uses
""")
"""Of lists that no row of like_things goes through."""


def test_every_number_is_compared_with_its_like_or_there_is_a_reason_why_not():
    tables = catalogue().tables
    rows = tables["like_things"].values()
    read = {".".join(path) for row in rows for path in reads_of_row(row, tables)}
    counted = [(row["list"], one.partition("=")[0]) for row in rows for one in row["rates"]]
    read |= {f"{of}{star}.{name}" for of, name in counted for star in ("", ".*")}
    for path, one in every_fact():
        field = path.replace("[*]", ".*")
        if one.kind == "number" and not one.identity and not one.not_compared:
            assert {field, field.removesuffix(".*")} & read or any(
                fnmatch.fnmatchcase(field, row) for row in NUMBERS_OF_LISTS
            ), path


def test_an_identity_may_belong_to_nobody_else_or_the_schema_says_why():
    for path, one in every_fact():
        assert not one.identity or one.unique or one.not_compared, path


@pytest.mark.parametrize("pattern", MAY_DIFFER)
def test_reason_speaks_of_a_fact_that_is_there(pattern):
    assert any(
        fnmatch.fnmatchcase(fact.replace("[", "("), pattern.replace("[", "(")) for fact in FACTS
    )


DRIFTS = yaml.safe_load("""
group-selinux-differs: {facts: {node.selinux.mode: enforcing}}
group-infiniband-down: {facts: {'network.rdma[*].ports[*].state': down}}
group-rdma-names-differ: {facts: {'network.rdma[7].name': mlx5_9}}
unlike-the-others-of-its-group: {facts: {'network.interfaces[1].mtu': 9000}}
group-settings-differ: {settings: {NCCL_IB_TC: '106'}}
""")
"""What drifted in silence before: MTU, IOMMU, command line, NVreg, limits, NUMA, names of cards,
settings."""


SETTINGS = yaml.safe_load("""
- {facts: {node.slurm.slurmd: false}}
- {facts: {'gpus.devices[4].numa_node': 0}}
- {facts: {'network.rdma[4].numa_node': 0}}
- {facts: {'interconnect.pairs[0].topology': system}}
- {facts: {'node.name_service.servers': [10.9.9.9]}}
- {facts: {'interconnect.iommu.mode': translated}}
- {facts: {kernel.cmdline: ro quiet}}
- {facts: {network.peermem.loaded: false}}
- {facts: {network.firewalls: [firewalld]}}
- {facts: {node.slurm.config.proctrack: proctrack/linuxproc}}
- {facts: {node.slurm.cgroup.constrain_devices: false}}
- {facts: {driver.parameters: {OpenRmEnableUnsupportedGpus: '1', EnableStreamMemOPs: '1'}}}
- {facts: {'limits.scopes[*].memlock_soft_bytes': 65536}}
- {facts: {'limits.scopes[0].memlock_soft_bytes': 65536}}
- {facts: {node.numa_nodes: 8}}
- {facts: {node.clock_source: hpet}}
- {facts: {'node.cpu.frequency.governors': [powersave]}}
- {facts: {limits.transparent_hugepages.enabled: never}}
- {facts: {'network.rdma[*].driver': bnxt_en}}
- {facts: {'limits.scopes[*].nproc_soft': 65536}}
- {facts: {'node.services[0].running': false}}
- {facts: {node.cpu_state.smt: 'off'}}
- {facts: {kernel.modprobe.forbidden: []}}
- {facts: {'limits.filesystems[0].type': xfs}}
- {facts: {gpus.first_handle_ms: 60000}}
- {facts: {node.cdi: [{path: /etc/cdi/nvidia.yaml, driver: 580.178.04}]}}
""")


@pytest.mark.parametrize(
    ("rule", "change"),
    [*DRIFTS.items(), *(("unlike-the-others-of-its-group", change) for change in SETTINGS)],
)
def test_drift_of_one_node_is_found_and_equal_nodes_are_silent(rule, change):
    healthy = PLATFORMS["h100_infiniband"]()
    shown = found_in_group([healthy] * 4 + [changed(healthy, change)])
    assert rule in shown
    assert found_in_group([healthy, healthy, healthy]) == {}
