"""A clock that is wrong by a day, for one node's Python only: nodes of a test bed share this
machine's clock, which no test sets."""

from __future__ import annotations

import subprocess

INTERPRETER = "/srv/tomorrow/python3"
SOURCE = """#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#define DAY 86400
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += DAY;
    return failed;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def plant(fleet, name, folder):
    """INTERPRETER on the node: its own Python and the programs that it starts, a day ahead of all
    other programs."""
    (folder / "tomorrow.c").write_text(SOURCE)
    library = folder / "tomorrow.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "tomorrow.c")],
        check=True,
    )
    fleet.plant(name, "/srv/tomorrow/tomorrow.so", library.read_bytes(), 0o755)
    fleet.plant(
        name,
        INTERPRETER,
        '#!/bin/sh\nLD_PRELOAD=/srv/tomorrow/tomorrow.so exec /usr/bin/python3 "$@"\n',
        0o755,
    )
