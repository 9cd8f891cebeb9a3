"""The payload as one file: the modules of unhang.smoke.payload in a zip, built by whoever sends it.

It runs as `python3 unhang_smoke.pyz`, from Python 3.8 on: the modules are the package
`unhang_smoke` in it. A checkout and a wheel both have the modules, so nothing is built beforehand.
Same modules, same bytes: they are stored without compression, so that no version of zlib matters.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from unhang.smoke import payload

NAME = "unhang_smoke.pyz"
# a name of its own: top-level modules called `run` or `events` could hide others
PACKAGE = "unhang_smoke"
MAIN = f"import {PACKAGE}.__main__\n"


def payload_bytes() -> bytes:
    """The zip. Stored, not deflated: who sends it compresses it as a whole, and its bytes do not
    depend on a version of zlib. ZipInfo has a fixed time."""
    parts = {
        f"{PACKAGE}/{path.name}": path.read_bytes()
        for path in Path(payload.__file__).parent.glob("*.py")
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({"__main__.py": MAIN.encode(), **parts}.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()
