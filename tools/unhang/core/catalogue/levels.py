"""The topology levels of NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL, as NCCL's own parser reads them
(ncclGetLevel, since 2.6.4).

A word is compared with the levels of the release; case matters. A value that begins with a digit is
an old-style number, and numbers above 5 mean 5. NCCL silently ignores any other value and chooses a
level itself.
"""

from __future__ import annotations

from unhang_node.base.versions.comparison import NotAVersion
from unhang_node.base.versions.fields import nccl_fields

LEVELS = ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL")
SOURCE = "https://github.com/NVIDIA/nccl/blob/master/src/graph/paths.cc"
_SINCE = {
    "LOC": "",
    "NVL": "",
    "NVB": "2.8.3",
    "C2C": "2.26.2",
    "PIX": "",
    "PXB": "",
    "P2C": "2.27.3",
    "PXN": "2.12.7",
    "PHB": "",
    "SYS": "",
}


def level_fault(value: str, nccl: str | None) -> tuple[str, str] | None:
    """(what is wrong, what is allowed), or None. nccl: the release that will run, None if it is
    unknown."""
    if value[:1].isascii() and value[:1].isdigit():
        return None
    names = [
        word
        for word, since in _SINCE.items()
        if not (nccl and since and is_older_nccl(nccl, since))
    ]
    allowed = f"{', '.join(names)}, or a number of the old style from 0 (LOC) to 5 (SYS)"
    if value in names:
        return None
    if value in _SINCE:
        return (
            f"{value} is known since NCCL {_SINCE[value]}, {nccl} passes it over in silence",
            allowed,
        )
    if value.upper() in names:
        return (
            f"{value!r} is passed over in silence: NCCL compares letters as they are",
            value.upper(),
        )
    return f"{value!r} is passed over in silence, NCCL chooses by itself", allowed


def is_older_nccl(left: str, right: str) -> bool:
    """Whether a release of NCCL is older than another; False if one of them is none."""
    try:
        return nccl_fields(left) < nccl_fields(right)
    except NotAVersion:
        return False
