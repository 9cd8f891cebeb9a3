"""Runs the slow test files of CI until its time is over, two at a time, and prints which ran and
which did not.

    python .ci/slow_tests.py FOLDER... [--begun-s N]

N is how many seconds .ci/run has run already. No file starts after its 60th minute, and none runs
beyond its 83rd: a file that is stopped then counts as not run. A file that needs more than 45
minutes hangs and has failed. A failed file is run once more: only its failed tests, if pytest
knows them. Exit code: 0 all that ran passed, 1 a file failed twice, or failed and could not be
run again.

Order: first the files whose subject the last 30 commits changed, then the others; both by a hash
of commit and name, so that each file has its turn within about ten commits. The subject of
tests/plays/test_role_drain.py changed if the file did, or a path outside of tests of which a folder
or the file's name has four letters or more and stands in the test's name, as in roles/drain/.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
AT_ONCE = 2  # nodes and machines are booted for each file
COMMITS = 30
GRACE_S = 60  # for the teardown of a file that is stopped
TIMED_OUT, NO_TEST, SOME_FAILED = 124, 5, 1  # exit codes: of `one`, and two of pytest's
NEEDS_NO_ROOT = {"plays"}
CLOSING = re.compile(
    r"^=+ (.*(?:passed|failed|error|skipped|no tests ran|deselected).* in \d.*?) =+$", re.MULTILINE
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """In seconds since .ci/run began, but for file_s: the most that a file may take."""

    start_s: float
    end_s: float
    file_s: float


@dataclasses.dataclass(frozen=True)
class Result:
    """outcome: passed, failed or not run. detail: pytest's closing line, or why the file did not
    run."""

    name: str
    outcome: str
    detail: str


def git(*arguments):
    """The lines that git prints; [] if it fails, as in a folder that is no clone."""
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def is_subject(path, name):
    """Whether the change of a path changes what the test file `name` is about."""
    if path == name or path.startswith("tests/"):
        return path == name
    subject = f"{Path(name).stem}_"
    parts = {part.partition(".")[0].replace("-", "_") for part in Path(path).parts}
    return any(len(part) >= 4 and f"_{part}_" in subject for part in parts)


def in_order(names, changed, commit):
    """The files, those with a changed subject first; both kinds by the hash of commit and name."""

    def place(name):
        digest = hashlib.sha256(f"{commit} {name}".encode()).hexdigest()
        return not any(is_subject(path, name) for path in changed), digest

    return sorted(names, key=place)


def why_not(name):
    """Why the tests of a folder cannot run on this machine, or None."""
    if Path(name).parts[1] in NEEDS_NO_ROOT:
        return None
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "it needs root on Linux"
    return None if shutil.which("apt-get") else "it needs Debian's apt-get"


def run_file(name, limits, begun):
    """The Result of one file, whose failure is tried once more."""
    with tempfile.TemporaryDirectory(prefix="unhang-ci-", ignore_cleanup_errors=True) as folder:
        code, output, cut = attempt(name, limits, begun, folder)
        if code in (0, NO_TEST) or cut:
            return Result(name, *outcome_of(code, output))
        print(f"== {name} FAILED with code {code}, and is tried once more\n{output}", flush=True)
        again = ["--last-failed"] if code == SOME_FAILED else []
        second, output, cut = attempt(name, limits, begun, folder, *again)
        if second == 0:
            return Result(name, "passed", f"{closing_of(output)} ONLY ON THE RETRY")
        print(f"== {name} FAILED AGAIN with code {second}\n{output}", flush=True)
        why = "no time was left to try it again" if cut else closing_of(output)
        return Result(name, "failed", f"code {code}, then {second}: {why}")


def attempt(name, limits, begun, folder, *more):
    """(exit code, output, whether the end of CI's time stopped it) of pytest on one file."""
    left_s = limits.end_s - (time.monotonic() - begun)
    allowed_s = min(limits.file_s, left_s)
    pytest = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        name,
        "-o",
        f"cache_dir={folder}/cache",
        "--durations=3",
        *more,
    ]
    command = [sys.executable, __file__, "one", str(max(allowed_s, 0)), *pytest]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout, done.returncode == TIMED_OUT and left_s < limits.file_s


