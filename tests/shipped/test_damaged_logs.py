"""Ten thousand damaged inputs: changed lines of real formats, random bytes, cut dumps. None may
raise. Too slow for a unit test."""

from __future__ import annotations

import io
import random

import pytest

from unhang.core.redact import Mask
from unhang.jobs.diagnose.log_facts import describe, gather_facts
from unhang.jobs.diagnose.logs.reading import Input, kind_of, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures
from unhang.jobs.diagnose.ranking import rank_causes
from unhang.jobs.diagnose.rendering import facts_in_words
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.settings import KINDS

SIGNATURES = load_signatures()
SIEVE = Sieve(SIGNATURES)
EXAMPLES = [
    line.encode()
    for signature in SIGNATURES
    for line in (*signature.examples["match"], *signature.examples.get("near_miss", ()))
]
CASES = 10_000
SLICES = 10
SCRIPT = [
    b"export NCCL_IB_DISABLE=1",
    b"ENV NCCL_DEBUG INFO",
    b"- name: NCCL_ALGO",
    b"  value: Ring",
    b"Environment=NCCL_X=1",
    b"NCCL_NET = IB",
    b"unset NCCL_NET",
]


def damaged(noise: random.Random, lines: list[bytes]) -> bytes:
    """A few lines, cut, mixed, doubled, with changed bytes."""
    data = bytearray(
        noise.choice([b"\n", b"\r\n", b"\r", b"\n\n"]).join(
            noise.choices(lines, k=noise.randint(1, 4))
        )
    )
    for _ in range(noise.randint(0, 6)):
        at = noise.randrange(len(data) + 1)
        kind = noise.randrange(5)
        if kind == 0:
            data[at : at + noise.randint(1, 30)] = b""
        elif kind == 1:
            data[at:at] = noise.randbytes(noise.randint(1, 12))
        elif kind == 2:
            data[at:at] = noise.choice(
                [
                    b"\x1b[31m",
                    b"9" * 400,
                    b"\0",
                    "é\u202e".encode(),
                    b"\xff\xfe",
                    b"((((",
                    b"'\"`",
                    b"-9999999999999",
                ]
            )
        elif kind == 3:
            data = data * 2
        else:
            data[at : at + 1] = bytes([noise.randrange(256)])
    return bytes(data)


@pytest.mark.parametrize("part", range(SLICES))
def test_readers_answer_whatever_they_are_given(part):
    noise = random.Random(part)
    causes = load_causes()
    for number in range(CASES // SLICES):
        data = damaged(noise, EXAMPLES)
        about = Input("log")
        assert kind_of(data) in ("log", "binary", "dump", "empty")
        found = scan_blocks(read_blocks(io.BytesIO(data), about), "log", SIEVE)
        if number % 4 == 0:
            facts = gather_facts([found])
            assert facts_in_words(describe(facts)) and isinstance(rank_causes(facts, causes), list)
            Mask(facts.hosts).text(data.decode("utf-8", "replace"))


def test_lint_answers_whatever_a_file_holds():
    noise = random.Random(7)
    for number in range(2000):
        text = damaged(noise, SCRIPT).decode("utf-8", "surrogateescape")
        for one in lint_text(text, KINDS[number % len(KINDS)], Context()):
            assert one.line >= 1 and one.why and one.instead
