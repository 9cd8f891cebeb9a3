# ruff: noqa: UP031, UP036
# Entry of unhang-collect.pyz. Only this file must parse on any Python, so that an old Python prints a clear line and no syntax error.
import os
import sys

NOT_MADE = 2


def end(code, line=""):
    """Ends at once, whatever has become of the output: the regular end of the interpreter would cost 5 ms, and 120 where it cannot flush."""
    for stream in filter(None, (sys.stderr, sys.stdout)):  # None: closed by the caller
        try:
            stream.write(line)
            stream.flush()
        except Exception:  # noqa: S110 - a full disk: the code is the answer
            pass
        line = ""
    os._exit(code)


if sys.version_info < (3, 8):
    end(
        NOT_MADE,
        "unhang-collect: expected Python 3.8 or newer, found %d.%d (%s); run it with another interpreter of this node\n"
        % (sys.version_info[0], sys.version_info[1], sys.executable),
    )

import _frozen_importlib_external  # noqa: E402

# What is imported must not be chosen by the surroundings of a job: its modules lie in PYTHONPATH.
outside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sys.path[1:] = [folder for folder in sys.path[1:] if folder not in outside]

# Code compiled for this Python version, if the build had one: saves 50 ms of CPU. Otherwise the folder does not exist.
sys.path.insert(0, "%s/code-%s" % (sys.path[0], _frozen_importlib_external.MAGIC_NUMBER.hex()))

try:
    from unhang_node.facts.command import main

    code = main(sys.argv[1:])
except Exception as problem:  # of the Python that runs it, such as a module that it lacks
    end(NOT_MADE, "unhang-collect: could not start: %s: %s\n" % (type(problem).__name__, problem))
end(code)
