"""Banners and build ids are found by the section headers, in any file."""

from __future__ import annotations

import os

import pytest
from fakes.node_tree import build_id_note, elf_file, kernel_module, nccl_library
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang_node.facts.parse.elf import (
    CHUNK_BYTES,
    find_banner,
    find_build_id,
    find_modinfo,
    find_net_interfaces,
    parse_build_id,
    read_sections,
)


def read(tmp_path, content, what):
    path = tmp_path / "file"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return what(descriptor, read_sections(descriptor))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("rodata", "expected"),
    [
        (b"NCCL version 2.21.5+cuda12.4\0", ("2.21.5", "12.4")),
        (
            b"x\0NCCL version mismatch\0NCCL version 2.27.3\0NCCL version 2.27.3+cuda12.9 %s\0",
            ("2.27.3", "12.9"),
        ),
        (b"NCCL version 2.25.1.post1+cuda12.8", ("2.25.1.post1", "12.8")),
        (b"NCCL version 2.4.8\0", ("2.4.8", None)),
        (b"NCCL version mismatch\0", None),
        (b"NCCL version 2." + b"1" * 5000 + b"+cuda12.4\0", ("2." + "1" * 35, None)),
        (b"", None),
    ],
)
def test_banner_is_the_version_that_the_library_was_built_as(tmp_path, rodata, expected):
    assert read(tmp_path, elf_file({".rodata": rodata}), find_banner) == expected


def test_banner_across_the_edge_of_a_chunk_is_found_whole(tmp_path):
    rodata = bytes(CHUNK_BYTES - 14) + b"NCCL version 2.19.3+cuda12.3\0"
    assert read(tmp_path, elf_file({".rodata": rodata}), find_banner) == ("2.19.3", "12.3")


def test_banner_outside_of_read_only_data_is_not_taken_for_the_version(tmp_path):
    assert (
        read(
            tmp_path,
            elf_file({".text": b"NCCL version 2.0.1+cuda9.0\0", ".rodata": b"\0"}),
            find_banner,
        )
        is None
    )


def bytes_read():
    with open("/proc/self/io", encoding="ascii") as source:
        return int(source.readline().split(":")[1])


def test_section_table_behind_much_device_code_is_found_without_reading_the_code(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(elf_file({".rodata": b"NCCL version 2.22.3+cuda12.5\0"}, filler_bytes=8 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        before = bytes_read()
        assert find_banner(descriptor, read_sections(descriptor)) == ("2.22.3", "12.5")
        assert bytes_read() - before < 1 << 20
    finally:
        os.close(descriptor)


def test_build_id_is_reported_in_hex(tmp_path):
    assert (
        read(tmp_path, nccl_library(build_id=bytes(range(20))), find_build_id)
        == bytes(range(20)).hex()
    )


@pytest.mark.parametrize(
    "note", [build_id_note(b"\1" * 20)[:-1], build_id_note(b"") + b"x" * 20, b"\0" * 32]
)
def test_broken_build_id_is_none(note):
    assert parse_build_id(note) is None


def test_modinfo_names_a_modules_version(tmp_path):
    assert read(tmp_path, kernel_module("535.154.05"), find_modinfo)["version"] == "535.154.05"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n",
        b"\x7fELF\x02\x01" + bytes(10),
        b"\x7fELF\x02\x01" + b"\xff" * 58,
        nccl_library()[:-10],
    ],
)
def test_no_elf_file_is_a_value_error(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match="ELF"):
            read_sections(descriptor)
    finally:
        os.close(descriptor)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=16), st.integers(0, len(nccl_library()) - 1))
def test_damaged_file_raises_value_error_or_gives_an_answer(tmp_path_factory, noise, place):
    content = bytearray(nccl_library())
    content[place : place + len(noise)] = noise
    path = tmp_path_factory.getbasetemp() / f"damaged-{os.getpid()}"
    path.write_bytes(bytes(content))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = read_sections(descriptor)
        find_banner(descriptor, found)
        find_build_id(descriptor, found)
    except ValueError:
        pass
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            b"\0ncclNetPlugin_v8\0ncclNetPlugin_v10\0ncclCollNetPlugin_v8\0ncclNetPlugin_v8\0",
            [8, 10],
        ),
        (b"\0ncclTunerPlugin_v4\0", []),
        (b"\0ncclNetPlugin_v\0ncclNetPlugin_v0\0ncclNetPlugin_v123\0ncclNetPlugin_v9x\0", []),
        (b"", []),
    ],
)
def test_interfaces_of_a_plugin_are_the_names_that_it_exports(tmp_path, names, expected):
    assert (
        read(
            tmp_path,
            elf_file({".dynstr": names, ".rodata": b"ncclNetPlugin_v3\0"}),
            find_net_interfaces,
        )
        == expected
    )
