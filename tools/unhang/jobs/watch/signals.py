"""SIGTERM, SIGINT and SIGHUP to the watcher are the job's: they are passed on once, and end the
watch.

The job has a process group of its own, so that what a launcher sends to the watcher's group (Slurm,
timeout) does not reach it twice: torchrun would be interrupted while it ends its workers. In the
foreground of a terminal it stays in the watcher's, to which the terminal itself sends Ctrl-C, and a
shell SIGHUP.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from unhang.core.taken_signals import signals_taken

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class PassedOn(BaseException):
    """A signal was passed on while the job was watched: the watch is over, the job ends itself."""


@dataclass
class JobSignals:
    """Who gets the watcher's signals. job: None until it is started; early: signals until then;
    ends_watch: whether one of them ends what runs, which is the watch."""

    job: subprocess.Popen[bytes] | None = None
    early: tuple[int, ...] = ()
    ends_watch: bool = False

    def start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Starts the job. Raises OSError."""
        group = None if _is_in_foreground() else 0
        self.job = subprocess.Popen(command, env=dict(environment), process_group=group)
        for number in self.early:
            self.job.send_signal(number)
        return self.job

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """In its body a signal ends the watch; a signal that came before does so too."""
        try:
            self.ends_watch = True
            if not self.early:
                yield
        except PassedOn:
            pass
        finally:
            self.ends_watch = False

    def take(self, number: int, _frame: FrameType | None) -> None:
        """The handler."""
        if self.job is None:
            self.early += (number,)
            return
        if not _gets_itself(number, self.job.pid):
            self.job.send_signal(number)
        if self.ends_watch:
            self.ends_watch = False
            raise PassedOn


@contextlib.contextmanager
def job_signals() -> Iterator[JobSignals]:
    """Takes the watcher's signals for a job to be started; those that are ignored, as nohup and a
    shell's background want it, stay ignored."""
    signals = JobSignals()
    with signals_taken(signals.take, PASSED_ON):
        yield signals


def _is_in_foreground() -> bool:
    return _foreground_group() == os.getpgrp()


def _gets_itself(number: int, pid: int) -> bool:
    """Whether the signal reaches the process without the watcher: Ctrl-C by the terminal, SIGHUP by
    the shell, unless the watcher is in its place."""
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        return False
    if number == signal.SIGHUP:
        return group == os.getpgrp() and os.getsid(0) != os.getpid()
    return number == signal.SIGINT and _foreground_group() == group


def _foreground_group() -> int | None:
    """The process group in the foreground of this process's terminal, None without one."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.tcgetpgrp(terminal)
    except OSError:
        return None
    finally:
        os.close(terminal)
