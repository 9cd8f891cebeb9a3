"""Versions in the files of a CUDA toolkit and of cuDNN."""

from __future__ import annotations

import re

from ...base.parse.values import parse_json

_TEXT = re.compile(r"CUDA Version (\d+(?:\.\d+)+)")
_HEADER = re.compile(r"#define CUDA_VERSION\s+(\d{4,6})")
_CUDNN = re.compile(r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)")
_FOLDER = re.compile(r"^cuda-(\d+\.\d+)$")
_PACKAGE = re.compile(r"~(\d+\.\d+\.\d+)")


def parse_version_json(text: str) -> tuple[str | None, str | None]:
    """(toolkit, nvcc) of version.json (CUDA 11.1 and later); None for a version that it does not
    name. Raises ValueError if the text is not a JSON object."""
    rows = parse_json(text)
    if not isinstance(rows, dict):
        raise ValueError("version.json is not an object")

    def version(name: str) -> str | None:
        row = rows.get(name)
        word = row.get("version") if isinstance(row, dict) else None
        return word if isinstance(word, str) and len(word) <= 64 else None

    return version("cuda"), version("cuda_nvcc")


def parse_version_txt(text: str) -> str | None:
    """10.2.89 of version.txt (CUDA 10 and earlier), or None."""
    found = _TEXT.search(text)
    return found.group(1) if found else None


def parse_cuda_header(text: str) -> str | None:
    """12.4 of cuda.h's CUDA_VERSION 12040, or None."""
    found = _HEADER.search(text)
    return f"{int(found.group(1)) // 1000}.{int(found.group(1)) % 1000 // 10}" if found else None


def parse_cudnn_header(text: str) -> str | None:
    """9.14.0 of cudnn_version.h, or None."""
    parts = dict(_CUDNN.findall(text))
    return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCHLEVEL']}" if len(parts) == 3 else None


def version_of_folder(name: str) -> str | None:
    """12.4 of cuda-12.4, or None."""
    found = _FOLDER.match(name)
    return found.group(1) if found else None


def version_of_distro_package(version: str | None) -> str | None:
    """12.0.1 of nvidia-cuda-toolkit's 12.0.140~12.0.1-4build4; else the number that it begins with;
    None without one."""
    found = _PACKAGE.search(version or "") or re.match(
        r"(?:\d+:)?(\d+\.\d+(?:\.\d+)?)", version or ""
    )
    return found.group(1) if found else None
