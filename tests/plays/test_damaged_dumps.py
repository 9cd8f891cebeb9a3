"""Flight recordings with damaged bytes: each is read in a child process, so this is no unit
test."""

from __future__ import annotations

import json
import pickle
import random

from unhang.jobs.diagnose.logs.flight_dumps import read_dumps
from unhang.jobs.flight_steps import recording_of


def test_dumps_answer_or_say_what_is_wrong_with_them():
    noise = random.Random(99)
    good = {
        "pg_config": {},
        "entries": [
            {
                "collective_seq_id": 1,
                "profiling_name": "nccl:all_reduce",
                "state": "started",
                "input_sizes": [[1]],
            }
        ],
    }
    for number in range(2000):
        data = bytearray(
            pickle.dumps(good, noise.randint(2, 5)) if number % 2 else json.dumps(good).encode()
        )
        for _ in range(noise.randint(1, 4)):
            data[noise.randrange(1, len(data))] = noise.randrange(256)
        try:
            recording_of(
                [
                    *read_dumps(bytes(data), f"rank_{number % 8}"),
                    *read_dumps(pickle.dumps(good), "rank_9"),
                ]
            )
        except ValueError as problem:
            assert "\n" not in str(problem)
