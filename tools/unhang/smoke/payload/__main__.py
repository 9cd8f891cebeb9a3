"""Runs the payload: of the zip as `python3 unhang_smoke.pyz`, of a checkout as `python3 -m
unhang.smoke.payload`."""

from __future__ import annotations

from .main import run_and_exit

run_and_exit()
