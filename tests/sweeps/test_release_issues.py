"""Each known fault of a release is found on a node with this release, and not on the same node with
the release that repairs it."""

from __future__ import annotations

import pytest
from changed_nodes import catalogue, changed, found_on_node, view, words_of
from healthy_platforms import PLATFORMS
from healthy_sections import package

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world

TABLES = {
    "nccl_issues": "nccl-release",
    "driver_issues": "driver-release",
    "software_issues": "software-release",
    "kernel_issues": "kernel-release",
}
ROWS = [(table, key) for table in TABLES for key in catalogue().tables[table]]
"""Every row of the tables of faults."""
NODES = {
    "blackwell": "b200_infiniband", "ampere": "a100_roce", "hopper": "h100_infiniband",
    "ada": "l40s_ethernet", "turing": "t4_cloud_vm",
    "GH200": "gh200", "GB200": "gb200_nvl72", "GB300": "gb200_nvl72", "B200 SXM": "b200_infiniband",
    "B300 SXM": "b300_infiniband", "A100 SXM4": "a100_roce", "T4": "t4_cloud_vm",
    "RTX PRO 6000 Blackwell Server": "rtx_pro_6000",
}  # fmt: skip


INSTALLED = {
    "package": package,
    "module": lambda name, version: {
        "name": name,
        "version": version,
        "srcversion": None,
        "out_of_tree": True,
        "users": 1,
        "parameters": {},
    },
}


def node_of(table, row):
    """A healthy node on which the fault would appear, except for the release."""
    if "efa" in row.get("network", ()) or (
        not row.get("models") and row.get("of") in ("aws-ofi-nccl", "efa-installer")
    ):
        name = "p5_efa" if "aarch64" not in row.get("processors", ()) else "gb200_nvl72"
    else:
        wanted = [*row.get("models", ()), *row.get("architectures", ())]
        usual = (
            "gb200_nvl72"
            if "aarch64" in row.get("processors", ())
            else "a100_roce"
            if row.get("network") == ["ethernet"]
            else "h100_infiniband"
        )
        name = next((NODES[one] for one in wanted if one in NODES), usual)
    node = changed(PLATFORMS[name](), shown(row))
    nccl = node["sections"]["nccl"]
    # a healthy node may have worked around it
    nccl["settings"] = [one for one in nccl["settings"] if one["name"] != row.get("unless")]
    return node


def shown(row):
    """The changes that a healthy node needs besides the release, so that the fault appears."""
    change = {}
    if row.get("setting"):
        change["settings"] = {row["setting"]: next(iter(row.get("values") or ["Ring"]))}
    if row.get("models") and (row["models"][0] not in NODES or "efa" in row.get("network", ())):
        name, model = next(
            (name, one)
            for name, one in catalogue().tables["gpu_models"].items()
            if one["model"] == row["models"][0]
        )
        change["facts"] = {
            "gpus.model": name,
            "gpus.devices[*].model": name,
            "gpus.devices[*].architecture": model["architecture"],
        }
    if "volta" in row.get("architectures", ()):
        change["facts"] = {"gpus.devices[*].architecture": "volta"}
    if row.get("shared_cards"):
        change["facts"] = {"network.rdma[1].pci_address": "0000:20:00.1"}
    if row.get("mixed_links"):
        # two ports of one card
        change["facts"] = {
            "network.rdma[1].ports[0].link_layer": "ethernet",
            "network.rdma[1].pci_address": "0000:20:00.1",
        }
    if row.get("gpus_from"):
        change["facts"] = {"gpus.count": row["gpus_from"]} | change.get("facts", {})
    if row.get("lines"):
        change["facts"] = {"gpus.devices[*].model": "NVIDIA GeForce RTX 4090"}
    if row.get("cpu_vendors"):
        change["facts"] |= {"node.cpu.vendor": row["cpu_vendors"][0]}
    if row.get("driver_from"):
        change["driver"] = row["driver_from"]
    return change


