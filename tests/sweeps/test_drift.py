"""Every fact that is marked `config` is compared between peers, or listed here with the reason why
it may differ."""

from __future__ import annotations

import fnmatch

import pytest
import yaml
from changed_nodes import PLATFORMS, catalogue, changed, found_in_group
from healthy_slurm import NO_SLURM

from unhang.core.schemas.shapes import read_schema

MAY_DIFFER = yaml.safe_load("""
node.container_runtimes[*].*: which runtimes there are is compared; versions of single ones by
  packages
node.cpu.vendor: part of the model
node.cpu.sockets: part of the number of CPUs
node.name_addresses: each node's own
node.cpu.frequency.*_mhz: cpu-frequency-limited looks at each node; the model is compared
node.disks[*].*: their number is compared; models of disks come in several makes
node.arrays[*].*: array-degraded looks at each node
limits.in_use.*_max: kernel-table-nearly-full looks at each node, and the settings behind them
  are compared
gpus.devices[*].memory_temperature_max_c: part of the VBIOS, which is compared
node.dmi.vendor: part of the product
node.dmi.board: part of the product
node.image.*: how a node was installed shows in what it has
node.kubernetes.*: part of what the cluster's own tools roll out
node.module_key.*: a key of each node
node.os.*: id and version are compared, which tell the rest
node.python.path: the version is compared
node.virtualization.*: the kind is compared
node.architecture: part of the processor
node.cdi[*].kind: part of the specification's path, which is compared
node.slurm.slurmd: its version is compared
node.slurm.*.path: what the files set is compared
node.slurm.config.node: slurm-gpus-not-configured and its neighbours look at each node
node.slurm.config.gpus: each node's own line is judged
node.slurm.config.memory_mib: each node's own line is judged
node.slurm.config.cores: each node's own line is judged
node.slurm.config.threads_per_core: each node's own line is judged
node.slurm.gres.rows[*].*: each node's own lines are judged
node.slurm.plugins_missing: slurm-plugin-missing looks at each node
kernel.version: the build of a release that is compared
kernel.modules[*].*: names are compared; versions by driver and packages
kernel.out_of_tree: part of the modules
kernel.installed[*].*: old kernels stay on some nodes longer; what boots next is compared
kernel.dkms[*].*: kernel-next-boot-without-driver looks at each node
kernel.boot.*: default_release is compared; loaders and names of entries do no harm
driver.loaded.is_loaded: driver-not-loaded looks at each node
driver.loaded.line: part of version and flavour
driver.branch: part of the version
driver.*_version: part of the version
driver.userspace.*: driver-library-mismatch looks at each node
driver.on_disk.*: driver-next-load-differs looks at each node
driver.packages[*].*: what the packages carry is compared
driver.install_method: how it came does not decide what it does
driver.gsp_firmware.*: part of the parameters and the version
driver.persistence_daemon: persistence of the GPUs is compared
driver.nouveau_loaded: driver-nouveau-loaded looks at each node
fabric_manager.*: running and switches are compared, and imex-channel-not-writable looks at each
  node
cuda.*: versions of default, toolkits, cuDNN, compiler and forward compatibility are compared;
  paths may differ
nccl.libraries[*].*: version and build are compared; paths may differ
nccl.net_plugins[*].*: names are compared
nccl.settings[*].*: names and values are compared; where they stand may differ
nccl.effective: follows from the settings
torch.environments[*].*: torch, CUDA, NCCL and cuDNN are compared; homes of users differ
torch.extension_caches[*].*: caches of users
gpus.model: models of the devices are compared
gpus.pci_count: gpu-fell-off-the-bus looks at each node
gpus.devices[*].architecture: part of the model
gpus.devices[*].compute_capability: part of the model
gpus.devices[*].board_part_number: boards of one model come in several batches
gpus.devices[*].numa_node: the number of NUMA nodes is compared
gpus.devices[*].cpus: the number of NUMA nodes is compared
gpus.devices[*].pcie.*: width and generation are compared
gpus.devices[*].power_limit_*: the limit that holds is compared
gpus.devices[*].clocks.memory_max_mhz: part of the model
gpus.devices[*].temperature_slowdown_c: part of the VBIOS, which is compared
gpus.devices[*].*.pending: gpu-mode-change-pending looks at each node
gpus.devices[*].gsp_version: part of the driver's version
gpus.devices[*].fabric.*: nodes of one rack and of several belong to different cliques and clusters;
  each node's own are judged
interconnect.links[*].*: active links of each GPU are compared
interconnect.by_gpu[*].*: active links are compared
interconnect.pairs[*].*: follows boards, ACS, IOMMU and links, which are compared
interconnect.p2p_ok: follows boards, ACS, IOMMU and links, which are compared
interconnect.acs[*].*: whether it is on for any is compared
interconnect.iommu.*: the mode is compared
interconnect.fabric_state: gpu-fabric-not-ready looks at each node
network.interfaces[*].*: names and MTU are compared; addresses are each node's own
network.usable_interfaces: part of the interfaces
network.has_*: part of the devices
network.rdma[*].*: names, firmware, state, rate and kind are compared; addresses, LIDs and slots
  are each node's own
network.peermem.*: whether it is loaded is compared
network.dmabuf.why_not: whether it is possible is compared
limits.scopes[*].*: the limits are compared; where they stand may differ
limits.swap_total_bytes: swap-on-kubernetes-node looks at each node
limits.temp[*].*: build-temp-noexec looks at each node
node.containers.docker.*: what decides for all containers is compared; limits and faults are judged
  on each node
node.containers.kubelet.pod_pids_limit: pods-may-start-few-processes looks at each node
node.containers.device_links: follows from how Docker is set
node.containers.toolkit.ldconfig_there: toolkit-ldconfig-missing looks at each node
node.memory_errors.controllers: part of the board
kernel.modprobe.options[*].path: module, option and value are compared; in which file they stand
  may differ
packages.manager: part of the system
packages.installed[*].*: those that matter are compared by name elsewhere
packages.pins[*].*: packages-pins-half-set looks at each node
packages.unattended_upgrades.*: whether they are on is compared
""")
"""Patterns of facts that may differ between peers, or are compared as part of another, and why."""


