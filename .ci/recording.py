"""Records which files of the project a run of tests reads: Python's audit events of every process that the project's virtual environment starts.

While a tier runs, .ci/tier puts a copy of this file into the environment's site-packages, with a .pth file that imports it whenever Python starts. Each
process writes one file in the folder of records: a line "f PATH" for each file that it opened, "d PATH" for each folder that it listed. Arguments of programs
that it starts count as opened, so that files of gcc or sh are recorded too; a folder among them stands for all files below it. Folders that Python's import
system lists are not recorded, because the module that it finds is opened. Nothing here may raise an exception: it runs in every program of the environment.

As a pytest plugin (-p unhang_tier_recording) it also stores pytest's exit code in pytest's cache, which tells .ci/tier whether all tests were run
(PYTEST_DONT_REWRITE: it has no assertions, and is imported before pytest).
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
IMPORT = "<frozen importlib._bootstrap_external>"
_SWITCH = os.path.join(_HERE, "unhang_tier_recording.txt")  # two lines: the project's folder, and the folder of the records


def start():
    """Adds the audit hook if a tier is being recorded."""
    try:
        with open(_SWITCH, encoding="utf-8") as switch:
            project, records = switch.read().splitlines()
    except (OSError, ValueError):
        return
    seen = set()
    at_work = []

    def note(kind, path):
        """Writes one line, once for each process."""
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
        except Exception:  # noqa: S110 -- without its record the tier runs again, which is better than a program that fails
            pass
        finally:
            at_work.pop()

    sys.addaudithook(hook)


def _whole_path(path):
    """The absolute path; None for anything else, such as a descriptor."""
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str):
        if not hasattr(path, "__fspath__"):
            return None
        path = os.fspath(path)
    return os.path.normpath(os.path.join(os.getcwd(), path))


def _append(records, line):
    """Opens the file each time: a program that closes all descriptors would close one that is kept, and its number would be reused."""
    handle = os.open(os.path.join(records, str(os.getpid())), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("utf-8", "surrogateescape"))
    finally:
        os.close(handle)


def pytest_sessionfinish(session, exitstatus):
    """Stores pytest's exit code, once for each run: workers of xdist store nothing."""
    if not hasattr(session.config, "workerinput"):
        session.config.cache.set("unhang/ended", int(exitstatus))


start()
