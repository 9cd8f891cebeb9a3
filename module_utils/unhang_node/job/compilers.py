"""The programs that compile for a rank, as the kernel cuts their names."""

from __future__ import annotations

COMPILERS = (
    "nvcc",
    "cicc",
    "ptxas",
    "ninja",
    "cc1plus",
    "g++",
    "gcc",
    "ld",
    "cudafe++",
    "fatbinary",
    "clang",
    "clang++",
    "x86_64-linux-gnu-g++"[:15],
)
