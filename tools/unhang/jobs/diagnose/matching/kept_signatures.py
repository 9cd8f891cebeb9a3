"""Caches for the next start that the signatures have no fault, and which of them read digits:
patterns are then compiled only when they are first searched. The key is a digest of all rows, of
the code that checks them, and of the Python version. Signatures with a fault are not cached."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable
from typing import Any

from unhang.core.catalogue.kept_yaml import code_digest
from unhang.core.kept_files import digest_of, keep, read_kept

NAME = f"signatures-{sys.implementation.cache_tag}"
_CODE = (
    "core/kept_files.py",
    "core/catalogue/kept_yaml.py",
    "jobs/diagnose/matching/kept_signatures.py",
    "jobs/diagnose/matching/signatures.py",
)


def key_of(contents: Iterable[Any]) -> bytes | None:
    """The key of these files of signatures; None if the code is not in files (in a zip archive)."""
    try:
        return digest_of(code_digest(*_CODE), json.dumps(list(contents)).encode())
    except OSError:
        return None


def kept_digit_readers(key: bytes | None) -> frozenset[str] | None:
    """The ids of the signatures that read digits; None if these signatures were not checked
    before."""
    data = None if key is None else read_kept(NAME, key)
    return None if data is None else frozenset(json.loads(data))


def keep_digit_readers(key: bytes | None, ids: Collection[str]) -> None:
    """Caches them for signatures without a fault."""
    if key is not None:
        keep(NAME, key, json.dumps(sorted(ids)).encode())
