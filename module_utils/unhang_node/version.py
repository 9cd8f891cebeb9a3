"""The collector's version, which each document carries."""

from __future__ import annotations

VERSION = "0.1.0"
