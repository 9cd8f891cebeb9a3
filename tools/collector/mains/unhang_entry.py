# Starts each program of one file. It and each __main__.py must parse on any Python, so that an old
# one prints a clear line and no syntax error.
import os
import sys

NOT_MADE = 2


def start(program, load, not_made=NOT_MADE):
    """Runs the main function that `load` imports, and ends the process with its code; not_made: the
    code where it cannot start."""
    if sys.version_info < (3, 8):
        message = (
            "%s needs Python 3.8 or newer, and this is %d.%d (%s); run it with another interpreter"
            " of this node\n"
        )
        end(not_made, message % (program, sys.version_info[0], sys.version_info[1], sys.executable))
    prefer_own_modules()
    try:
        code = load()(sys.argv[1:])
    except Exception as problem:  # of the Python that runs it, such as a module that it lacks
        end(not_made, "%s: could not start: %s: %s\n" % (program, type(problem).__name__, problem))
    end(code)


def prefer_own_modules():
    """What is imported must not be chosen by the surroundings of a job: its modules lie in
    PYTHONPATH. Code compiled for this Python, if the build had one, comes first, which saves 50 ms
    of CPU; otherwise the folder does not exist."""
    import _frozen_importlib_external  # here: a Python 2 has none

    outside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:] = [folder for folder in sys.path[1:] if folder not in outside]
    sys.path.insert(0, "%s/code-%s" % (sys.path[0], _frozen_importlib_external.MAGIC_NUMBER.hex()))


def end(code, line=""):
    """Ends at once, whatever has become of the output: the regular end of the interpreter would
    cost 5 ms, and 120 where it cannot flush."""
    for stream in filter(None, (sys.stderr, sys.stdout)):  # None: closed by the caller
        try:
            stream.write(line)
            stream.flush()
        except Exception:  # noqa: S110 - a full disk: the code is the answer
            pass
        line = ""
    os._exit(code)
