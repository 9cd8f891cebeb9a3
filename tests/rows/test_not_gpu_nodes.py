"""A node on which nothing was looked at is not healthy: the GPUs on the bus, in the driver and in
/dev are compared, and a node without any is no GPU node in every output."""

from __future__ import annotations

import json

import pytest
from judge_cases import OK, node, write_run

from unhang.act.gate.deciding import FAIL, Observation, decide
from unhang.audit.commands.fail_on import exit_code
from unhang.audit.report.exports import render_junit
from unhang.audit.report.filtering import Filter, narrowed
from unhang.audit.report.html import render_html
from unhang.audit.report.prometheus import render_prometheus
from unhang.audit.report.screen import render_screen
from unhang.core.run.run_input import read_run_input
from unhang.core.schemas.check import check_schema
from unhang.judge.fleet.judging import judge_run
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.triage.run_judging import conclusion

ABSENT = {"probe": {"status": "absent", "error": "no NVIDIA driver"}}
RULES = ("driver-not-loaded", "driver-shows-no-gpu", "gpu-fell-off-the-bus")


def facts(on_bus, in_driver=None, loaded=None, files=None, kind="none", **more):
    """The sections that tell how many GPUs a node has. loaded: None without any driver."""
    gpus = ABSENT if in_driver is None else {"probe": OK, "count": in_driver}
    machine = {"kind": kind, "is_vm": False, "is_container": kind != "none"}
    driver = {
        "probe": OK,
        "loaded": {"is_loaded": loaded, "version": "580.95.05" if loaded else None},
        "install_method": "none",
        "device_nodes": [
            {"path": f"/dev/nvidia{number}", "open_to_all": True} for number in range(files or 0)
        ],
    }
    return {
        "gpus": {**gpus, "pci_count": on_bus},
        "driver": ABSENT if loaded is None else driver,
        "node": {"probe": OK, "virtualization": machine},
        "kernel": {"probe": OK, "release": "6.8.0-85-generic", "modules": []},
        **more,
    }


def judged(tmp_path, **by_host):
    """findings.json of these nodes, by the catalogue."""
    catalogue = load_catalogue()
    run = write_run(tmp_path / "run", *(node(host, one) for host, one in by_host.items()))
    judge_run(read_run_input(run), catalogue, "2026-06-01", conclude=conclusion(catalogue.rules))
    found = json.loads((run / "findings.json").read_text())
    assert list(check_schema(found, "findings-1")) == []
    return found


def test_gpus_on_the_bus_in_the_driver_and_in_dev_are_compared(tmp_path):
    found = judged(
        tmp_path,
        no_driver=facts(8, loaded=False),
        container=facts(8, loaded=True, files=0, kind="docker"),
        fell_off=facts(0, in_driver=0, loaded=True, files=8),
        one_lost=facts(8, in_driver=7, loaded=True, files=8),
        whole=facts(8, in_driver=8, loaded=True, files=8),
        some=facts(8, in_driver=2, loaded=True, files=2, kind="docker"),
        wsl=facts(0, in_driver=1, loaded=False, kind="wsl"),
    )
    by_host = {
        one["host"]: (one["rule"], one["severity"])
        for one in found["findings"]
        if one["verdict"] == "fail" and one["rule"] in RULES
    }
    assert by_host == {
        "no_driver": ("driver-not-loaded", "error"),
        "container": ("driver-shows-no-gpu", "error"),
        "fell_off": ("driver-shows-no-gpu", "error"),
        "one_lost": ("gpu-fell-off-the-bus", "critical"),
    }
    assert not set(by_host) & set(found["node_verdicts"]["healthy"])
    assert found["node_verdicts"]["not a GPU node"] == []


def test_a_login_node_is_counted_as_itself_in_every_output(tmp_path):
    found = judged(tmp_path, gpu1=facts(8, in_driver=8, loaded=True, files=8), login1=facts(0))
    assert found["node_verdicts"]["not a GPU node"] == ["login1"]
    assert "login1" not in found["node_verdicts"]["healthy"]
    applied, rules = found["without_gpus"]["login1"], found["catalogue"]["rules"]
    assert 0 < applied < rules / 2
    shown = " ".join(render_screen(found).split())
    assert "2 nodes: " in shown
    assert "1 not a GPU node" in shown
    assert f"login1: no NVIDIA GPU and no driver: {applied} of {rules} checks applied" in shown
    junit = render_junit(found)
    assert 'skipped="1"' in junit
    assert "checks applied" in junit
    assert 'unhang_nodes{verdict="not a GPU node"} 1.0' in render_prometheus(found)
    assert exit_code({**found, "totals_by_severity": {}}, "warning") == 0
    only = narrowed(found, Filter(hosts=frozenset(["gpu1"])))
    assert (only["without_gpus"], only["node_verdicts"]["not a GPU node"]) == ({}, [])


@pytest.mark.parametrize("driver", [None, False])
def test_a_run_without_any_gpu_node_does_not_end_with_0(tmp_path, driver):
    """Also with the driver's packages on a node that has no GPU for them."""
    found = judged(tmp_path, laptop=facts(0, loaded=driver))
    assert found["node_verdicts"]["not a GPU node"] == ["laptop"]
    assert exit_code(found, "warning") == 1
    assert exit_code(found, "critical") == 0


def test_the_gate_admits_no_node_without_gpus(tmp_path):
    found = judged(tmp_path, login1=facts(0))
    passed = {"login1": {"verdict": "pass", "suspects": [], "hosts": []}}
    for quick in (True, False):
        seen = Observation(found, passed, None, None, ("critical",), quick)
        (decided,) = decide(["login1"], seen).values()
        assert decided["outcome"] == FAIL
        assert decided["reasons"][0].startswith("audit: not a GPU node")


def test_the_page_has_the_number_of_checks_also_for_a_node_with_another_finding(tmp_path):
    login = facts(0)
    login["limits"] = {"probe": {"status": "ok"}, "not_mounted": ["/home"]}
    found = judged(tmp_path, gpu1=facts(8, in_driver=8, loaded=True, files=8), login1=login)
    applied, rules = found["without_gpus"]["login1"], found["catalogue"]["rules"]
    (run,) = (path.parent for path in tmp_path.rglob("findings.json"))
    page = render_html(run)
    assert f"login1: no NVIDIA GPU and no driver: {applied} of {rules} checks applied" in page
