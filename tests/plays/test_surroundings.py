"""What tests/conftest.py removes from the caller's environment, and what it must not remove."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# As `nohup make test &` does: the signal is ignored, then tests start, and one of them starts a
# program.
STARTED = """
import signal, subprocess, sys
for name in {names}:
    signal.signal(signal.Signals[name], signal.SIG_IGN)
sys.path.insert(0, {tests!r})
if {with_conftest}:
    import conftest
ask = "import signal; print(*[signal.getsignal(signal.Signals[name]) in (signal.SIG_DFL, signal.default_int_handler) for name in {names}])"
subprocess.run([sys.executable, "-c", ask], check=True)
"""


SIGNALS = ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM")


def taken(with_conftest):
    script = STARTED.format(names=SIGNALS, tests=str(TESTS), with_conftest=with_conftest)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()


def test_a_program_that_a_test_starts_is_ended_by_signals_that_the_caller_ignores():
    assert (taken(False), taken(True)) == (["False"] * 4, ["True"] * 4)


def test_variables_that_tests_read_reach_them():
    """They include the variables that docs/testing.md and tests.mk set; conftest removes the
    caller's own settings, which it finds by their prefixes."""
    tiers = [
        path
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in ("bench", "fixtures")
    ]
    read = {
        name
        for path in tiers
        for name in re.findall(r"os\.environ\.get\(\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    set_by_make = set(
        re.findall(
            r"^\t(\w+)=\S+ \$\(PYTEST\)", (TESTS / "tests.mk").read_text(encoding="utf-8"), re.M
        )
    )
    assert set_by_make >= {"SIMULATED_ROLLOUTS", "KILL_POINTS"}
    assert read >= {*set_by_make, "TEST_SEED"}
    script = (
        f"import sys, os; sys.path.insert(0, {str(TESTS)!r}); import conftest;"
        f" print(*sorted(os.environ.keys() & {read!r}))"
    )
    kept = subprocess.run(
        [sys.executable, "-c", script],
        env=dict.fromkeys(read, "1"),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert kept.stdout.split() == sorted(read)
