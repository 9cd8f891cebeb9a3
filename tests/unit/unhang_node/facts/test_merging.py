"""Several sources, one section: fields merged, status by the section's own source, equal reasons
folded."""

from __future__ import annotations

import pytest

from unhang_node.base.probe import Piece, SourceResult
from unhang_node.facts.merging import fold_unread, merge_section


def answer(name, *pieces, status="ok", error=None, duration_ms=7.0):
    made = SourceResult(name)
    made.pieces = [
        Piece(section, fields, list(rows), None, None, 1.0, more)
        for section, fields, rows, more in pieces
    ]
    made.status, made.error, made.duration_ms = status, error, duration_ms
    return made


def failed_piece(name, section, status, error):
    made = answer(name)
    made.pieces = [Piece(section, {}, [], status, error, 1.0)]
    return made


def test_fields_of_several_sources_stand_side_by_side_in_the_order_of_the_sources():
    own = answer("nvml", ("gpus", {"count": 8, "model": None}, (), False))
    other = answer("system", ("gpus", {"pci_count": 9, "model": "H200", "count": 7}, (), False))
    section = merge_section("gpus", own, [other], {"system": ("pci_count",)})
    assert list(section) == ["probe", "count", "model", "pci_count"]
    assert (section["count"], section["model"], section["pci_count"]) == (8, "H200", 9)


def test_rows_of_one_gpu_become_one_row_and_other_lists_grow():
    own = answer(
        "nvml",
        (
            "gpus",
            {
                "devices": [{"index": 0, "uuid": "a"}, {"index": 1, "uuid": "b"}],
                "holders": [{"pid": 1}],
            },
            (),
            True,
        ),
        ("gpus", {"devices": [{"index": 1, "pcie": {"width_now": 16}, "uuid": "b"}]}, (), False),
    )
    other = answer("processes", ("gpus", {"holders": [{"pid": 1}, {"pid": 2}]}, (), False))
    section = merge_section("gpus", own, [other], {"processes": ("holders",)})
    assert section["devices"] == [
        {"index": 0, "uuid": "a"},
        {"index": 1, "uuid": "b", "pcie": {"width_now": 16}},
    ]
    assert section["holders"] == [{"pid": 1}, {"pid": 2}]


def test_a_library_found_twice_is_one_row():
    own = answer(
        "libraries",
        (
            "nccl",
            {"libraries": [{"path": "/a", "where": "host", "origin": "loader", "mapped_by": None}]},
            (),
            False,
        ),
    )
    other = answer(
        "processes",
        (
            "nccl",
            {
                "libraries": [
                    {"path": "/a", "where": "host", "origin": "mapped", "mapped_by": [{"pid": 3}]}
                ]
            },
            (),
            False,
        ),
    )
    section = merge_section("nccl", own, [other], {"processes": ()})
    assert section["libraries"] == [
        {"path": "/a", "where": "host", "origin": "loader", "mapped_by": [{"pid": 3}]}
    ]


def test_nvml_knows_better_whether_library_and_module_fit():
    own = answer("software", ("driver", {"mismatch": False, "branch": "580"}, (), False))
    other = answer(
        "nvml",
        ("driver", {"mismatch": True, "mismatch_text": "NVML said so", "branch": None}, (), False),
    )
    section = merge_section("driver", own, [other], {"nvml": ()})
    assert (section["mismatch"], section["mismatch_text"], section["branch"]) == (
        True,
        "NVML said so",
        "580",
    )


@pytest.mark.parametrize(
    ("pieces", "status", "expected"),
    [
        ([("gpus", {"count": 1}, (), False)], "ok", ("ok", None)),
        # complete before the stall, which hit another section
        ([("gpus", {"count": 1}, (), False)], "timeout", ("ok", None)),
        ([("gpus", {"count": 1}, (), True)], "timeout", ("timeout", "why")),
        ([], "timeout", ("timeout", "why")),
        ([], "absent", ("absent", "why")),
        ([], "ok", ("error", "source nvml ended without a word on it")),
    ],
)
def test_a_section_is_as_complete_as_its_own_source_got(pieces, status, expected):
    section = merge_section(
        "gpus",
        answer("nvml", *pieces, status=status, error=None if status == "ok" else "why"),
        [],
        {},
    )
    assert (section["probe"]["status"], section["probe"]["error"]) == expected


def test_another_source_that_failed_leaves_its_fields_unread_with_the_reason():
    own = answer("nvml", ("gpus", {"count": 8}, (), False))
    stuck = answer("system", status="timeout", error="read /sys/bus/pci did not return within 4 s")
    section = merge_section("gpus", own, [stuck], {"system": ("pci_count",)})
    assert section["probe"]["status"] == "ok"
    assert section["probe"]["unread"] == [
        {
            "field": "pci_count",
            "status": "timeout",
            "reason": "read /sys/bus/pci did not return within 4 s",
        }
    ]
    denied = merge_section(
        "gpus",
        own,
        [failed_piece("system", "gpus", "denied", "no right")],
        {"system": ("pci_count",)},
    )
    assert denied["probe"]["unread"] == [
        {"field": "pci_count", "status": "denied", "reason": "no right"}
    ]


def test_what_another_source_did_read_is_not_called_unread():
    own = answer("software", ("driver", {}, (), False))
    half = answer(
        "nvml",
        ("driver", {"cuda_version": "13.0", "gsp_firmware": None}, (), False),
        status="timeout",
        error="stuck",
    )
    section = merge_section("driver", own, [half], {"nvml": ("cuda_version", "gsp_firmware")})
    assert [row["field"] for row in section["probe"]["unread"]] == ["gsp_firmware"]


def test_not_a_number_is_null_with_a_reason():
    own = answer(
        "nvml", ("gpus", {"devices": [{"index": 0, "power_draw_w": float("nan")}]}, (), False)
    )
    section = merge_section("gpus", own, [], {})
    assert section["devices"] == [{"index": 0, "power_draw_w": None}]
    assert section["probe"]["unread"] == [
        {"field": "devices[*].power_draw_w", "status": "error", "reason": "no number that JSON has"}
    ]


def rows(fields, reason="NVML_ERROR_NOT_SUPPORTED from x", status="absent"):
    return [{"field": field, "status": status, "reason": reason} for field in fields]


def test_a_reason_of_every_device_is_reported_once():
    section = {"devices": [{}, {}, {}]}
    folded = fold_unread(rows([f"devices[{number}].fabric" for number in range(3)]), section)
    assert folded == rows(["devices[*].fabric"])


def test_a_reason_of_some_devices_names_them():
    section = {"devices": [{}, {}, {}]}
    assert fold_unread(rows(["devices[0].fabric", "devices[2].fabric"]), section) == rows(
        ["devices[0].fabric", "devices[2].fabric"]
    )
    mixed = rows(["devices[0].fabric", "devices[1].fabric"]) + rows(
        ["devices[2].fabric"], reason="other"
    )
    assert fold_unread(mixed, section) == mixed


def test_reasons_are_bounded_and_clean():
    folded = fold_unread(
        rows(
            [f"settings[{number}].value" for number in range(5000)], reason="\x1b[31m" + "x" * 5000
        ),
        {},
    )
    assert len(folded) == 512
    assert folded[-1]["reason"] == "4489 more reasons left out"
    assert all(len(row["reason"]) <= 1024 and row["reason"].isprintable() for row in folded)