def config_facts(schema, shape, path):
    """Paths of every fact that the schema marks as configuration."""
    if "$ref" in shape:
        shape = {
            **schema["$defs"][shape["$ref"].rpartition("/")[2]],
            **{key: value for key, value in shape.items() if key != "$ref"},
        }
    if shape.get("x-kind") == "config":
        yield path
        return
    for name, inside in shape.get("properties", {}).items():
        if name != "probe":
            yield from config_facts(schema, inside, f"{path}.{name}" if path else name)
    if isinstance(shape.get("items"), dict):
        yield from config_facts(schema, shape["items"], f"{path}[*]")


SCHEMA = read_schema("node-facts-1")
FACTS = sorted(config_facts(SCHEMA, SCHEMA["properties"]["sections"], ""))
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


@pytest.mark.parametrize("pattern", MAY_DIFFER)
def test_reason_speaks_of_a_fact_that_is_there(pattern):
    assert any(
        fnmatch.fnmatchcase(fact.replace("[", "("), pattern.replace("[", "(")) for fact in FACTS
    )


DRIFTS = yaml.safe_load("""
group-selinux-differs: {facts: {node.selinux.mode: enforcing}}
unlike-the-others-of-its-group: {facts: {'network.interfaces[1].mtu': 9000}}
group-iommu-differs: {facts: {'interconnect.iommu.mode': translated}}
group-kernel-command-line-differs: {facts: {kernel.cmdline: ro quiet}}
group-rdma-names-differ: {facts: {'network.rdma[7].name': mlx5_9}}
group-settings-differ: {settings: {NCCL_IB_TC: '106'}}
group-gpudirect-path-differs: {facts: {network.peermem.loaded: false}}
group-firewall-differs: {facts: {network.firewalls: [firewalld]}}
""")
"""What drifted in silence before: MTU, IOMMU, command line, NVreg, limits, NUMA, names of cards,
settings."""


SETTINGS = yaml.safe_load("""
- {facts: {node.slurm.config.proctrack: proctrack/linuxproc}}
- {facts: {node.slurm.cgroup.constrain_devices: false}}
- {facts: {driver.parameters: {OpenRmEnableUnsupportedGpus: '1', EnableStreamMemOPs: '1'}}}
- {facts: {'limits.scopes[*].memlock_soft_bytes': 65536}}
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
- {facts: {node.cdi: [{path: /etc/cdi/nvidia.yaml, driver: 580.178.04}]}}
""")


@pytest.mark.parametrize(
    ("rule", "change"),
    [*DRIFTS.items(), *(("unlike-the-others-of-its-group", change) for change in SETTINGS)],
)
def test_drift_of_one_node_is_found_and_equal_nodes_are_silent(rule, change):
    healthy = PLATFORMS["h100_infiniband"]()
    shown = found_in_group([healthy, healthy, changed(healthy, change)])
    assert rule in shown
    assert found_in_group([healthy, healthy, healthy]) == {}


def test_a_node_without_slurmd_is_one_finding():
    healthy = PLATFORMS["h100_infiniband"]()
    without = changed(healthy, {"facts": {"node.slurm": NO_SLURM}})
    shown = found_in_group([healthy, healthy, without])
    assert [rule for rule in shown if "slurm" in rule] == ["group-slurm-differs"]
