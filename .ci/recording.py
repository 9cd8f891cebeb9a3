"""Records which files of the project a run of tests reads: Python's audit events of every process that the project's virtual environment starts.

.ci/tier copies this file into the environment's site-packages, beside a .pth file that imports it at each start, for as long as a tier runs. What is
written are lines in files of RECORDS, one file for each process: "f PATH" for a file that was opened, "d PATH" for a folder whose names were listed.
Arguments of programs that are started count as opened, so that what gcc or sh reads is seen too; an argument that is a folder stands for all files below
it. A folder that Python's import lists to find a module is not written down: the module that it finds is opened. Nothing here may fail: it runs in every
program of the environment.

As a plugin of pytest (-p unhang_tier_recording) it also keeps the code of pytest's end in pytest's cache, for .ci/tier to know whether all tests were run
(PYTEST_DONT_REWRITE: nothing here asserts, and it is imported before pytest is).
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
IMPORT = "<frozen importlib._bootstrap_external>"
_SWITCH = os.path.join(_HERE, "unhang_tier_recording.txt")  # two lines: the project's folder, and the folder of the records


def start():
    """Adds the audit hook when a tier asks for it."""
    try:
        with open(_SWITCH, encoding="utf-8") as switch:
            project, records = switch.read().splitlines()
    except (OSError, ValueError):
        return
    seen = set()
    at_work = []

    def note(kind, path):
        """One line, once for each process."""
        whole = _whole_path(path)
        if whole is None or not f"{whole}/".startswith(f"{project}/") or (kind, whole) in seen:
            return
        seen.add((kind, whole))
        _append(records, f"{kind} {os.path.relpath(whole, project)}\n")

    def hook(event, arguments):
        if event not in ("open", "os.listdir", "os.scandir", "subprocess.Popen") or at_work:
            return
        at_work.append(True)
        try:
            if event == "open":
                if not os.path.isdir(arguments[0]):
                    note("f", arguments[0])
            elif event == "subprocess.Popen":
                for argument in arguments[1] if isinstance(arguments[1], (list, tuple)) else ():
                    note("f", argument)
            elif sys._getframe(1).f_code.co_filename != IMPORT:
                note("d", arguments[0] if arguments[0] is not None else ".")
        except Exception:  # noqa: S110 -- a record that cannot be written makes the tier run again; a program that fails for it would be worse
            pass
        finally:
            at_work.pop()

    sys.addaudithook(hook)


def _whole_path(path):
    """The path from the root, or None for what is no path, such as a descriptor."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str):
        if not hasattr(path, "__fspath__"):
            return None
        path = os.fspath(path)
    return os.path.normpath(os.path.join(os.getcwd(), path))


def _append(records, line):
    """Opened each time: a descriptor that is kept may be closed, and its number given to another file, by whoever closes all of them."""
    handle = os.open(os.path.join(records, str(os.getpid())), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("utf-8", "surrogateescape"))
    finally:
        os.close(handle)


def pytest_sessionfinish(session, exitstatus):
    """Keeps pytest's exit code, once for a run: workers of xdist write nothing."""
    if not hasattr(session.config, "workerinput"):
        session.config.cache.set("unhang/ended", int(exitstatus))


start()
