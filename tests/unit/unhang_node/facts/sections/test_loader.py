"""The run-time linker's cache and configuration."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from fakes.node_tree import Link, ld_cache, plant

from unhang_node.base.section import Unread
from unhang_node.facts.parse.ld_so import parse_cache, parse_conf
from unhang_node.facts.sections.loader import find_in_loader, read_loader, taken_for

ENTRIES = [
    ("libnccl.so.2", "/opt/a/libnccl.so.2"),
    ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
    ("libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
]


def test_cache_gives_the_wanted_names_in_the_linkers_order():
    assert parse_cache(ld_cache(ENTRIES), ("libnccl.so",)) == [ENTRIES[0], ENTRIES[2]]


def test_cache_behind_an_old_one_is_found():
    old = b"ld.so-1.7.0\0" + (1).to_bytes(4, "little") + bytes(12) + bytes(4)
    assert parse_cache(old + ld_cache(ENTRIES), ("libc.so",)) == [ENTRIES[1]]


def test_libraries_of_32_bits_are_left_out():
    assert parse_cache(ld_cache(ENTRIES, flags=0x0003), ("libnccl",)) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"rubbish",
        ld_cache(ENTRIES)[:30],
        ld_cache(ENTRIES)[:80],
        b"glibc-ld.so.cache1.1" + b"\xff" * 40,
    ],
)
def test_broken_cache_is_a_value_error(content):
    with pytest.raises(ValueError, match=r"ld\.so\.cache"):
        parse_cache(content, ("lib",))


def test_the_real_cache_of_this_machine_agrees_with_ldconfig():
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin:/usr/bin")
    assert ldconfig, "every Linux with glibc has one"
    printed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    expected = [
        line.split(" => ")[1]
        for line in printed.splitlines()
        if line.strip().startswith("libc.so.6 ") and "64" in line
    ]
    with open("/etc/ld.so.cache", "rb") as source:
        assert [
            path
            for soname, path in parse_cache(source.read(), ("libc.so.6",))
            if soname == "libc.so.6"
        ] == expected


def test_conf_tells_folders_and_includes_apart():
    text = (
        "# first\ninclude /etc/ld.so.conf.d/*.conf\n/opt/nccl/lib  #"
        " why\n/usr/local/cuda/lib64/\nhwcap 0 nosegneg\n/a,/b:/c\n"
    )
    assert parse_conf(text) == [
        ("include", "/etc/ld.so.conf.d/*.conf"),
        ("folder", "/opt/nccl/lib"),
        ("folder", "/usr/local/cuda/lib64"),
    ] + [("folder", each) for each in ("/a", "/b", "/c")]


def test_first_in_the_cache_is_what_the_linker_takes(tmp_path):
    root = plant(
        tmp_path,
        {
            "/etc/ld.so.cache": ld_cache(ENTRIES),
            "/opt/a/libnccl.so.2": "x",
            "/usr/lib/x86_64-linux-gnu/libnccl.so.2": "y",
        },
    )
    loader = read_loader(root, Unread(), "libraries", [], ("libnccl",))
    assert taken_for(root, loader, "libnccl.so.2") == "/opt/a/libnccl.so.2"


def test_cached_file_that_is_gone_is_passed_over(tmp_path):
    root = plant(
        tmp_path,
        {"/etc/ld.so.cache": ld_cache(ENTRIES), "/usr/lib/x86_64-linux-gnu/libnccl.so.2": "y"},
    )
    loader = read_loader(root, Unread(), "libraries", [], ("libnccl",))
    assert taken_for(root, loader, "libnccl.so.2") == "/usr/lib/x86_64-linux-gnu/libnccl.so.2"


def test_library_in_a_configured_folder_is_found_though_ldconfig_was_not_run_but_is_not_what_the_linker_takes(
    tmp_path,
):
    files = {
        "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/nccl.conf": "/opt/nccl/lib\n",
        "/opt/nccl/lib/libnccl.so.2": "x",
    }
    root = plant(
        tmp_path,
        {**files, "/etc/ld.so.conf.d/backup.conf~": "/opt/old\n", "/opt/old/libnccl.so.2": "z"},
    )
    loader = read_loader(root, Unread(), "libraries", [], ("libnccl",))
    assert find_in_loader(loader, "libnccl.so") == ["/opt/nccl/lib/libnccl.so.2"]
    assert taken_for(root, loader, "libnccl.so.2") is None


def test_folder_and_its_link_count_once(tmp_path):
    root = plant(tmp_path, {"/usr/lib/libnccl.so.2": "x", "/lib": Link("usr/lib")})
    loader = read_loader(root, Unread(), "libraries", [], ("libnccl",))
    assert find_in_loader(loader, "libnccl.so") == ["/usr/lib/libnccl.so.2"]


def test_include_that_names_itself_ends(tmp_path):
    root = plant(
        tmp_path, {"/etc/ld.so.conf": "include /etc/ld.so.conf\n/opt/x\n", "/opt/x/libnccl.so": "x"}
    )
    assert "/opt/x" in read_loader(root, Unread(), "libraries", [], ("libnccl",)).folders
