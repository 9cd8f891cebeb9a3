"""What a program of the node needs before its work: open standard descriptors, and the driver's
module."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def open_standard_descriptors() -> None:
    """Opens /dev/null for each of descriptors 0 to 2 that the caller has closed: otherwise the next
    pipe or file would get its number, and our messages."""
    number = 0
    while number < 3:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end


def load_nvidia_ml_py() -> Any:
    """nvidia-ml-py's module, beside this package or installed."""
    import pynvml

    return pynvml
