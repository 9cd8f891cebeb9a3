"""How facts, evidence and situations are called in every output."""

from __future__ import annotations

import pytest

from unhang.audit.report import phrases


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("driver.loaded.version", "driver.loaded.version"),
        ("faults.events[0].codes", "faults.events.codes"),
        ("network.rdma[2].ports[0].state", "network.rdma.ports.state"),
        ("gpus.devices[5].error", "gpus.devices.error of GPU 5"),
        ("gpus.devices[0].processes | length", "number of gpus.devices.processes of GPU 0"),
        ("network.usable_interfaces | length", "number of network.usable_interfaces"),
        ("kernel.modules | map(attribute='name')", "kernel.modules (map(attribute='name'))"),
    ],
)
def test_a_fact_is_called_as_the_page_of_facts_calls_it(path, name):
    assert phrases.fact_name(path) == name


def test_rows_of_our_own_tables_are_no_evidence_and_a_hang_is_named_by_what_is_seen():
    finding = {
        "evidence": [
            {"path": "tables.xid_levels.fatal.codes", "value": [79]},
            {"path": "faults.events[0].codes", "value": [79]},
        ],
        "situations": [3, 1, 4],
    }
    assert phrases.evidence(finding) == [("faults.events.codes", "[79]")]
    assert phrases.situations(finding) == [
        "can look like: stuck while the trainer is created; an all-gather that times out; and 1"
        " other hang"
    ]
