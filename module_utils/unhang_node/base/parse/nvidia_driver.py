"""Parses the NVIDIA driver's files under /proc/driver/nvidia, and versions in names of its files
and packages."""

from __future__ import annotations

import re

_LOADED = re.compile(r"NVRM version:.*?\s(\d{2,4}\.\d+(?:\.\d+){0,2})(?:\s|$)")
_FILE_VERSION = re.compile(r"\.so\.(\d{2,4}\.\d+(?:\.\d+)?)$")
_SO_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
_UPSTREAM = re.compile(r"^(?:\d+:)?(\d+(?:\.\d+)+)")


def parse_loaded(text: str) -> tuple[str, str | None, str | None]:
    """(line, version, flavour) of /proc/driver/nvidia/version; version None if the line has another
    form.

    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build …" is the
    open flavour, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 …" the
    proprietary one.
    """
    line = next(
        (each.strip() for each in text.splitlines() if each.startswith("NVRM version:")), ""
    )
    found = _LOADED.search(line)
    flavour = None
    if "Kernel Module" in line:
        flavour = "open" if "Open Kernel Module" in line else "proprietary"
    return line, found.group(1) if found else None, flavour


def parse_params(text: str) -> dict[str, str]:
    """{name: value} of /proc/driver/nvidia/params, without quotes."""
    pairs = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        value = value.strip()
        if colon and name.strip():
            if len(value) >= 2 and value[0] == value[-1] == '"':
                value = value[1:-1]
            pairs[name.strip()] = value
    return pairs


def driver_version_of_file(name: str) -> str | None:
    """535.104.05 from libcuda.so.535.104.05, None from libcuda.so.1."""
    found = _FILE_VERSION.search(name)
    return found.group(1) if found else None


def version_of_file(name: str) -> str | None:
    """9.14.0 from libcudnn.so.9.14.0, None for a name with fewer than two numbers at its end."""
    found = _SO_VERSION.search(name)
    return found.group(1) if found else None


def upstream_version(package_version: str | None) -> str | None:
    """535.161.08 from 535.161.08-0ubuntu3, 580.65.06 from 3:580.65.06-1.el9; None if there is no
    number at the beginning."""
    found = _UPSTREAM.match(package_version or "")
    return found.group(1) if found else None


def branch_of(version: str | None) -> str | None:
    """535 from 535.104.05, None for None."""
    return version.split(".")[0] if version else None
