"""Mounts a file system that never answers, like a network file system whose server is gone. Runs on
a node, as a service of systemd's type notify.

The kernel gets a FUSE mount whose requests no process reads: every access to the folder blocks
until its process is killed or the mount is aborted.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"gone-server:/export", folder.encode(), b"fuse", 0, options.encode()):
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
    systemd.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
time.sleep(1_000_000)
