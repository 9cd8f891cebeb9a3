"""The file of an admission: what the gate attested of a node (one line of JSON), its signature and
the public key."""

from __future__ import annotations

from ...base.parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "unhang/admission/1"
BEGIN, END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
KEY_KINDS = ("ssh-", "ecdsa-", "sk-")


def parse_admission(text: str) -> dict[str, Any]:
    """{record, line, signature, key}: the record, the signed line byte for byte, the armoured
    signature and the public key; "" for a part that is missing.

    Lines that begin with # are comments about who wrote the file. Raises ValueError without a
    record.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    line = next((one for one in lines if one.startswith("{")), None)
    if line is None:
        raise ValueError("the line with the admission record is missing")
    try:
        record = parse_json(line)
    except ValueError:
        raise ValueError("the admission record is not one line of JSON") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ValueError(f"the record is not of the schema {SCHEMA}")
    signature = ""
    if BEGIN in lines and END in lines[lines.index(BEGIN) :]:
        first = lines.index(BEGIN)
        signature = "\n".join(lines[first : lines.index(END, first) + 1]) + "\n"
    key = next((one for one in lines if one.startswith(KEY_KINDS)), "")
    return {"record": record, "line": line, "signature": signature, "key": key}


def is_private_key(beginning: bytes) -> bool:
    """Whether this beginning of a file is that of a private key, in any format that ssh-keygen
    writes or reads."""
    first = beginning.lstrip()[:64].split(b"\n", 1)[0]
    return first.startswith(b"-----BEGIN ") and b"PRIVATE KEY" in first