def with_release(document, table, row, version):
    if table == "nccl_issues":
        return changed(document, {"nccl": version})
    if table == "driver_issues":
        return changed(
            document,
            {
                "driver": version,
                **(
                    {"facts": {"driver.loaded.flavour": row["flavours"][0]}}
                    if row["flavours"]
                    else {}
                ),
            },
        )
    if table == "kernel_issues":
        return changed(document, {"facts": {"kernel.release": f"{version}{row['build']}"}})
    part = {
        "torch": "torch.environments[0].torch",
        "aws-ofi-nccl": "network.efa.plugin",
        "efa-installer": "network.efa.installer",
        "slurm": "node.slurm.version",
    }.get(row["of"])
    if part and part.startswith("network"):
        return changed(
            document,
            {"facts": {"network.efa": {"plugin": "9.9.9", "installer": "9.9.9"}, part: version}},
        )
    if part:
        return changed(document, {"facts": {part: version}})
    if row["of"] == "wheel":
        return changed(
            document, {"facts": {"torch.environments[0].packages": {row["names"][0]: version}}}
        )
    if row["of"] in ("package", "module"):
        return changed(
            document,
            {
                "add": {
                    "packages.installed" if row["of"] == "package" else "kernel.modules": [
                        INSTALLED[row["of"]](row["names"][0], version)
                    ]
                }
            },
        )
    return changed(
        document,
        {
            "facts": {
                "node.container_runtimes": [
                    {"name": row["of"], "path": "/usr/bin/x", "version": version}
                ]
            }
        },
    )


def faults_told(document, table):
    """Keys of the rows that a rule of this table finds on a document."""
    world = node_world(
        NodeView("node1", ("training",), {}, "ok", "", "", to_fragment(document["sections"])),
        view(),
    )
    rules = [rule for rule in catalogue().rules if rule.id.startswith(TABLES[table])]
    failed = [
        one.item for rule in rules for one in judge_rule(rule, world) if one.verdict == "fail"
    ]
    return {path.rpartition(".")[2] for path in failed} | (
        told_together(document) if table == "nccl_issues" else set()
    )


def told_together(document):
    """Keys of the rows that the one finding about a release lists."""
    texts = words_of(document, "nccl-release-fault-of-some-jobs")
    return {
        key
        for key, row in catalogue().tables["nccl_issues"].items()
        if any(row["says"] in text for text in texts)
    }


@pytest.mark.parametrize(("table", "key"), ROWS)
def test_fault_is_found_in_the_first_release_that_has_it_and_no_more_in_the_one_that_repairs_it(
    table, key
):
    row = catalogue().tables[table][key]
    node = node_of(table, row)
    assert key in faults_told(with_release(node, table, row, row["from"]), table)
    assert key not in faults_told(with_release(node, table, row, row["below"]), table)


OTHERS = {
    "architectures": ("gpus.devices[*].architecture", "turing", "hopper"),
    "processors": ("node.architecture", "x86_64", "aarch64"),
    "flavours": ("driver.loaded.flavour", "open", "proprietary"),
    "cpu_vendors": ("node.cpu.vendor", "GenuineIntel"),
    "lines": ("gpus.devices[*].model", "NVIDIA H200"),
}
"""The fact, and values of which one is not the condition of a row."""
MADE_OF = ("shared_cards", "mixed_links")
ONLY_WITH = (
    "models",
    "architectures",
    "processors",
    "network",
    "flavours",
    "firmware",
    "gpus_from",
    "cpu_vendors",
    "lines",
    "build",
    "driver_from",
    "driver_below",
    "setting",
    "values",
)
"""The conditions of a row besides the release; what a card is made of has its near miss in the node
that nothing was changed in."""


