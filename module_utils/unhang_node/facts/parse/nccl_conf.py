"""NCCL's configuration files, read as NCCL reads them.

Every line NAME=VALUE is taken literally: blanks and quotes belong to name and value, the first "="
separates them, names and values end at 1023 bytes, and the first line that sets a name wins. A line
that begins with "#" is a comment only from NCCL 2.26.2 on; earlier releases set a variable whose
name begins with "#", which has no effect. If such a line looks like a setting, it is returned under
that name.
Source: setEnvFile in NCCL's src/misc/param.cc (2.22.3, 2.25.1, master).
"""

from __future__ import annotations

from ...base.parse.assignment import Assignment

FIELD_BYTES = 1023


def parse_nccl_conf(content: bytes) -> list[Assignment]:
    """[Assignment] of a configuration file, in its order. content: bytes."""
    rows = []
    for number, line in enumerate(content.split(b"\n"), 1):
        name, equals, value = line.split(b"\0")[0].partition(b"=")
        if equals and name:
            rows.append(Assignment(name=_text(name), value=_text(value), line=number))
    return rows


def _text(field: bytes) -> str:
    return field[:FIELD_BYTES].decode("utf-8", "replace")
