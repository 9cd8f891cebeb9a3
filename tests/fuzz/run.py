"""`make fuzz`: a million structure-aware cases over all readers in turn; continues where it was
stopped. Failing inputs are written to tests/fuzz/corpus.

    python tests/fuzz/run.py [--cases N] [--reader NAME] [--again]

Exit code 1 when a fault was found: its file is then a permanent case of the tests
(tests/sweeps/test_fuzz_readers.py).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PROJECT = TESTS.parent
CORPUS = TESTS / "fuzz" / "corpus"
PROGRESS = PROJECT / ".cache" / "fuzz.json"
# of address space: a reader that would use all of the machine's memory gets a MemoryError
MOST_BYTES = 4 << 30
TURN = 500  # cases of one reader before the next reader's turn, and before progress is written
sys.path[:0] = [
    str(PROJECT / "tools"),
    str(PROJECT / "module_utils"),
    str(TESTS),
    str(TESTS / "support"),
]

from fuzz.readers import READERS, case, fault_of  # noqa: E402 -- found by the path above


def main() -> int:
    """0 when no fault was found, 1 otherwise."""
    parser = argparse.ArgumentParser(description="Gives every reader damaged input.")
    parser.add_argument(
        "--cases",
        type=int,
        default=1_000_000,
        help="in all, those of earlier calls counted (default: %(default)s)",
    )
    parser.add_argument(
        "--reader", action="append", choices=list(READERS), help="only this one; may be given again"
    )
    parser.add_argument("--again", action="store_true", help="from the beginning")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(
        resource.RLIMIT_AS,
        (MOST_BYTES if hard == resource.RLIM_INFINITY else min(MOST_BYTES, hard), hard),
    )
    names = given.reader or list(READERS)
    done = {} if given.again or not PROGRESS.exists() else json.loads(PROGRESS.read_text())
    share, found = -(-given.cases // len(names)), 0
    while waiting := [name for name in names if done.get(name, 0) < share]:
        for name in waiting:
            start = done.get(name, 0)
            end = min(share, start + TURN)
            found += sum(_try(name, number) for number in range(start, end))
            done[name] = end
            PROGRESS.parent.mkdir(exist_ok=True)
            PROGRESS.write_text(json.dumps(done))
        sys.stderr.write(
            f"\r{sum(done.get(name, 0) for name in names):,} of {share * len(names):,} cases,"
            f" {found} found "
        )
    sys.stderr.write("\n")
    return 1 if found else 0


def _try(name: str, number: int) -> int:
    data = case(name, number)
    problem = fault_of(name, data)
    if problem is None:
        return 0
    kept = CORPUS / name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    sys.stderr.write(
        f"\n{name} {number}: {type(problem).__name__}: {str(problem)[:200]!r}, kept as"
        f" {kept.relative_to(PROJECT)}\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
