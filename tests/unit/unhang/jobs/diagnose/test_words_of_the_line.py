"""An answer fits the line that it is given for: its title, check and remedy are those of what the
line shows, not of its cause in general."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.fitting_remedies import own_words
from unhang.jobs.diagnose.meaning.evidence import Evidence

EFA = (
    "ncclInternalError: Internal check failed. | NET/OFI Unable to insert remote address into"
    " address vector for device 1"
)
REFUSED = (
    "(gcs_server) gcs_health_check_manager.cc:203: Health check failed for node 3, status 14,"
    " status message failed to connect to all addresses; last error: UNKNOWN:"
    " ipv4:xx.xx.xx.xx:39926: Failed to connect to remote host: Connection refused, status details"
)
CASES = {  # line -> (words of the answer, words of the cause that do not fit the line)
    EFA: ("security group", "subnet manager"),
    "RuntimeError: CUDA error: invalid device ordinal": ("no more processes", "init_process_group"),
    "RuntimeError: CUDA error: peer mapping resources exhausted": (
        "at most eight",
        "consumer cards",
    ),
    REFUSED: (
        "whether the process at that address runs",
        "ip_local_port_range",
    ),
}


def shown(found):
    first = found["causes"][0]
    return " ".join(
        [first["title"], first["means"], *first["collect"][:1], first["remedy"]["person"]]
    )


@pytest.mark.parametrize(("line", "words"), CASES.items(), ids=range(len(CASES)))
def test_answer_has_the_words_of_the_line(line, words):
    wanted, unfit = words
    answer = shown(diagnose_text(f"{line}\n"))
    assert wanted in answer
    assert unfit not in answer


def test_words_are_those_of_the_strongest_evidence_and_of_its_own_cause():
    known = Evidence("unsupported_p2p_geforce", 1.0, "", (), "cuda-too-many-peers")
    assert "peers" in own_words("unsupported_p2p_geforce", [known])["title"]
    assert (
        own_words(
            "unsupported_p2p_geforce",
            [known, Evidence("unsupported_p2p_geforce", 2.0, "", (), "stronger-without-words")],
        )
        == {}
    )
    assert own_words("acs_iommu", [known]) == {}


def test_role_stays_where_the_words_keep_it_and_goes_where_the_line_shows_something_else():
    kept = diagnose_text(
        "# reporter: since the driver update to 545.23.08 two GPUs hang, with 535 it works\nDriver"
        " Version: 545.23.08\n"
    )
    remedy = next(one["remedy"] for one in kept["causes"] if one["cause"] == "driver_p2p_bug")
    assert (
        remedy["role"] == "gpu_driver" and remedy["variables"]["driver"]["version"] == "535.154.05"
    )
    assert (
        "role"
        not in diagnose_text("RuntimeError: CUDA error: peer mapping resources exhausted\n")[
            "causes"
        ][0]["remedy"]
    )


def test_line_that_speaks_for_several_causes_leaves_each_its_own_words():
    """Situation 2 as people tell it: the driver comes first, with its own title and the release
    that cured it."""
    found = diagnose_text(
        "2x RTX 3090, training stuck at 100% GPU since driver 545.23.08. Downgrading to 535 makes"
        " it work. NCCL_P2P_DISABLE=1 also works.\n"
    )
    first = found["causes"][0]
    assert first["title"] == "Peer-to-peer between GPUs does not work with this driver"
    assert first["remedy"]["variables"]["driver"]["version"] == "535.154.05"
    assert len({one["title"] for one in found["causes"]}) == len(found["causes"])


@pytest.mark.parametrize(
    "heading",
    [
        "Training hangs after an NCCL error",
        "Does it fail with two GPUs?",
        "It never fails",
        "No errors, but slow",
    ],
)
def test_heading_of_a_hang_or_a_question_makes_no_failure(heading):
    assert (
        diagnose_text(f"{heading}\n\nI start it with python3 serve.py --tp 2.\n")["outcome"]["word"]
        != "failure"
    )


def test_last_traceback_that_is_cut_is_no_nameless_failure_where_one_before_it_is_whole():
    cut = (
        'Traceback (most recent call last):\n  File "train.py", line 174, in <module>\n    main()\n'
    )
    found = diagnose_text(
        f"{cut}RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:388, invalid argument\n{cut}"
    )
    assert "not in the log" not in found["outcome"]["why"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing it.",
            "leaves no GPU memory",
        ),
        (
            (
                "ValueError: at least one request needs 10.00 GiB KV cache is needed, which is"
                " larger than the available KV cache memory (6.11 GiB)."
            ),
            "smaller than one",
        ),
    ],
)
def test_cache_that_is_too_small_is_not_a_cache_without_memory(line, title):
    assert title in diagnose_text(line)["causes"][0]["title"]
