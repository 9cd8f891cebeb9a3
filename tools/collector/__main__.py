# ruff: noqa: UP031, UP036
# Entry of unhang-collect.pyz. Only this file must parse on any Python, so that an old Python prints a clear line and no syntax error.
import os
import sys

if sys.version_info < (3, 8):
    sys.stderr.write(
        "unhang-collect: expected Python 3.8 or newer, found %d.%d (%s); run it with another interpreter of this node\n"
        % (sys.version_info[0], sys.version_info[1], sys.executable)
    )
    sys.exit(2)

import _frozen_importlib_external

# Code compiled for this Python version, if the build had one: saves 50 ms of CPU. Otherwise the folder does not exist.
sys.path.insert(0, "%s/code-%s" % (sys.path[0], _frozen_importlib_external.MAGIC_NUMBER.hex()))

from unhang_node.command import main

code = main(sys.argv[1:])
for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed by the caller
    stream.flush()
os._exit(code)  # the regular end of the interpreter would cost 5 ms
