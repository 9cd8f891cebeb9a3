"""Work with limits inside work with lower limits."""

from __future__ import annotations

from unhang.core.limits import Limits, run_limited


def test_a_lower_limit_of_the_caller_stands():
    def outer(_mark):
        return run_limited(lambda _mark: "answered", Limits(memory_bytes=4 << 30))

    assert run_limited(outer, Limits(memory_bytes=1 << 30)) == "answered"
