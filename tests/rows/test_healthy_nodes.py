"""A healthy node of any kind has no finding above info."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from healthy_nodes import HEALTHY
from public_machines import MACHINES, public_node

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.check import check_schema
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view, judge_fragments
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world
from unhang_node.facts.collect import collect

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CATALOGUE = load_catalogue()
VIEW = catalogue_view(CATALOGUE.tables, tuple(rule.id for rule in CATALOGUE.rules), "2026-11-20")
LOUD = ("critical", "error", "warning")


def verdicts_on(document, verdicts, policy=None):
    """{(rule, verdict)} of node rules above info."""
    node = NodeView(
        "node1", ("training",), policy or {}, "ok", "", "", to_fragment(document["sections"])
    )
    loud = [rule for rule in CATALOGUE.rules if rule.scope == "node" and rule.severity in LOUD]
    found = ((rule, one) for rule in loud for one in judge_rule(rule, node_world(node, VIEW)))
    return {
        (rule.id, one.verdict)
        for rule, one in found
        if one.verdict in verdicts and (one.severity or rule.severity) in LOUD
    }


def real_8xh200():
    options = {
        "rootfs": str(FIXTURES / "roots" / "h200x8"),
        "nvml_recording": str(FIXTURES / "h200x8" / "nvml.json"),
        "collected_via": "local",
    }
    return collect(options, lambda: pytest.fail("a recording needs no NVML"))


def real_4xh200():
    return json.loads((FIXTURES / "h200x4" / "node.json").read_text())["facts"]


def real_1xh200():
    return json.loads((FIXTURES / "h200x1" / "node.json").read_text())


def one_file_2xh100():
    """As `unhang-collect.pyz` read them there on 2026-11-23."""
    return json.loads((FIXTURES / "h100x2" / "facts.json").read_text())


def one_file_8xh200():
    """As `unhang-collect.pyz` read them there on 2026-11-20."""
    return json.loads((FIXTURES / "h200x8" / "facts.json").read_text())


@pytest.mark.parametrize("kind", HEALTHY)
def test_facts_of_a_healthy_node_are_such_as_the_collector_gives(kind):
    assert list(check_schema(HEALTHY[kind](), "node-facts-1")) == []


@pytest.mark.parametrize("kind", HEALTHY)
def test_nothing_above_info_is_found_on_a_healthy_node_and_nothing_is_left_open(kind):
    assert verdicts_on(HEALTHY[kind](), ("fail", "unknown")) == set()


@pytest.mark.parametrize("kind", HEALTHY)
def test_equal_healthy_nodes_do_not_differ(kind):
    sections = HEALTHY[kind]()["sections"]
    rules = [rule for rule in CATALOGUE.rules if rule.scope != "node" and rule.severity in LOUD]
    answers = {
        rule.id: judge_fragments(rule, [sections, sections, sections], VIEW) for rule in rules
    }
    assert {rule: answer for rule, answer in answers.items() if answer in ("fail", "unknown")} == {}


@pytest.mark.parametrize("read", [real_8xh200, real_4xh200, one_file_8xh200, one_file_2xh100])
def test_facts_of_the_real_machines_fit_the_schema(read):
    assert list(check_schema(read(), "node-facts-1")) == []


@pytest.mark.parametrize(
    "read", [real_8xh200, real_4xh200, real_1xh200, one_file_8xh200, one_file_2xh100]
)
def test_nothing_above_info_is_found_on_the_real_machines(read):
    assert verdicts_on(read(), ("fail",)) == set()


KERNELS_OWN = {
    "kernel.pid_max": "32768",
    "kernel.threads-max": "1030000",
    "vm.max_map_count": "65530",
    "fs.file-max": "6500000",
    "vm.swappiness": "60",
}
UBUNTU = {
    **KERNELS_OWN,
    "kernel.pid_max": "4194304",
    "fs.file-max": "9223372036854775807",
    "net.ipv4.conf.all.rp_filter": "2",
    "kernel.yama.ptrace_scope": "1",
}
RED_HAT = {
    **UBUNTU,
    "net.ipv4.conf.all.rp_filter": "0",
    "kernel.yama.ptrace_scope": "0",
    "kernel.panic_on_oops": "1",
}


@pytest.mark.parametrize("kernel_settings", [KERNELS_OWN, UBUNTU, RED_HAT])
def test_settings_that_nobody_changed_are_silent_on_a_small_virtual_machine(kernel_settings):
    """Defaults of kernels without and with systemd's sysctl files, as rented machines have them."""
    document = HEALTHY["t4_cloud_vm"]()
    document["sections"]["node"]["cpu"]["logical_cpus"] = 16
    document["sections"]["limits"]["sysctls"].update(kernel_settings)
    assert verdicts_on(document, ("fail", "unknown")) == set()


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_above_info_is_found_on_a_public_machine_but_what_is_true_of_it(name):
    document = public_node(name)
    assert list(check_schema(document, "node-facts-1")) == []
    assert verdicts_on(document, ("fail", "unknown")) == set()


def test_only_what_the_recording_lacks_is_left_open_on_the_real_machine():
    """The recording of the 8xH200 holds no PCI identities, by which NVSwitches are known."""
    assert verdicts_on(real_8xh200(), ("unknown",)) == {("fabric-manager-not-running", "unknown")}


@pytest.mark.parametrize("kind", HEALTHY)
def test_the_same_nodes_are_not_silent_when_something_is_wrong_with_them(kind):
    """The test can fail: one fault that every kind of node can have."""
    document = HEALTHY[kind]()
    document["sections"]["kernel"]["reboot_required"] = True
    document["sections"]["kernel"]["reboot_reasons"] = ["linux-image"]
    assert ("kernel-reboot-required", "fail") in verdicts_on(document, ("fail",))
