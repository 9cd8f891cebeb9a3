"""Section cuda: toolkits, forward compatibility, cuDNN and build tools, all from files."""

from __future__ import annotations

import json

import pytest
from fakes.node_tree import Link, context, dpkg_status, ld_cache, merged, plant

from unhang_node.facts.parse.cuda import (
    parse_cuda_header,
    parse_cudnn_header,
    parse_version_json,
    parse_version_txt,
    version_of_distro_package,
    version_of_folder,
)
from unhang_node.facts.sources import software

LIB = "/usr/lib/x86_64-linux-gnu/"
JSON = json.dumps(
    {
        "cuda": {"name": "CUDA SDK", "version": "12.4.1"},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": "12.4.131"},
    }
)
HEADER = "#ifndef X\n#define CUDA_VERSION 11080\n"


def read(tmp_path, files):
    return merged(software.read(context(plant(tmp_path, files), ["cuda"])), "cuda")


def test_toolkits_and_the_default_one(tmp_path):
    files = {
        "/usr/local/cuda-12.4/version.json": JSON,
        "/usr/local/cuda-12.4/bin/nvcc": "x",
        "/usr/local/cuda-11.8/include/cuda.h": HEADER,
    }
    section, unread = read(
        tmp_path,
        {
            **files,
            "/usr/local/cuda": Link("/etc/alternatives/cuda"),
            "/etc/alternatives/cuda": Link("/usr/local/cuda-12.4"),
        },
    )
    assert section["toolkits"] == [
        {"path": "/usr/local/cuda-12.4", "version": "12.4.1", "is_default": True, "nvcc": True},
        {"path": "/usr/local/cuda-11.8", "version": "11.8", "is_default": False, "nvcc": False},
    ]
    assert section["default"] == {"path": "/usr/local/cuda-12.4", "version": "12.4.1"}
    assert section["build_tools"]["nvcc"] == {
        "path": "/usr/local/cuda-12.4/bin/nvcc",
        "version": "12.4.1",
    }
    assert [row["field"] for row in unread] == ["forward_compat"]


def test_node_without_cuda_has_empty_lists_and_false(tmp_path):
    section, _unread = read(tmp_path, {"/usr/": ""})
    assert (section["toolkits"], section["default"], section["cudnn"]) == ([], None, [])
    tools = section["build_tools"]
    assert [
        tools[name] for name in ("has_compiler", "has_ninja", "has_nvcc", "python_headers")
    ] == [False] * 4


def test_distributions_toolkit_counts(tmp_path):
    files = {
        "/usr/bin/nvcc": "x",
        "/var/lib/dpkg/status": dpkg_status({"nvidia-cuda-toolkit": "12.0.140~12.0.1-4build4"}),
    }
    section, _unread = read(tmp_path, files)
    assert section["toolkits"] == [
        {"path": "/usr", "version": "12.0.1", "is_default": True, "nvcc": True}
    ]
    assert section["build_tools"]["nvcc"]["path"] == "/usr/bin/nvcc"


def test_toolkit_without_a_version_file_is_null_with_a_reason(tmp_path):
    section, unread = read(tmp_path, {"/usr/local/cuda/bin/nvcc": "x"})
    assert section["toolkits"][0]["version"] is None
    assert unread[0]["field"] == "toolkits[/usr/local/cuda].version"


def test_forward_compatibility_is_told_when_the_linker_takes_it_first(tmp_path):
    compat = "/usr/local/cuda-12.4/compat/"
    files = {
        compat + "libcuda.so.550.54.15": "x",
        compat + "libcuda.so.1": Link("libcuda.so.550.54.15"),
        LIB + "libcuda.so.1": "y",
    }
    first = ld_cache(
        [("libcuda.so.1", compat + "libcuda.so.1"), ("libcuda.so.1", LIB + "libcuda.so.1")]
    )
    section, _unread = read(tmp_path / "a", {**files, "/etc/ld.so.cache": first})
    assert section["forward_compat"] == {"path": compat + "libcuda.so.550.54.15", "version": "12.4"}
    second = ld_cache(
        [("libcuda.so.1", LIB + "libcuda.so.1"), ("libcuda.so.1", compat + "libcuda.so.1")]
    )
    section, _unread = read(tmp_path / "b", {**files, "/etc/ld.so.cache": second})
    assert section["forward_compat"] is None


