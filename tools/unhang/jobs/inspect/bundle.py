"""The evidence of a job as one archive, for a ticket or a colleague: evidence/<host>.json,
inspection.json, short.json (`unhang/evidence-short/1`), report.txt. Secrets are masked."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import tarfile
import time
import zlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.secrets_in_text import masked_document, without_secrets
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.core.text import visible
from unhang.core.verdict.answer import render_evidence
from unhang.jobs.inspect.answer import answer_of
from unhang.jobs.inspect.evidence import host_of
from unhang.jobs.inspect.inspection import Inspection
from unhang.jobs.inspect.rendering import render_inspection
from unhang_node.base.version import VERSION

MOST_BYTES = 64 << 20
MOST_DOCUMENTS = 4096
INSPECTION = "inspection.json"
SCHEMA = "unhang/evidence/1"
FIRST_BYTES = 400  # of a document, before which its node may have a name of 255 letters
BROKEN = (OSError, EOFError, zlib.error)


def write_bundle(
    path: Path, documents: Sequence[Mapping[str, Any]], inspection: Inspection
) -> None:
    """Writes the archive, which only its owner can read; refuses a path that is taken. Raises
    UserError."""
    texts = {
        INSPECTION: json.dumps(inspection.as_document(), indent=1),
        "short.json": render_evidence(answer_of(inspection)),
        "report.txt": without_secrets(render_inspection(inspection, verbose=True)),
    }
    for number, document in enumerate(documents):
        name = re.sub(r"[^\w.-]", "_", host_of(document))[:100]
        texts[
            f"evidence/{name if f'evidence/{name}.json' not in texts else f'{name}-{number}'}.json"
        ] = evidence_text(document)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UserError(f"--out {path}: the file exists already; name a new one") from None
    try:
        with (
            os.fdopen(descriptor, "wb") as target,
            tarfile.open(fileobj=target, mode="w:gz") as archive,
        ):
            for name, text in texts.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text.encode()), 0o600
                archive.addfile(entry, io.BytesIO(text.encode()))
    except OSError as problem:
        with contextlib.suppress(OSError):
            path.unlink()  # half an archive is none
        raise UserError(
            f"--out {path}: the bundle could not be written: {problem.strerror}"
        ) from None


def evidence_text(document: Mapping[str, Any]) -> str:
    """A document as it is written: without secrets, and checked as whoever reads it does. Raises
    UserError."""
    text = json.dumps(masked_document(document))
    checked(text.encode(), f"the evidence of {host_of(document)}")
    return text


def read_documents(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The evidence in files: documents, or bundles of them; of a node whose processes were looked
    at several times the last. Raises UserError, OSError."""
    found = [document for path in paths for document in _documents_of(path)]
    if not found:
        raise UserError(f"there are no documents {SCHEMA} in {', '.join(map(str, paths))}")
    found.sort(key=lambda document: document["collector"]["collected_at"])
    last = {
        (host_of(one), *(row["pid"] for row in one["ranks"])): one for one in found[:MOST_DOCUMENTS]
    }
    return [*last.values()]


def is_bundle(path: Path) -> bool:
    """Whether a file is a bundle of evidence, by the header of its first entry."""
    if not path.is_file():  # a pipe is read once, by whoever reads it as a log
        return False
    try:
        with gzip.open(path) as packed:
            return (
                tarfile.TarInfo.frombuf(packed.read(tarfile.BLOCKSIZE), "utf-8", "replace").name
                == INSPECTION
            )
    except (tarfile.TarError, *BROKEN):
        return False


def is_evidence(path: Path) -> bool:
    """Whether a file is a bundle, or one document of it as unhang-inspect.pyz prints it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return SCHEMA.encode() in file.read(FIRST_BYTES) or is_bundle(path)


def _documents_of(path: Path) -> list[dict[str, Any]]:
    if is_bundle(path):
        return [
            checked(text, f"{path}: {name}")
            for name, text in bundle_texts(path).items()
            if name.startswith("evidence/")
        ]
    try:
        return [checked(read_bounded(path, MOST_BYTES), str(path))]
    except NotStrict as problem:
        raise UserError(f"{path}: {problem}") from None


def bundle_texts(path: Path) -> dict[str, bytes]:
    """{name: content} of a bundle's regular files, which have no more than MOST_BYTES together. It
    is unpacked in memory: names, links and modes in it mean nothing. Raises UserError."""
    try:
        with gzip.open(path) as packed:
            unpacked = packed.read(MOST_BYTES + 1)
        if len(unpacked) > MOST_BYTES:
            raise UserError(f"{path}: the bundle has more than {MOST_BYTES >> 20} MiB")
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            entries = [
                entry
                for entry in islice(archive, MOST_DOCUMENTS)
                if entry.isreg() and not entry.issparse()
            ]
        return {
            entry.name: unpacked[entry.offset_data : entry.offset_data + entry.size]
            for entry in entries
        }
    except (tarfile.TarError, ValueError, RecursionError, *BROKEN) as problem:
        raise UserError(
            f"{path} is not a bundle of unhang inspect: it cannot be unpacked: {problem}"
        ) from None


def unanswered(host: str, why: object) -> dict[str, Any]:
    """The document of a node that gave no evidence, with the reason."""
    reason = f"no answer: {' '.join(str(why or 'none').split())[:300]}"
    return {
        "schema": SCHEMA,
        "asked_as": host,
        "collector": {
            "version": VERSION,
            "host": host,
            "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "duration_ms": 0.0,
            "as_root": False,
            "cut": [],
        },
        "ranks": [],
        "sections": {
            "ranks": {
                "probe": {"status": "error", "duration_ms": 0.0, "error": reason, "unread": []}
            }
        },
    }


def checked(text: bytes, where: str) -> dict[str, Any]:
    """A document of a node. Raises UserError for anything else."""
    try:
        found = parse_strictly(text, half_characters=True)
        # half a character is written as ?, which the check of the schema can read
        if b"\\ud" in text.lower():
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
        schema = found.get("schema") if isinstance(found, dict) else type(found).__name__
        if schema != SCHEMA:
            raise UserError(f"{where} is not a document {SCHEMA} but {str(schema)[:80]!r}")
        fault = next(check_schema(found, "evidence-1"), None)
    except NotStrict as problem:
        raise UserError(f"{where}: {problem}") from None
    if fault:
        place = ".".join(map(str, fault.path))[:200] or "it"
        raise UserError(
            visible(
                f"{where} is not a document {SCHEMA}: {place}: {fault.message}",
                1000,
            )
        )
    return found
