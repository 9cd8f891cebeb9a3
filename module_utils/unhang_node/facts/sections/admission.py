"""The admission record that the gate wrote on the node, and private keys that must not be there.
Part of section `node`."""

from __future__ import annotations

from ...base.parse.values import as_map, clean_or_none
from ..parse.admission import is_private_key, parse_admission
from .reading import there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

FOLDER = "/etc/unhang"
RECORD = FOLDER + "/admission"
LIMIT_BYTES = 256 * 1024
MOST_FILES = 64
MOST_ROWS = 128
TEXTS = ("host", "run", "admitted_at", "expires", "machine_id")
VERSIONS = ("driver", "kernel", "bios")


def read_admission(root: Root, unread: Unread) -> dict[str, Any]:
    """{path, record, private_keys}; record is None if there is none. Raises OSError."""
    record = unread.attempt("admission.record", read_record, root) if there(root, RECORD) else None
    return {
        "path": RECORD,
        "record": record,
        "private_keys": unread.attempt("admission.private_keys", find_private_keys, root),
    }


def read_record(root: Root) -> dict[str, Any]:
    """The fields of the record that the audit compares. Raises OSError, and ValueError for a file
    without a record."""
    found = parse_admission(root.text(RECORD, LIMIT_BYTES))
    record, versions = found["record"], as_map(found["record"].get("versions"))
    gpus, nics = _rows(record.get("gpus")), _rows(record.get("nics"))
    fields: dict[str, Any] = {name: _text(record.get(name)) for name in TEXTS}
    fields.update({name: _text(versions.get(name)) for name in VERSIONS})
    fields.update(
        gpu_uuids=_sorted_texts(gpus, "uuid"),
        vbios=_sorted_texts(gpus, "vbios"),
        inforom=_sorted_texts(gpus, "inforom"),
        nics=_sorted_texts(nics, "name"),
        nic_firmware=_sorted_texts(nics, "firmware"),
        signed=bool(found["signature"]),
    )
    return fields


def find_private_keys(root: Root) -> list[str]:
    """Paths of private keys beside the record. Raises OSError."""
    if not there(root, FOLDER):
        return []
    paths = [f"{FOLDER}/{name}" for name in root.names(FOLDER)[:MOST_FILES]]
    return [path for path in paths if _holds_private_key(root, path)]


def _holds_private_key(root: Root, path: str) -> bool:
    try:
        return is_private_key(root.data(path, 128))
    except IsADirectoryError:
        return False


def _rows(value: object) -> list[dict[str, Any]]:
    return (
        [row for row in value if isinstance(row, dict)][:MOST_ROWS]
        if isinstance(value, list)
        else []
    )


def _sorted_texts(rows: list[dict[str, Any]], name: str) -> list[str]:
    """Each text once, as in the lists that rules make of all devices."""
    return sorted({text for text in (_text(row.get(name)) for row in rows) if text})


def _text(value: object) -> str | None:
    return clean_or_none(value, 256) if isinstance(value, str) else None
