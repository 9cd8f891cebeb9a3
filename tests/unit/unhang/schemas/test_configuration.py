"""The hash of a node's configuration: the same for two looks at one node, another for each fact that is marked config."""

from __future__ import annotations

import copy
import json

import pytest
from local_fleet import PROJECT

from unhang.schemas.configuration import config_hash, configuration, section_hashes

FACTS = json.loads((PROJECT / "tests" / "fixtures" / "h200x8" / "facts.json").read_text())


@pytest.fixture
def facts():
    return copy.deepcopy(FACTS)


def test_counters_samples_order_and_jobs_do_not_count(facts):
    sections = facts["sections"]
    sections["node"]["uptime_s"] = 12345
    sections["node"]["boot_id"] = "another"
    sections["gpus"]["devices"].reverse()
    sections["gpus"]["devices"][0]["temperature_c"] = 80
    sections["gpus"]["devices"][0]["ecc"]["corrected_volatile"] = 7
    sections["interconnect"]["links"][0]["errors"]["replay"] = 99
    sections["faults"]["events"] = [{"kind": "xid", "code": 79, "count": 1, "line": "NVRM: Xid"}]
    library = {"path": "/job/libnccl.so.2", "version": "2.20.5", "origin": "mapped", "where": "host"}
    sections["nccl"]["libraries"] = [*(sections["nccl"]["libraries"] or []), library]
    sections["driver"]["probe"]["duration_ms"] = 1e6
    facts["collector"]["collected_at"] = "2030-01-01T00:00:00Z"
    assert config_hash(facts) == config_hash(FACTS)


CHANGES = {
    "driver": lambda sections: sections["driver"]["loaded"].update(version="999.1"),
    "kernel": lambda sections: sections["kernel"].update(release="9.9.9"),
    "gpus": lambda sections: sections["gpus"]["devices"][3].update(uuid="GPU-swapped"),
    "network": lambda sections: sections["network"]["interfaces"][0].update(name="eth99"),
    "node": lambda sections: sections["node"].update(machine_id="0" * 32),
    "interconnect": lambda sections: sections["interconnect"]["by_gpu"][0].update(nvlinks_active=1),
    "limits": lambda sections: sections["limits"].update(numa_balancing=None),
}


@pytest.mark.parametrize("section", CHANGES)
def test_what_is_marked_config_or_identity_counts_and_its_section_is_named(facts, section):
    CHANGES[section](facts["sections"])
    assert config_hash(facts) != config_hash(FACTS)
    before, after = section_hashes(FACTS), section_hashes(facts)
    assert [name for name in before if before[name] != after.get(name)] == [section]


def test_only_what_is_marked_is_kept(facts):
    text = json.dumps(configuration(facts))
    for name in ("probe", "boot_id", "uptime_s", "temperature_c", "corrected_volatile", "memory_used_mib", "first_handle_ms"):
        assert f'"{name}"' not in text
    for name in ("uuid", "vbios", "release", "machine_id"):
        assert f'"{name}"' in text


def test_a_node_that_was_not_read_has_an_empty_configuration():
    assert configuration({}) == configuration({"sections": {"driver": {"probe": {"status": "timeout"}}}}) == {}
