"""unhang on the controller: catalogue, judge, plan, report. Nothing here imports ansible."""

from __future__ import annotations

__version__ = "0.2.0"
