"""The collector's version, which is in each document."""

from __future__ import annotations

VERSION = "0.2.0"
