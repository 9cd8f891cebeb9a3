"""Parses the output of `dcgmi diag -j` of DCGM 2, 3 and 4. Values in, values out.

Its tests are reported one by one: a skipped test never counts as passed. A test that failed because of a setting (persistence mode, an environment variable)
is no evidence against a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

PASS, FAIL, WARN, SKIP, NOT_RUN = "pass", "fail", "warn", "skip", "not run"
INCOMPLETE, NOT_MADE = "incomplete", "not made"
STATUSES = {"pass": PASS, "fail": FAIL, "failed": FAIL, "warn": WARN, "warning": WARN, "skip": SKIP, "skipped": SKIP}
# DCGM 2 and 3 have one key, DCGM 4 another: https://github.com/NVIDIA/DCGM/blob/master/testing/python3/dcgm_diag_schema.json
ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
DENYLIST = ("Denylist", "Blacklist")  # the second up to DCGM 2.1
# Tests of the driver's and the system's settings; what they say is no fault of a GPU. In DCGM 4 they stand in front of the warnings of the test `software`.
SETTINGS = (*DENYLIST, "NVML Library", "CUDA Main Library", "CUDA Toolkit Libraries", "Permissions and OS Blocks", "Persistence Mode", "Environment Variables",
            "Graphics Processes", "Fabric Manager")  # fmt: skip
CONFIGURATION = 5  # DCGM_ERROR_CONFIG: https://docs.nvidia.com/datacenter/dcgm/latest/reference/diagnostics/errors.html
MOST_TESTS = 2000
LONGEST_WHY = 600


@dataclass(frozen=True)
class DcgmTest:
    """test, category: as DCGM calls them. gpu: DCGM's number of it, None for all. setting: it failed for a setting. why: DCGM's words."""

    test: str
    category: str
    gpu: int | None
    status: str
    setting: bool
    why: str


def read_dcgm(event: Mapping[str, Any]) -> dict[str, Any]:
    """{level, version, driver, verdict, denylist, problem, tests} of an event `dcgm`. verdict: pass, fail, incomplete or not made.

    denylist: status of DCGM's test of that name, None if missing. The verdict is pass only if every test ran and passed.
    """
    tests, version, driver, problem = _parsed(event["answer"])
    if event["code"] is None:
        problem = problem or "it gave no answer in its time and was ended"
    elif not tests and not problem:
        problem = f"it ended with code {event['code']} and reported no test"
    failed = any(row.status == FAIL for row in tests)
    whole = tests and all(row.status in (PASS, WARN) for row in tests) and not problem and event["code"] == 0
    verdict = FAIL if failed else PASS if whole else INCOMPLETE if tests else NOT_MADE
    head = {"level": event["level"], "version": version, "driver": driver, "verdict": verdict, "denylist": denylist_of(tests), "problem": problem}
    return {**head, "tests": [asdict(row) for row in tests]}


def denylist_of(tests: Iterable[DcgmTest]) -> str | None:
    """pass, fail, warn, skip or not run of the test for modules and drivers that DCGM does not support; None if unknown."""
    rows = list(tests)
    own = [row.status for row in rows if row.test in DENYLIST]
    inside = [row for row in rows if row.test == "software"]
    if any(row.why.startswith(name) for row in inside for name in DENYLIST):
        return FAIL
    own += [PASS for row in inside if row.status == PASS]  # DCGM 4 reports it only if it failed
    return next((status for status in (FAIL, WARN, NOT_RUN, SKIP, PASS) if status in own), None)


def dcgm_failures(dcgm: Mapping[str, Any] | None) -> list[tuple[int | None, str]]:
    """(GPU, why) of tests that failed for anything but a setting."""
    return [(row["gpu"], _describe(row)) for row in _tests_with(dcgm, FAIL) if not row["setting"]]


def dcgm_gaps(dcgm: Mapping[str, Any] | None) -> list[str]:
    """Tests that failed for a setting: no GPU is to blame, and none is proved good either."""
    return list(dict.fromkeys(_describe(row) for row in _tests_with(dcgm, FAIL) if row["setting"]))


def dcgm_notes(dcgm: Mapping[str, Any] | None) -> list[str]:
    """Notes that fail no GPU: not run, tests skipped, warnings."""
    if dcgm is None:
        return []
    found = [f"dcgmi diag, level {dcgm['level']}: {dcgm['verdict']}" + (f": {dcgm['problem']}" if dcgm["problem"] else "")]
    found += [f"its denylist: {dcgm['denylist']}"] if dcgm["denylist"] else []
    for status, result in ((SKIP, "skipped"), (NOT_RUN, "did not run")):
        names = dict.fromkeys(row["test"] for row in _tests_with(dcgm, status))
        found += [f"dcgmi diag {result} {', '.join(names)}: they proved nothing"] if names else []
    return [*found, *dict.fromkeys(_describe(row) for row in _tests_with(dcgm, WARN))]


def _tests_with(dcgm: Mapping[str, Any] | None, status: str) -> list[Mapping[str, Any]]:
    return [row for row in (dcgm or {}).get("tests") or () if row["status"] == status]


def _describe(row: Mapping[str, Any]) -> str:
    where = "" if row["gpu"] is None else f" on GPU {row['gpu']}"
    return f"dcgmi diag: {row['test']}{where}: {row['why'] or row['status']}"


def _parsed(document: object) -> tuple[list[DcgmTest], str | None, str | None, str | None]:
    """(tests, version, driver, problem) of an answer."""
    if isinstance(document, str):
        return [], None, None, f"its answer is no JSON: {' '.join(document.split())[-LONGEST_WHY:] or 'it printed nothing'}"
    name = next((name for name in ROOTS if isinstance(document, dict) and isinstance(document.get(name), dict)), None)
    if name is None or not isinstance(document, dict):
        return [], None, None, "its answer is in no form of DCGM 2, 3 or 4"
    root = document[name]
    metadata = document.get("metadata")
    about = metadata if isinstance(metadata, dict) else root
    tests = list(_tests(root))[:MOST_TESTS]
    problem = _text(root.get("runtime_error")) or None
    return tests, _text(about.get("version")) or None, _text(about.get("Driver Version Detected")) or None, problem


def _tests(root: Mapping[str, Any]) -> Iterator[DcgmTest]:
    for category in _rows(root.get("test_categories")):
        for test in _rows(category.get("tests")):
            results = _rows(test.get("results")) or _rows([test.get("test_summary")])
            for result in results or [{}]:
                yield from _of_result(_text(test.get("name"), 100), _text(category.get("category"), 100), result)


def _of_result(name: str, category: str, result: Mapping[str, Any]) -> Iterator[DcgmTest]:
    status = STATUSES.get(_text(result.get("status")).lower(), NOT_RUN)
    shown = list(_warnings(result))
    setting = status == FAIL and (name in SETTINGS or (bool(shown) and all(_is_setting(text, severity) for text, severity in shown)))
    why = "; ".join(text for text, _ in shown) or "; ".join(_texts(result.get("info")))
    for gpu in _gpus(result) or [None]:
        yield DcgmTest(name, category, gpu, status, setting, why[:LONGEST_WHY])


def _is_setting(text: str, severity: Any) -> bool:
    return severity == CONFIGURATION or text.startswith(tuple(f"{name}:" for name in SETTINGS))


def _warnings(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(text, severity or None): DCGM 2 writes texts, later ones objects."""
    found = result.get("warnings")
    for row in found if isinstance(found, list) else [found]:
        if isinstance(row, dict):
            yield _text(row.get("warning")), row.get("error_severity")
        elif isinstance(row, str):
            yield _text(row), None


def _gpus(result: Mapping[str, Any]) -> list[int | None]:
    """Numbers of the GPUs that a result is of: gpu_ids "0,1,2" in DCGM 2, gpu_id in 3, an entity in 4."""
    if result.get("entity_group") not in (None, "GPU"):
        return []
    given = next((result[name] for name in ("gpu_id", "gpu_ids", "entity_id") if name in result), "")
    return [int(part) for part in str(given).split(",") if part.strip().isascii() and part.strip().isdigit() and len(part) < 5]


def _texts(value: object) -> Iterator[str]:
    for row in value if isinstance(value, list) else [value]:
        if isinstance(row, str):
            yield _text(row)


def _text(value: object, most: int = LONGEST_WHY) -> str:
    return " ".join(value.split())[:most] if isinstance(value, str) else ""


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
