"""The JSON of tools as the text that the same tool prints for people, so that one reader reads
both: py-spy dump --json and dcgmi diag -j."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang_node.base.parse.values import as_maps

OF_TOOLS = ("frames", "test_categories")
OF_DCGM = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
MOST_LINES = 200_000


def as_printed(value: Any) -> str:
    """The text of a decoded document, "" for one of no known tool."""
    lines = _of_py_spy(value) if isinstance(value, list) else _of_dcgm(value)
    return "\n".join(line for line, _ in zip(lines, range(MOST_LINES), strict=False))


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:1000]


def _of_py_spy(threads: list[Any]) -> Iterator[str]:
    """https://github.com/benfred/py-spy: a list of threads, each with its process and frames."""
    pid = None
    for thread in as_maps(threads):
        if not (frames := as_maps(thread.get("frames"))):
            continue
        if (own := thread.get("pid")) != pid:
            about = thread.get("process_info")
            command = about.get("command_line") if isinstance(about, Mapping) else None
            yield f"Process {_one_line(own)}: {_one_line(command or 'python')}"
            pid = own
        thread_id, name = thread.get("os_thread_id") or own, thread.get("thread_name") or ""
        state = "active" if thread.get("active") else "idle"
        state += "+gil" if thread.get("owns_gil") else ""
        yield f'Thread {_one_line(thread_id)} ({state}): "{_one_line(name)}"'
        for frame in frames:
            path = frame.get("short_filename") or frame.get("filename")
            place = f"{_one_line(path)}:{_one_line(frame.get('line'))}"
            yield f"    {_one_line(frame.get('name'))} ({place})"


def _of_dcgm(document: Any) -> Iterator[str]:
    """https://github.com/NVIDIA/DCGM: tests with a result for each GPU, in versions 3 and 4."""
    found = (
        next((document[name] for name in OF_DCGM if name in document), None)
        if isinstance(document, Mapping)
        else None
    )
    categories = as_maps(found.get("test_categories")) if isinstance(found, Mapping) else []
    for test in (one for category in categories for one in as_maps(category.get("tests"))):
        yield f"| {_one_line(test.get('name')):<25} | {_summary(test):<46} |"
        for one in as_maps(test.get("results")):
            gpu = one.get("entity_id", one.get("gpu_id"))
            if one.get("entity_group", "GPU") != "GPU" or gpu is None:
                continue
            name = f"GPU{_one_line(gpu)}"
            yield f"| {'':<25} | {name + ': ' + _one_line(one.get('status')):<46} |"
            for warning in as_maps(one.get("warnings")):
                yield f"| {'Warning: ' + name:<25} | {_one_line(warning.get('warning'))} |"


def _summary(test: Mapping[str, Any]) -> str:
    """The result of a test as a whole: the worst of its GPUs, where it has none of its own."""
    own = test.get("test_summary")
    if isinstance(own, Mapping) and own.get("status"):
        return _one_line(own["status"])
    results = {str(one.get("status")) for one in as_maps(test.get("results"))}
    return next((one for one in ("Fail", "Warn", "Pass", "Skip") if one in results), "?")
