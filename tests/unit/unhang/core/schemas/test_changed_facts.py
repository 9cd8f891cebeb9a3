"""The facts of a node's configuration that have changed, each with both values; measured facts and
jobs do not count."""

from __future__ import annotations

import copy
import json

import pytest

from unhang.core.run.documents import to_fragment
from unhang.core.schemas.configuration import changed_facts, hash_of_sections

SECTIONS = {
    "node": {
        "probe": {"status": "ok", "duration_ms": 3},
        "hostname": "gpu1",
        "boot_id": "b1",
        "uptime_s": 10.5,
        "secure_boot": False,
    },
    "driver": {
        "probe": {"status": "ok"},
        "loaded": {"is_loaded": True, "version": "545.23.08"},
        "parameters": {"EnableMSI": "1", "Mobile": "0"},
        "mismatch": False,
    },
    "gpus": {
        "probe": {"status": "ok"},
        "count": 1,
        "devices": [{"index": 0, "uuid": "GPU-0", "processes": [{"pid": 1, "user": "ada"}]}],
    },
    "network": {
        "probe": {
            "status": "ok",
            "unread": [{"field": "rdma[*].firmware", "status": "denied", "reason": "root only"}],
        },
        "rdma": [{"name": "mlx5_0"}],
    },
}


def after(change):
    """The sections after a change."""
    sections = copy.deepcopy(SECTIONS)
    change(sections)
    return sections


@pytest.mark.parametrize(
    "change",
    [
        lambda now: now["node"].update(uptime_s=99999.0, boot_id="b2"),
        lambda now: now["driver"].update(mismatch=True),
        lambda now: now["gpus"]["devices"][0]["processes"].clear(),
        lambda now: now["node"]["probe"].update(duration_ms=77),
        lambda now: now["driver"].update(parameters={"Mobile": "0", "EnableMSI": "1"}),
    ],
)
def test_samples_and_the_order_of_keys_are_no_configuration(change):
    assert hash_of_sections(after(change)) == hash_of_sections(SECTIONS)
    assert changed_facts(SECTIONS, after(change)) == []


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (
            lambda now: now["driver"]["loaded"].update(version="580.65.06"),
            "driver.loaded.version: 545.23.08 then, 580.65.06 now",
        ),
        (
            lambda now: now["node"].update(secure_boot=True),
            "node.secure_boot: false then, true now",
        ),
        (
            lambda now: now["driver"]["parameters"].update(Mobile="1"),
            "driver.parameters.Mobile: 0 then, 1 now",
        ),
        (
            lambda now: now["gpus"]["devices"][0].update(uuid="GPU-9"),
            "gpus.devices[0].uuid: GPU-0 then, GPU-9 now",
        ),
        (
            lambda now: now["gpus"]["devices"].append({"index": 1}),
            "gpus.devices: 1 entries then, 2 entries now",
        ),
        (
            lambda now: now["driver"].update(loaded={"is_loaded": True}),
            "driver.loaded.version: 545.23.08 then, nothing now",
        ),
        (
            lambda now: now["network"]["rdma"][0].update(driver="mlx5_core"),
            "network.rdma[0].driver: nothing then, mlx5_core now",
        ),
    ],
)
def test_a_fact_that_changed_is_named_with_both_values(change, shown):
    assert hash_of_sections(after(change)) != hash_of_sections(SECTIONS)
    assert changed_facts(SECTIONS, after(change)) == [shown]


def test_an_object_that_is_gone_is_named_by_its_facts():
    gone = after(lambda now: now["driver"].update(loaded=None))
    assert changed_facts(SECTIONS, gone) == [
        "driver.loaded.is_loaded: true then, nothing now",
        "driver.loaded.version: 545.23.08 then, nothing now",
    ]
    assert changed_facts(gone, SECTIONS) == [
        "driver.loaded.is_loaded: nothing then, true now",
        "driver.loaded.version: nothing then, 545.23.08 now",
    ]


def test_rows_of_a_job_and_the_order_of_reading_are_no_change():
    then = after(
        lambda now: now.update(
            nccl={
                "probe": {"status": "ok"},
                "settings": [
                    {"name": "A", "source": "environment"},
                    {"name": "B", "source": "profile"},
                ],
            }
        )
    )
    now = after(
        lambda now: now.update(
            nccl={
                "probe": {"status": "ok"},
                "settings": [{"name": "C", "source": "process"}, *then["nccl"]["settings"][::-1]],
            }
        )
    )
    assert hash_of_sections(now) == hash_of_sections(then)


def test_what_could_not_be_read_then_is_no_change_now():
    now = after(lambda now: now["network"]["rdma"][0].update(firmware="28.39"))
    assert hash_of_sections(now) != hash_of_sections(SECTIONS)
    assert changed_facts(SECTIONS, now) == []


def test_a_section_that_was_denied_then_is_no_change_now():
    then = after(lambda now: now.update(limits={"probe": {"status": "denied"}}))
    now = after(lambda now: now.update(limits={"probe": {"status": "ok"}, "hugepages_total": 0}))
    assert changed_facts(then, now) == []
    assert changed_facts(now, then) == ["limits.hugepages_total: 0 then, nothing now"]


def test_typed_and_plain_facts_have_one_digest():
    assert hash_of_sections(to_fragment(json.loads(json.dumps(SECTIONS)))) == hash_of_sections(
        SECTIONS
    )


def test_a_fact_that_an_older_collector_did_not_write_is_no_change_and_one_that_was_null_is():
    older, with_null = copy.deepcopy(SECTIONS), copy.deepcopy(SECTIONS)
    del older["driver"]["loaded"]["version"]
    with_null["driver"]["loaded"]["version"] = None
    assert changed_facts(older, SECTIONS) == []
    assert changed_facts(with_null, SECTIONS) == [
        "driver.loaded.version: nothing then, 545.23.08 now"
    ]
    assert changed_facts(SECTIONS, older) == ["driver.loaded.version: 545.23.08 then, nothing now"]
    del older["driver"]["parameters"]["Mobile"]  # a key that is data: the parameter was not there
    assert changed_facts(older, SECTIONS) == ["driver.parameters.Mobile: nothing then, 0 now"]
