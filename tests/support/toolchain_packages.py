"""The packages that are needed to build CUDA extensions, as small packages of the tests' own on a
booted node."""

from __future__ import annotations

from repository import build_package, serve

TOOLS = {
    "g++": ["/usr/bin/g++"],
    "ninja-build": ["/usr/bin/ninja"],
    "make": ["/usr/bin/make"],
    "python3-dev": ["/usr/include/python3.11/Python.h"],
    "cuda-toolkit-12-8": [
        "/usr/local/cuda-12.8/bin/nvcc",
        "/usr/local/cuda-12.8/include/cuda.h",
        "/usr/local/cuda -> cuda-12.8",
    ],
}


def toolchain(folder, *without):
    """The packages, in a folder."""
    return [
        build_package(folder, name, "12.8.0-1", files)
        for name, files in TOOLS.items()
        if name not in without
    ]


def offer_toolchain(fleet, name, folder, *others):
    """Puts them, and `others`, into the node's repository."""
    serve(fleet, name, [*others, *toolchain(folder)])
