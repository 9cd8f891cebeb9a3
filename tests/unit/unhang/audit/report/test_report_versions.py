"""Versions of a node, and their distribution over a fleet."""

from __future__ import annotations

import fleets

from unhang.audit.report.versions import drift, versions_of


def test_versions_are_read_from_the_sections_that_have_them():
    sections = fleets.h200()
    sections["gpus"]["devices"][0]["vbios"] = "96.00.A5.00.1A"
    sections["gpus"]["devices"][1]["vbios"] = "96.00.A5.00.1B"
    sections["network"]["rdma"][0] |= {"board": "MT_0838", "firmware": "28.39.3560"}
    sections["cuda"] = {"default": {"version": "12.8"}}
    sections["torch"] = {"environments": [{"torch": "2.9.1+cu128"}, {"torch": None}]}
    sections["driver"]["gsp_firmware"] = {"version": "570.133.20"}
    sections["node"] = {"dmi": {"bios_version": "2.4"}}
    assert versions_of(sections) == {
        "driver": "570.133.20",
        "kernel": "6.8.0-57-generic",
        "NCCL": "2.26.2+cuda12.8",
        "CUDA toolkit": "12.8",
        "torch": "2.9.1+cu128",
        "GSP firmware": "570.133.20",
        "BIOS": "2.4",
        "VBIOS, NVIDIA H200": "96.00.A5.00.1A, 96.00.A5.00.1B",
        "NIC firmware, MT_0838": "28.39.3560",
    }


def test_what_is_of_a_wrong_type_or_absent_has_no_version():
    assert versions_of({}) == {}
    assert (
        versions_of(
            {
                "driver": [],
                "gpus": {"devices": [1, {"vbios": 7}]},
                "nccl": {"libraries": "x"},
                "node": {"dmi": None},
            }
        )
        == {}
    )


def test_a_drift_names_the_usual_version_and_its_outliers_by_node():
    shown = drift(
        {
            f"gpu{number}": {"driver": "580.1" if number != 10 else "545.2", "kernel": "6.8"}
            for number in range(12)
        }
    )
    assert [(one.name, one.nodes, one.drifts) for one in shown] == [
        ("driver", 12, True),
        ("kernel", 12, False),
    ]
    assert [(row.version, row.usual, row.hosts[-1]) for row in shown[0].versions] == [
        ("580.1", True, "gpu11"),
        ("545.2", False, "gpu10"),
    ]


def test_no_version_is_usual_where_two_are_as_frequent():
    (shown,) = drift({"a": {"kernel": "6.8"}, "b": {"kernel": "5.4"}})
    assert [row.usual for row in shown.versions] == [False, False]
