"""Processes of other users, which only root can start."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def program(
    uid: int, code: str, *arguments: object, within: tuple[str, ...] = (), **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a user, once it has said that it is ready on the descriptor that it gets as its
    last argument.

    within: a command that becomes the program, such as unshare.
    """
    reader, writer = os.pipe()
    argv = [*within, "/usr/bin/python3", "-c", code, *map(str, arguments), str(writer)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        argv,
        env=settings,
        user=uid,
        group=uid,
        extra_groups=(),
        pass_fds=(writer,),
        cwd="/",
        **quiet,
    ) as process:
        os.close(writer)
        try:
            assert os.read(reader, 1) == b"1"
            yield process
        finally:
            os.close(reader)
            process.kill()
