"""The hash of a node's configuration: the same for two readings of one node, and different for each
change of a fact that is marked config."""

from __future__ import annotations

import copy
import hashlib
import json

import msgspec
import pytest
from local_fleet import PROJECT

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.configuration import (
    config_hash,
    hash_of_sections,
    section_hashes,
    sections_type,
)

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
    library = {
        "path": "/job/libnccl.so.2",
        "version": "2.20.5",
        "origin": "mapped",
        "where": "host",
    }
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
    text = msgspec.json.encode(msgspec.convert(facts["sections"], sections_type())).decode()
    for name in (
        "probe",
        "boot_id",
        "uptime_s",
        "temperature_c",
        "corrected_volatile",
        "memory_used_mib",
        "first_handle_ms",
    ):
        assert f'"{name}"' not in text
    for name in ("uuid", "vbios", "release", "machine_id"):
        assert f'"{name}"' in text


def test_a_node_that_was_not_read_has_an_empty_configuration():
    assert (
        section_hashes({})
        == section_hashes({"sections": {"driver": {"probe": {"status": "timeout"}}}})
        == {}
    )


def test_the_bytes_that_are_hashed_are_those_that_earlier_versions_hashed():
    # Admission records and plans hold such hashes: were the bytes others, every node would have
    # changed.
    scopes = [
        {"scope": "slurmd", "memlock_soft_bytes": 1},
        {"scope": "login", "memlock_soft_bytes": None},
    ]
    sections = {
        "kernel": {
            "probe": {"status": "ok"},
            "release": "6.8.0",
            "out_of_tree": ["nvidia_uvm", "nvidia"],
            "dkms": [],
        },
        "limits": {"scopes": scopes, "numa_balancing": False, "sysctls": {"b": "1", "a": "é\n"}},
        "gpus": {"probe": {"status": "denied"}, "count": None},
    }
    text = (
        'kernel\nrelease\n"6.8.0"\nout_of_tree\n"nvidia"\n"nvidia_uvm"\ndkms\n'
        'limits\nscopes\n{"scope":"login"}\n{"scope":"slurmd","memlock_soft_bytes":1}\nnuma_balancing\nfalse\nsysctls\n{"a":"é\\n","b":"1"}'
    )
    assert hash_of_sections(sections) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert hash_of_sections(to_fragment(sections)) == hash_of_sections(sections)


@pytest.mark.parametrize(
    "rows", [[], [None], [{"path": "/usr/lib/libnccl.so.2", "origin": "package", "where": "host"}]]
)
def test_a_row_of_a_running_process_does_not_count_whatever_row_is_first(rows):
    of_a_job = {"path": "/job/libnccl.so.2", "origin": "mapped", "where": "host"}
    assert hash_of_sections({"nccl": {"libraries": [*rows, of_a_job]}}) == hash_of_sections(
        {"nccl": {"libraries": rows}}
    )
    assert hash_of_sections({"nccl": {"libraries": [of_a_job, *rows]}}) == hash_of_sections(
        {"nccl": {"libraries": rows}}
    )
