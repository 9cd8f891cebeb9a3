"""What a piece of work costs, in a child process of its own."""

from __future__ import annotations

import json
import os
import resource
import time
import traceback
from collections.abc import Callable
from typing import Any


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work answers, with seconds of CPU and wall and peak memory in MB of the child that
    did it; what the answer has of these itself counts."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            started = time.monotonic()
            answer = work()
            used = resource.getrusage(resource.RUSAGE_SELF)
            costs = {
                "cpu_s": used.ru_utime + used.ru_stime,
                "wall_s": time.monotonic() - started,
                "peak_mb": used.ru_maxrss / 1000,
            }
            os.write(writer, json.dumps(costs | answer).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as source:
        output = source.read()
    assert os.waitpid(child, 0)[1] == 0, "the work failed; see above"
    return json.loads(output)