def test_cudnn_is_told_by_its_file_or_else_by_its_header(tmp_path):
    library = {
        LIB + "libcudnn.so.9.14.0": "x",
        LIB + "libcudnn.so.9": Link("libcudnn.so.9.14.0"),
        LIB + "libcudnn_ops.so.9": "x",
    }
    section, _unread = read(tmp_path / "a", library)
    assert section["cudnn"] == [{"path": LIB + "libcudnn.so.9.14.0", "version": "9.14.0"}]
    header = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 2\n"
    section, _unread = read(tmp_path / "b", {"/usr/include/cudnn_version.h": header})
    assert section["cudnn"] == [{"path": "/usr/include/cudnn_version.h", "version": "8.9.2"}]


def test_build_tools_are_reported_with_the_versions_of_their_packages(tmp_path):
    files = {
        "/usr/bin/gcc": Link("gcc-12"),
        "/usr/bin/gcc-12": "x",
        "/usr/bin/g++": Link("x86_64-linux-gnu-g++-11"),
        "/usr/bin/x86_64-linux-gnu-g++-11": "x",
        "/usr/bin/ninja": "x",
        "/usr/include/python3.10/Python.h": "x",
        "/var/lib/dpkg/status": dpkg_status(
            {"gcc-12": "12.2.0-14+deb12u1", "gcc": "4:12.2.0-3", "ninja-build": "1.11.1-2~deb12u1"}
        ),
    }
    section, unread = read(tmp_path, files)
    tools = section["build_tools"]
    assert tools["gcc"] == {"path": "/usr/bin/gcc", "version": "12.2.0"}
    assert tools["gxx"] == {"path": "/usr/bin/g++", "version": "11"}
    assert tools["ninja"] == {"path": "/usr/bin/ninja", "version": "1.11.1"}
    assert tools["make"] is None
    assert (tools["has_compiler"], tools["has_ninja"], tools["python_headers"]) == (
        True,
        True,
        True,
    )
    assert [row["field"] for row in unread] == ["forward_compat"]


def test_toolkit_on_a_network_file_system_is_left_alone(tmp_path):
    mounts = "9 1 0:1 / / rw - ext4 x rw\n8 9 0:2 / /nfs rw - nfs4 s:/ rw\n"
    files = {
        "/proc/self/mountinfo": mounts,
        "/usr/local/cuda": Link("/nfs/cuda"),
        "/nfs/cuda/version.json": JSON,
    }
    section, unread = read(tmp_path, files)
    assert section["toolkits"] == []
    assert "nfs4 at /nfs" in unread[0]["reason"]


@pytest.mark.parametrize(
    ("parse", "text", "version"),
    [
        (parse_version_txt, "CUDA Version 10.2.89\n", "10.2.89"),
        (parse_version_txt, "nothing", None),
        (parse_cuda_header, "#define CUDA_VERSION 13000", "13.0"),
        (parse_cuda_header, "#define CUDA_VERSION 9020", "9.2"),
        (parse_cuda_header, "", None),
        (parse_cudnn_header, "#define CUDNN_MAJOR 9", None),
        (version_of_folder, "cuda-12.4", "12.4"),
        (version_of_folder, "cuda", None),
        (version_of_distro_package, "11.8.89~11.8.0-5~deb12u1", "11.8.0"),
        (version_of_distro_package, None, None),
    ],
)
def test_versions_are_read_out_of_texts(parse, text, version):
    assert parse(text) == version


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_broken_version_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse_version_json(text)


@pytest.mark.parametrize("text", ['{"cuda": 1}', '{"cuda": {"version": 12}}', '{"cuda": {}}', "{}"])
def test_odd_version_json_has_no_version(text):
    assert parse_version_json(text) == (None, None)
