"""The file in which the payload was sent here, and how to start it again."""

from __future__ import annotations

import os
import sys

_ARCHIVE = getattr(sys.modules[__name__].__loader__, "archive", None)  # None in a checkout
# for an interpreter's argv
OWN_WORDS = [os.path.abspath(_ARCHIVE)] if _ARCHIVE else ["-m", __name__.rpartition(".")[0]]
# it was made for this file alone if its name begins with PREFIX
OWN_FOLDER = os.path.dirname(OWN_WORDS[0]) if _ARCHIVE else None
