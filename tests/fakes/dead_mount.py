"""A file system whose server takes requests and never answers: its readers wait in the kernel
(state D), and SIGKILL works only after this process ends.

    python3 dead_mount.py FOLDER       prints "mounted" on standard output, and unmounts when its
    standard input ends; needs root

A FUSE request that the server has not read yet ends with SIGKILL; after that its process waits for
the answer, as with a hung server or driver.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys

INIT = 26
# fuse_in_header: length, opcode, unique, node, uid, gid, pid, padding
HEADER = struct.Struct("<IIQQIIII")
MNT_DETACH = 2


def answer_init(device, unique, body):
    """Answers only the kernel's first request."""
    major, minor = struct.unpack_from("<II", body)
    reply = struct.pack(
        "<IIIIHHIIHHI7I", major, min(minor, 31), 65536, 0, 16, 12, 65536, 1, 16, 0, 0, *[0] * 7
    )
    os.write(device, struct.pack("<IiQ", 16 + len(reply), 0, unique) + reply)


def serve(folder):
    """Waits until standard input ends."""
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
    if libc.mount(b"dead-server:/export", folder.encode(), b"fuse", 0, options.encode()):
        sys.exit("mount: " + os.strerror(ctypes.get_errno()))
    try:
        while True:
            ready, _, _ = select.select([device, 0], [], [])
            if 0 in ready and not os.read(0, 4096):
                break
            if device in ready:
                request = os.read(device, 1 << 17)
                _, opcode, unique = HEADER.unpack_from(request)[:3]
                if opcode == INIT:
                    answer_init(device, unique, request[HEADER.size :])
                    os.write(1, b"mounted\n")
    finally:
        os.close(device)  # ends the connection: all processes that wait for an answer get an error
        libc.umount2(folder.encode(), MNT_DETACH)


if __name__ == "__main__":
    serve(sys.argv[1])
