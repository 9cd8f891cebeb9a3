"""The smoke test's payload with torch on this machine."""

from __future__ import annotations

from small_catalogue import judge_with_it

judge_with_it()
