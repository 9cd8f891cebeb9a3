"""Writes events as lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def emit(descriptor: int, kind: str, **fields: Any) -> None:
    """Writes one event as one line in one write. An error means that the reader is gone, and the
    agent handles that, not the rank."""
    line = json.dumps(dict(fields, e=kind, t=round(time.time(), 3)), default=str).encode() + b"\n"
    with contextlib.suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


PIECE_BYTES = 800  # srun mixes the lines of its tasks when they are longer than a kilobyte


def shorten_lines(name: str) -> Callable[[], None]:
    """From now on, standard output is written in numbered pieces, `~NAME.LINE PIECE/PIECES text`.
    Returns a function that ends this."""
    reader, writer = os.pipe()
    real = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)

    def relay() -> None:
        with os.fdopen(reader, "rb") as lines:
            for number, whole in enumerate(lines):
                line = whole.rstrip(b"\n")
                pieces = [line[at : at + PIECE_BYTES] for at in range(0, len(line), PIECE_BYTES)]
                for place, piece in enumerate(pieces):
                    with contextlib.suppress(OSError):
                        os.write(
                            real,
                            b"~%s.%d %d/%d %s\n"
                            % (name.encode(), number, place + 1, len(pieces), piece),
                        )

    thread = threading.Thread(target=relay)
    thread.start()

    def finish() -> None:
        sys.stdout.flush()
        os.close(1)
        thread.join()
        os.dup2(real, 1)

    return finish
