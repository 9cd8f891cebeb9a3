"""The whole collector: sections, options, and the effect of a stuck source on the others."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from fakes.nvml_runs import H200X8, collect_in_process, schema_faults, write_recording

from unhang_node.facts.collect import (
    MINIMUM,
    SECTIONS,
    SOURCES,
    check_options,
    choose_sections,
    collect,
)
from unhang_node.facts.command import write_document

EVERYTHING = frozenset(SECTIONS)
COLLECTOR_FILES = sorted(
    (Path(__file__).resolve().parents[4] / "module_utils" / "unhang_node").rglob("*.py")
)


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        ([], EVERYTHING),
        (["all"], EVERYTHING),
        (["min"], {"node", "kernel"}),
        (["gpus"], {"node", "kernel", "gpus"}),
        (["!all", "gpus"], {"node", "kernel", "gpus"}),
        (["!all"], {"node", "kernel"}),
        (["!all", "!min"], set()),
        (["!all", "!min", "faults"], {"faults"}),
        (["!packages"], EVERYTHING - {"packages"}),
        (["!packages", "!nccl", "!torch"], EVERYTHING - {"packages", "nccl", "torch"}),
        (["gpus", "!gpus"], {"node", "kernel", "gpus"}),
        (["all", "!kernel"], EVERYTHING - {"kernel"}),
        (["gpus", "!min"], {"gpus"}),
    ],
)
def test_gather_subset_is_read_as_setup_reads_it(subset, expected):
    assert choose_sections(subset) == frozenset(expected)


@pytest.mark.parametrize("name", ["gpu", "!gpu", "ALL", "", "!", "node "])
def test_an_unknown_subset_says_what_was_found_and_what_is_allowed(name):
    with pytest.raises(ValueError, match="allowed are all, min, node, kernel") as caught:
        choose_sections(["gpus", name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p2p": "full"}, "unknown option p2p"),
        ({"p2p_matrix": "all"}, "must be one of read, full, and is 'all'"),
        ({"silence_s": -1}, "silence_s must be a number .* is -1"),
        ({"deadline_s": "soon"}, "deadline_s must be a number .* is 'soon'"),
        ({"deadline_s": float("nan")}, "deadline_s must be a number .* is nan"),
    ],
)
def test_options_that_make_no_sense_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        check_options(options)


def test_none_stands_for_the_default():
    assert check_options({"silence_s": None, "p2p_matrix": None})["silence_s"] == 4.0


@pytest.mark.parametrize("option", ["rootfs", "procfs", "sysfs"])
@pytest.mark.parametrize(
    ("name", "found"), [("missing", "missing"), ("file", "a file"), ("file/inside", "missing")]
)
def test_a_folder_that_is_not_there_is_refused_instead_of_read_as_an_empty_node(
    tmp_path, capfd, option, name, found
):
    (tmp_path / "file").write_text("")
    assert write_document({option: str(tmp_path / name)}) == 2
    assert capfd.readouterr() == (
        "",
        f"unhang collect: {option} must be a folder, and {tmp_path / name} is {found}\n",
    )


def test_each_layer_of_a_recorded_node_must_be_there(tmp_path):
    with pytest.raises(
        ValueError, match=f"rootfs must be a folder, and {tmp_path}/second is missing"
    ):
        collect({"rootfs": [str(tmp_path), str(tmp_path / "second")]}, load_pynvml=None)


def test_a_folder_that_may_not_be_examined_is_left_to_the_sections(tmp_path):
    endless = tmp_path / "link"
    endless.symlink_to(endless)
    document = collect(
        {
            "rootfs": [str(endless)],
            "gather_subset": ["!all"],
            "silence_s": 120.0,
            "deadline_s": 120.0,
        },
        load_pynvml=None,
    )
    assert document["sections"]["node"]["probe"]["unread"]


def test_every_section_has_one_source_that_decides_its_status():
    own = [section for _, _, sections, _ in SOURCES for section in sections]
    assert sorted(own) == sorted(SECTIONS)
    assert {section for _, _, _, adds in SOURCES for section in adds} <= set(SECTIONS)


@pytest.fixture(scope="module")
def whole_document():
    options = {"nvml_recording": str(H200X8), "silence_s": 120.0, "deadline_s": 120.0}
    return collect(options, load_pynvml=None)


def test_this_machine_gives_a_document_that_the_schema_accepts(whole_document):
    assert schema_faults(whole_document) == []
    assert list(whole_document["sections"]) == list(SECTIONS)
    assert whole_document["collector"]["recorded"] is True
    assert whole_document["collector"]["cut"] == []
    assert not [
        name
        for name, section in whole_document["sections"].items()
        if section["probe"]["status"] in ("error", "timeout")
    ]


def test_two_looks_have_the_same_keys_in_the_same_order(whole_document):
    again = collect(
        {"nvml_recording": str(H200X8), "silence_s": 120.0, "deadline_s": 120.0}, load_pynvml=None
    )
    for name, section in whole_document["sections"].items():
        assert list(section) == list(again["sections"][name]), name


def test_a_subset_reads_only_what_it_needs():
    document = collect(
        {"gather_subset": ["!all"], "silence_s": 120.0, "deadline_s": 120.0}, load_pynvml=None
    )
    assert list(document["sections"]) == list(MINIMUM)


def test_sixteen_gpus_fit_the_schema_and_the_size(tmp_path):
    recording = write_recording(tmp_path, device_count=16)
    document = collect(
        {
            "nvml_recording": str(recording),
            "silence_s": 120.0,
            "deadline_s": 120.0,
            "p2p_matrix": "full",
        },
        load_pynvml=None,
    )
    assert schema_faults(document) == []
    assert len(document["sections"]["interconnect"]["links"]) == 16 * 18
    assert document["collector"]["cut"] == []


def test_a_recording_that_is_none_is_named_with_its_place(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"devices": [')
    gpus = collect(
        {"nvml_recording": str(bad), "gather_subset": ["!all", "!min", "gpus"]}, load_pynvml=None
    )["sections"]["gpus"]["probe"]
    assert gpus["status"] == "error"
    assert "bad.json" in gpus["error"]
    assert "line 1" in gpus["error"]


# Imports first: the interpreter itself may lie where only root can read.
WITHOUT_ROOT = """
import os, sys
from unhang_node.facts.command import write_document
from unhang_node.facts.sources import kernel_log, libraries, nvml, processes, software, system
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
sys.exit(write_document({"silence_s": 120.0, "deadline_s": 120.0}))
"""


def test_without_root_the_document_is_as_valid():
    document = collect_in_process(command=[sys.executable, "-c", WITHOUT_ROOT])
    assert document["collector"]["as_root"] is False
    assert schema_faults(document) == []
    assert not [
        name
        for name, section in document["sections"].items()
        if section["probe"]["status"] == "timeout"
    ]


def test_the_collector_is_written_for_python_3_8():
    assert len(COLLECTOR_FILES) > 100
    for path in COLLECTOR_FILES:
        tree = ast.parse(path.read_text("utf-8"), str(path), feature_version=(3, 8))
        newer = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in ("removeprefix", "removesuffix")
        ]
        assert not newer, path
