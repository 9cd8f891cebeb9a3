"""Rules over the rows of tables about GPUs: the one that differs from its peers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from unhang.core.verdict.odd_one_out import odd_ones_out
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.meaning.evidence import WEIGHTS, Evidence

STRONG, SUPPORTING, WEAK = WEIGHTS["strong"], WEIGHTS["supporting"], WEIGHTS["weak"]
HINTING = WEIGHTS["hinting"]
POSSIBLE = SUPPORTING + 1
CLEARLY = 6  # GPUs that agree, for more than "possible"
_BUS = re.compile(r"(?i)pcie|nvbandwidth")
_OF_SOFTWARE = re.compile(
    r"(?i)denylist|blacklist|nvml lib|cuda (?:main|toolkit)|permissions|persistence|environment"
    r"|graphics proc|fabric manager|software|deployment|nccl"
)


def gpu_is_off_nvlink(facts: Facts) -> Iterator[Evidence]:
    """Of GPUs that are all linked to each other, one has no NVLink or fewer than the others. Pairs
    with a bridge, cards without NVLink and a mesh of unlike links have no such majority.

    Decides diagnose_odd_ones/tables/one-gpu-off-nvlink,
    diagnose_odd_ones/tables/one-gpu-with-fewer-links.
    """
    for events, links in _topologies(facts):
        rows = {str(gpu): {"links": median(row.values())} for gpu, row in links.items() if row}
        odd = {one.row: one.differs["links"] for one in odd_ones_out(rows)}
        peers = [gpu for gpu in links if str(gpu) not in odd]
        usual = next((values[1] for values in odd.values()), 0)
        if any(links[one][other] != usual for one in peers for other in peers if one != other):
            continue
        for gpu, (own, _) in odd.items():
            if own < usual:
                has = f"NV{own:g}" if own else "no NVLink"
                why = f"GPU {gpu} has {has}, and the other {len(peers)} NV{usual:g} to each other"
                yield Evidence(
                    "nvlink_down", STRONG if len(peers) >= CLEARLY else POSSIBLE, why,
                    (events[int(gpu)],), "gpu-off-nvlink", who=(f"GPU {gpu}",),
                )  # fmt: skip


def _topologies(facts: Facts) -> Iterator[tuple[list[Event], dict[int, dict[int, int]]]]:
    """The rows of each table of nvidia-smi topo -m, and GPU -> other GPU -> its NVLinks."""
    tables: list[list[Event]] = []
    for event in facts.of("topology"):
        index = event.number("index")
        if index == 0:
            tables.append([])
        if tables and index == len(tables[-1]):
            tables[-1].append(event)
    for events in tables:
        cells = [(event.fields["value"] or "").split()[: len(events)] for event in events]
        if all(len(row) == len(events) and row[at] == "X" for at, row in enumerate(cells)):
            yield (
                events,
                {
                    at: {
                        other: int(cell[2:]) if cell[2:].isdigit() else 0
                        for other, cell in enumerate(row)
                        if other != at
                    }
                    for at, row in enumerate(cells)
                },
            )


_OF_A_LINK = {
    "pcie_link_degraded": SUPPORTING,
    "xid_hardware": SUPPORTING,
    "nvlink_down": WEAK,
}
_OF_LINKS = {"pcie_link_degraded": WEAK, "nvlink_down": WEAK}
# (kind of test, whether only some GPUs failed it, whether their numbers are known)
_WEIGHTS_OF_TESTS: Mapping[tuple[str, bool, bool], Mapping[str, float]] = {
    ("link", True, True): _OF_A_LINK,
    ("link", False, True): _OF_LINKS,
    ("link", False, False): _OF_LINKS,
    ("gpu", True, True): {"xid_hardware": STRONG},
    ("gpu", False, True): {"xid_hardware": POSSIBLE},
    ("gpu", False, False): {"xid_hardware": STRONG},
    # of some GPUs: memory errors that wait for a reset are among the software's tests of DCGM 4
    ("software", True, True): {"xid_hardware": POSSIBLE},
    ("software", False, True): {"container_gpu_access": HINTING},
    ("software", False, False): {"container_gpu_access": HINTING},
}


class _Test(NamedTuple):
    """A test of DCGM. results: GPU -> Pass, Fail, Warn or Skip; listed: only GPUs with one result
    are named. event: the line with its result."""

    name: str
    event: Event
    failed: bool
    listed: bool
    results: dict[str, str]


def dcgm_test_fails(facts: Facts) -> Iterator[Evidence]:
    """A test of GPUs by dcgmi diag failed: on some of them, which are named, or on all, which is
    rather their machine, their power or the test. The software's tests have rows for their messages
    and count here only without such a message. The link of a card without a bridge fails the test
    of all links although nothing is broken.

    Decides diagnose_odd_ones/tables/dcgm-4-memory-of-one,
    diagnose_odd_ones/tables/dcgm-4-pcie-of-one, diagnose_outputs/pcie_and_gpus/dcgmi,
    diagnose_odd_ones/tables/dcgm-4-software-of-one.
    """
    for test in _tests(facts):
        is_software = bool(_OF_SOFTWARE.match(test.name))
        if not test.failed or (is_software and _is_explained(test, facts)):
            continue
        tested = [gpu for gpu, result in test.results.items() if result != "Skip"]
        failed = [gpu for gpu in tested if test.results[gpu] == "Fail"]
        some = failed if test.listed or len(failed) < max(2, len(tested)) else []
        on_all = bool(failed) or "- All" in test.event.text
        where = f"GPU {', '.join(some)}" if some else "all GPUs" if on_all else "a GPU"
        why = f"DCGM's test {test.name} failed on {where}"
        kind = "software" if is_software else "link" if _BUS.match(test.name) else "gpu"
        for cause, weight in _WEIGHTS_OF_TESTS[kind, bool(some), bool(failed)].items():
            yield Evidence(
                cause, weight, why, (test.event,),
                f"dcgm-{kind}-test-of-{'some' if some else 'all'}-failed",
                who=tuple(f"GPU {gpu}" for gpu in some),
            )  # fmt: skip


def _is_explained(test: _Test, facts: Facts) -> bool:
    """Whether a message of DCGM that is known, or a row of its own, says why the test failed; in
    the table of version 3 each test of the software is a row."""
    return test.name != "software" or any(
        one.id.startswith("dcgm-") and one.kind != "fact"
        for one in facts.events
        if one.file == test.event.file
    )


def _tests(facts: Facts) -> list[_Test]:
    """The tests in their order, each with the rows of its GPUs below it (DCGM 4) or the GPUs in its
    own row (DCGM 3)."""
    found: list[_Test] = []
    for event in facts.of("dcgm_row"):
        name, gpu, result = (event.fields[part] or "" for part in ("test", "gpu", "result"))
        listed = re.findall(r"\d+", event.fields["who"] or "")
        if name.strip(" -"):
            found.append(_Test(name.strip(" -"), event, result == "Fail", bool(listed), {}))
        elif not found or found[-1].event.file != event.file:
            continue
        elif result == "Fail":
            found[-1] = found[-1]._replace(event=event, failed=True)
        found[-1].results.update(dict.fromkeys([gpu] if gpu else listed, result))
    return found