def without_condition(node, row, field):
    """The node without one condition of the row, all others and the release as they were."""
    if field == "models":
        other = next(
            name
            for name, one in catalogue().tables["gpu_models"].items()
            if one["model"] not in row["models"]
        )
        return changed(node, {"facts": {"gpus.model": other, "gpus.devices[*].model": other}})
    if field in ("setting", "values"):
        node["sections"]["nccl"]["settings"] = [
            one for one in node["sections"]["nccl"]["settings"] if one["name"] != row["setting"]
        ]
        return (
            changed(node, {"settings": {row["setting"]: "another"}}) if field == "values" else node
        )
    if field in ("driver_from", "driver_below"):
        return changed(
            node, {"driver": "450.80.02" if field == "driver_from" else row["driver_below"]}
        )
    if field == "build":
        return changed(node, {"facts": {"kernel.release": f"{row['from']}-of-another"}})
    if field == "gpus_from":
        return changed(node, {"facts": {"gpus.count": row["gpus_from"] - 1}})
    if field == "firmware":
        return changed(node, {"facts": {"driver.gsp_firmware.enabled": False}})
    if field == "network":
        return changed(node, {"facts": {"network.rdma": []}})
    place, *values = OTHERS[field]
    return changed(node, {"facts": {place: next(one for one in values if one not in row[field])}})


CONDITIONS = [
    (table, key, field)
    for table, key in ROWS
    for field in ONLY_WITH
    if catalogue().tables[table][key].get(field)
]


@pytest.mark.parametrize(("table", "key", "field"), CONDITIONS)
def test_fault_is_not_told_where_one_of_its_conditions_is_missing(table, key, field):
    row = catalogue().tables[table][key]
    node = with_release(node_of(table, row), table, row, row["from"])
    assert key in faults_told(node, table)
    assert key not in faults_told(without_condition(node, row, field), table)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (table, key)
        for table, key in ROWS
        if any(catalogue().tables[table][key].get(one) for one in MADE_OF)
    ],
)
def test_fault_of_cards_with_several_ports_is_not_told_where_each_card_has_one(table, key):
    row = catalogue().tables[table][key]
    plain = node_of(table, {**row, **dict.fromkeys(MADE_OF, False)})
    assert key not in faults_told(with_release(plain, table, row, row["from"]), table)


@pytest.mark.parametrize(
    ("table", "key"),
    [(table, key) for table, key in ROWS if catalogue().tables[table][key].get("unless")],
)
def test_fault_is_not_told_where_it_is_worked_around(table, key):
    row = catalogue().tables[table][key]
    node = with_release(node_of(table, row), table, row, row["from"])
    value = next(iter(row["unless_values"]), "1")
    assert key not in faults_told(changed(node, {"settings": {row["unless"]: value}}), table)


@pytest.mark.parametrize("release", ["2.18.1", "2.24.3", "2.27.5", "2.28.7", "2.29.7"])
def test_faults_that_some_jobs_meet_are_one_finding_for_a_release(release):
    texts = words_of(
        changed(PLATFORMS["h100_infiniband"](), {"nccl": release}),
        "nccl-release-fault-of-some-jobs",
    )
    assert [text.split(" (")[0] for text in texts] == [f"NCCL {release}"]
    assert texts[0].count(";") >= 2


@pytest.mark.parametrize(("table", "key"), ROWS)
def test_a_single_report_that_nobody_confirmed_is_reported_as_info(table, key):
    row = catalogue().tables[table][key]
    whole = catalogue().tables[table].row
    confidence = row.get("confidence", whole["confidence"])
    sources = row.get("sources", ())
    assert sources, "a fault has a source of its own"
    assert confidence != "reported" or len(sources) > 1 or row["severity"] == "info"


@pytest.mark.parametrize("kind", PLATFORMS)
def test_newest_releases_have_no_known_fault(kind):
    loud = {
        rule: severity
        for rule, severity in found_on_node(PLATFORMS[kind]()).items()
        if rule.startswith(tuple(TABLES.values()))
    }
    assert {rule for rule, severity in loud.items() if severity != "info"} == set()
