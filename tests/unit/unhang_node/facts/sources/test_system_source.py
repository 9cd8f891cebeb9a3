"""Every recorded node fills every field of the schema, and a file with any content costs only its
own field."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from recorded_roots import (
    NAMES,
    PRIMARY,
    SECTIONS,
    complaints,
    copied,
    facts,
    fields,
    place,
    read,
    write,
)

from unhang_node.base.context import DEFAULTS, Context
from unhang_node.base.root import Root
from unhang_node.facts.sources import system

OF_THE_JUDGE = {"earlier", "clock_ahead_s"}  # what the judge adds to a node's facts


@pytest.fixture
def open_folder():
    """A folder that any user may enter, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_node_answers_as_the_schema_says(name):
    for section, (fragment, rows) in read(place(name)).items():
        if isinstance(fragment, dict):
            assert complaints(section, fragment, rows.values()) == []
            if section in PRIMARY:
                assert set(fragment) == fields(section) - OF_THE_JUDGE


def test_this_machine_answers_as_the_schema_says():
    answers = read(Root())
    assert set(answers) == set(SECTIONS)
    for section, (fragment, rows) in answers.items():
        if isinstance(fragment, dict):
            assert complaints(section, fragment, rows.values()) == []
        else:
            # a container without /dev/kmsg, or a user who may not read it
            assert section == "faults", fragment
    assert answers["node"][0]["hostname"] == os.uname().nodename
    assert answers["kernel"][0]["release"] == os.uname().release


def test_only_wanted_sections_are_read():
    assert list(read(place("h200x8"), ("limits",))) == ["limits"]


def test_a_node_without_any_file_is_null_with_reasons_and_no_error(tmp_path):
    answers = read(tmp_path)
    for section in SECTIONS[:-1]:
        fragment, rows = answers[section]
        assert complaints(section, fragment, rows.values()) == []
        assert rows
    assert answers["gpus"][0] == {"pci_count": None}
    assert answers["network"][0]["has_infiniband"] is None
    assert answers["limits"][0]["swap_total_bytes"] is None
    assert answers["kernel"][0]["reboot_required"] is None


def test_links_in_a_circle_and_folders_in_place_of_files_cost_their_own_fields_alone(tmp_path):
    folder = copied("rdma-h100", tmp_path)
    for number, path in enumerate(
        sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    ):
        path.unlink()
        if number % 2:
            path.symlink_to(path.name)
        else:
            path.mkdir()
    for section, (fragment, rows) in read(folder).items():
        assert isinstance(fragment, dict) or section == "faults", (section, fragment)
        if isinstance(fragment, dict):
            assert complaints(section, fragment, rows.values()) == []


def test_a_damaged_file_leaves_its_neighbours(tmp_path):
    folder = copied("h200x8", tmp_path)
    write(folder, "/proc/uptime", "soon\n")
    fragment, rows = read(folder, ("node",))["node"]
    assert fragment["uptime_s"] is None
    assert rows["uptime_s"]["status"] == "error"
    assert "soon" in rows["uptime_s"]["reason"]
    assert fragment["hostname"] == "vm"


def test_what_may_not_be_read_says_denied(open_folder):
    folder = copied("a6000x3-kernel-5.4", open_folder)
    for path in (
        "/etc/machine-id",
        "/boot/grub/grub.cfg",
        "/proc/sys/kernel/tainted",
        "/proc/812/limits",
        "/sys/module/nvidia/parameters/NVreg_OpenRmEnableUnsupportedGpus",
    ):
        Path(str(folder) + path).chmod(0)
    Path(str(folder) + "/var/lib/dkms").chmod(0)
    as_root = os.geteuid() == 0
    if as_root:
        os.seteuid(65534)
    try:
        answers = read(folder)
    finally:
        if as_root:
            os.seteuid(0)
    Path(str(folder) + "/var/lib/dkms").chmod(0o755)
    kernel, rows = answers["kernel"]
    assert answers["node"][1]["machine_id"]["status"] == "denied"
    assert rows["taints"]["status"] == "denied"
    assert rows["boot.default_entry"]["status"] == "denied"
    assert rows["modules[nvidia].parameters"]["status"] == "denied"
    assert rows["dkms"]["status"] == "denied"
    assert answers["limits"][1]["scopes[sshd]"]["status"] == "denied"
    assert kernel["boot"]["default_release"] is None
    assert kernel["boot"]["one_shot_pending"] is True
    assert kernel["release"] == "5.4.0-182-generic"


def test_each_file_is_named_before_it_is_opened():
    marks = []
    ctx = Context(
        Root([str(place("h200x8"))]), DEFAULTS, ["node", "network"], None, mark=marks.append
    )
    list(system.read(ctx))
    assert "open /etc/os-release" in marks
    assert "open /sys/class/net/eth0/speed" in marks


def test_sections_come_one_by_one_so_that_a_stall_costs_only_what_follows(tmp_path):
    folder = copied("h200x8", tmp_path)
    ctx = Context(Root([str(folder)]), DEFAULTS, SECTIONS, None)
    answers = system.read(ctx)
    assert next(answers)[0] == "node"
    shutil.rmtree(folder / "sys")
    assert {section: fragment for section, fragment, _rows in answers}["gpus"] == {
        "pci_count": None
    }


def test_reasons_name_the_nodes_own_paths_not_where_the_recording_lies(tmp_path):
    for fragment, rows in read(tmp_path).values():
        for row in rows.values():
            assert str(tmp_path) not in row["reason"], row
        assert str(tmp_path) not in str(fragment)


def test_a_recorded_file_system_size_that_is_missing_is_not_taken_from_this_machine(tmp_path):
    folder = copied("h200x8", tmp_path)
    (folder / ".unhang/space.json").unlink()
    assert facts(folder, "limits")["shm"] is None


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"/dev/shm": 3}', '{"/dev/shm": {"size_bytes": "x"}}']
)
def test_a_malformed_record_of_sizes_is_an_error_of_that_field(tmp_path, text):
    folder = copied("h200x8", tmp_path)
    write(folder, "/.unhang/space.json", text)
    fragment, rows = read(folder, ("limits",))["limits"]
    assert fragment["shm"] is None
    assert rows["shm"]["status"] in ("error", "absent")
    assert fragment["numa_balancing"] is False