def outcome_of(code, output):
    """(outcome, detail) of a file that passed, had no test to run, or was stopped at the end."""
    if code == 0:
        return "passed", closing_of(output)
    return (
        "not run",
        (
            f"no test of it runs here: {closing_of(output)}"
            if code == NO_TEST
            else "stopped at the end of CI's time"
        ),
    )


def closing_of(output):
    """Pytest's closing line without its frame."""
    return (CLOSING.findall(output) or ["pytest printed no summary"])[-1]


def run_all(names, limits, begun):
    """The Results in the order in which the files ended; those that were not started last."""
    results, waiting, lock = [], list(names), threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting or time.monotonic() - begun >= limits.start_s:
                    return
                name = waiting.pop(0)
            why, started = why_not(name), time.monotonic()
            result = Result(name, "not run", why) if why else run_file(name, limits, begun)
            with lock:
                results.append(result)
                print(
                    f"== {name} {result.outcome} after {time.monotonic() - started:.0f} s:"
                    f" {result.detail}",
                    flush=True,
                )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for worker in [pool.submit(work) for _ in range(AT_ONCE)]:
            worker.result()
    return [*results, *(Result(name, "not run", "its turn did not come") for name in waiting)]


def print_summary(results):
    """Each file with its outcome; pytest's closing lines again in the form in which pytest prints
    them."""
    kinds = {
        kind: [one for one in results if one.outcome == kind]
        for kind in ("not run", "passed", "failed")
    }
    print("\n" + ", ".join(f"{len(found)} slow files {kind}" for kind, found in kinds.items()))
    for why in sorted({one.detail for one in kinds["not run"]}):
        print(
            f"not run, {why}:",
            *(one.name for one in kinds["not run"] if one.detail == why),
            sep="\n  ",
        )
    for one in kinds["passed"]:
        print(f"{one.name}:\n== {one.detail} ==")
    for one in kinds["failed"]:
        print(f"FAILED {one.name}: {one.detail}", flush=True)


def one(limit_s, command):
    """The exit code of a command, 124 if it took longer; every process that came from it ends with
    it."""
    with contextlib.suppress(OSError, AttributeError):  # Linux alone
        # PR_SET_CHILD_SUBREAPER: orphans become children of this process
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    running = subprocess.Popen(command)
    try:
        return running.wait(limit_s)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)  # so that pytest runs the teardown of its fixtures
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(GRACE_S)
        return TIMED_OUT
    finally:
        kill_descendants()


def kill_descendants():
    """Kills every process that came from this one, also in sessions of their own."""
    until = time.monotonic() + 10
    while (family := descendants()) and time.monotonic() < until:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def descendants():
    """The ids of the living processes that came from this one."""
    parents, family = {}, set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = (
                stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            )
            parents[int(stat.parent.name)] = int(parent) if state not in "ZX" else 0
    while (
        more := {pid for pid, parent in parents.items() if parent in {os.getpid(), *family}}
        - family
    ):
        family |= more
    return family


def main(arguments):
    """0, or 1 if a file failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+")
    parser.add_argument("--begun-s", type=float, default=0)
    parser.add_argument("--start-s", type=float, default=60 * 60)
    parser.add_argument("--end-s", type=float, default=83 * 60)
    parser.add_argument("--file-s", type=float, default=45 * 60)
    given = parser.parse_args(arguments)
    begun = time.monotonic() - given.begun_s
    names = [
        str(path.relative_to(PROJECT))
        for folder in given.folders
        for path in sorted((PROJECT / folder).rglob("test_*.py"))
    ]
    if not names:
        parser.error(
            f"expected folders with files test_*.py, found none in {' '.join(given.folders)}"
        )
    changed = {*git("-c", "core.quotePath=false", "log", f"-{COMMITS}", "--format=", "--name-only")}
    ordered = in_order(names, changed, (git("rev-parse", "HEAD") or [""])[0])
    results = run_all(ordered, Limits(given.start_s, given.end_s, given.file_s), begun)
    print_summary(results)
    return int(any(result.outcome == "failed" for result in results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        sys.exit(one(float(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
