"""What people really hand in: archives, half lines, other encodings, endless lines, colours,
quotations, ranks out of order."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile

import pytest
from job_diagnosis import diagnose

from unhang.cli import main
from unhang.core.errors import UserError
from unhang.jobs.diagnose.logs.line_prefixes import parse_prefix
from unhang.jobs.diagnose.logs.reading import LONGEST_LINE, Input, read_blocks
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_signatures

SIEVE = Sieve(load_signatures())
SHM = (
    "pod:4:5 [1] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab to 33030532"
    " bytes, error: No space left on device (28)"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB."


def watchdog(rank, seq=7, op="ALLREDUCE", numel=1):
    return (
        f"[rank{rank}]:[E105 10:31:12.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel},"
        f" NumelOut={numel}, Timeout(ms)=600000) ran for 600079 milliseconds before timing out."
    )


def scan(data: bytes):
    about = Input("log")
    return scan_blocks(read_blocks(io.BytesIO(data), about), "log", SIEVE), about


def first_cause(answer):
    return answer["causes"][0]["cause"] if answer["causes"] else None


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("log", bytes)],
)
def test_archive_reads_like_what_is_in_it(tmp_path, suffix, pack):
    log = tmp_path / f"job.{suffix}"
    log.write_bytes(pack((SHM + "\n").encode()))
    answer = diagnose([str(log)])
    assert first_cause(answer) == "shm_too_small" and answer["inputs"][0]["lines"] == 1


def test_archive_that_breaks_off_gives_what_it_held_and_says_so(tmp_path):
    noise = random.Random(1)
    lines = [SHM] + [f"noise {noise.random()}" for _ in range(30_000)]
    log = tmp_path / "job.log.gz"
    log.write_bytes(gzip.compress("\n".join(lines).encode())[:-2000])
    answer = diagnose([str(log)])
    assert first_cause(answer) == "shm_too_small"
    assert any("broke off" in note for note in answer["inputs"][0]["notes"])


def test_archive_of_which_only_the_head_is_there_is_no_plain_empty_file(tmp_path, capsys):
    log = tmp_path / "job.log.gz"
    log.write_bytes(gzip.compress(SHM.encode())[:10])
    assert main(["diagnose", str(log)]) == 2
    assert (
        "the log is an empty file that was not read whole: it broke off after 0 bytes"
        in capsys.readouterr().err
    )


def test_folder_of_one_file_per_rank_is_one_job(tmp_path):
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(
            watchdog(rank, op="BROADCAST" if rank == 2 else "ALLREDUCE") + "\n"
        )
    answer = diagnose([str(tmp_path)])
    assert len(answer["inputs"]) == 4 and first_cause(answer) == "rank_desync_app"
    assert answer["facts"]["ranks"]["arrived"] == [0, 1, 2, 3]


def test_name_that_is_not_there_is_reported_in_one_line():
    with pytest.raises(UserError, match="no folder of logs at /no/such"):
        diagnose(["/no/such/log"])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_other_encodings_are_read(tmp_path, encoding):
    log = tmp_path / "job.log"
    log.write_bytes(f"Größe unbekannt é\n{SHM}\n".encode(encoding))
    assert first_cause(diagnose([str(log)])) == "shm_too_small"


def test_binary_file_is_named_and_left_alone(tmp_path):
    (tmp_path / "core").write_bytes(bytes(range(256)) * 400)
    (tmp_path / "job.log").write_text(SHM + "\n")
    answer = diagnose([str(tmp_path)])
    assert [one["kind"] for one in answer["inputs"]] == ["binary", "log"]
    assert first_cause(answer) == "shm_too_small"


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        (".tar.gz", "tar archive and was not read; unpack it"),
        (".zip", "zip archive"),
        (".log.zst", "zstd -dc FILE"),
    ],
)
def test_an_archive_says_how_its_logs_are_read(tmp_path, capsys, ending, how):
    log, archive = tmp_path / "job.log.gz", tmp_path / f"logs{ending}"
    log.write_bytes(gzip.compress(random.Random(7).randbytes(20_000)))
    if ending == ".tar.gz":
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(log)
    elif ending == ".zip":
        with zipfile.ZipFile(archive, "w") as packed:
            packed.write(log)
    else:
        archive.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(range(256)) * 40)
    assert main(["diagnose", str(archive)]) == 2
    assert how in capsys.readouterr().err


def test_the_number_of_a_job_is_answered_with_the_place_of_its_log(capsys):
    assert main(["diagnose", "4711"]) == 2
    assert "scontrol show job 4711 (StdOut); by default slurm-4711.out" in capsys.readouterr().err


def test_zeros_that_a_crash_left_in_a_log_do_not_hide_it(tmp_path):
    log = tmp_path / "job.log"
    log.write_bytes(b"\0" * 200_000 + b"\n" + SHM.encode() + b"\n" + b"\0" * 4096)
    assert first_cause(diagnose([str(log)])) == "shm_too_small"


def test_line_of_fifty_megabytes_is_cut_and_the_next_line_is_read():
    class Endless(io.RawIOBase):
        """50 MB without a line end, then a message, made as it is read."""

        def __init__(self):
            self.left = 50 * 1024 * 1024
            self.tail = b"\n" + SHM.encode() + b"\n"

        def read(self, size=-1):
            if self.left:
                now = min(size, self.left)
                self.left -= now
                return b"x" * now
            tail, self.tail = self.tail, b""
            return tail

    about = Input("log")
    found = scan_blocks(read_blocks(Endless(), about), "log", SIEVE)
    assert [
        (event.signature.id, event.line)
        for event in found.events
        if event.signature.id == "nccl-shm-extend-failed"
    ] == [("nccl-shm-extend-failed", 2)]
    assert about.lines == 2 and any("line 1 is longer" in note for note in about.notes)


def test_line_that_is_a_byte_too_long_is_cut():
    about = Input("log")
    data = b"x" * (LONGEST_LINE + 1) + b"\nrest\n"
    lines = [line for block in read_blocks(io.BytesIO(data), about) for line in block.lines]
    assert lines == [b"x" * LONGEST_LINE, b"rest"] and "was cut" in about.notes[0]


def test_redrawn_parts_have_the_number_of_their_line_wherever_returns_stand():
    noise = random.Random(9)
    for _ in range(400):
        ends = [b"\r", b"\n", b"\r\n", b"\r\r", b"\n\r", b"\r\r\n", b"\n\n", b""]
        data = b"".join(
            noise.choice(ends) + noise.choice([b"a", b"bc", b""])
            for _ in range(noise.randint(1, 30))
        )
        expected = []
        for number, line in enumerate(
            (data.replace(b"\r\n", b"\n").removesuffix(b"\n")).split(b"\n"), 1
        ):
            expected += [
                (number, part) for part in [part for part in line.split(b"\r") if part] or [b""]
            ]
        read = [
            (block.number(index), line)
            for block in read_blocks(io.BytesIO(data), Input("log"))
            for index, line in enumerate(block.lines)
        ]
        assert read == (expected if data else []), data


def test_message_far_to_the_right_of_redrawn_progress_is_not_cut_off():
    bar = "\r".join(f"step {number}" for number in range(5000))
    found, _about = scan(f"{bar}\r{OOM}\n".encode())
    assert any(event.signature.id == "cuda-out-of-memory" for event in found.events)


def test_windows_line_ends_count_as_one():
    found, about = scan(f"a\r\nb\r\n{OOM}\r\n".encode())
    assert about.lines == 3 and [
        event.line for event in found.events if event.signature.id == "cuda-out-of-memory"
    ] == [3]


def test_colours_and_links_of_terminals_are_taken_out():
    coloured = OOM.replace("CUDA out", "CUDA \x1b[1;31mout\x1b[0m").replace(
        "memory", "\x1b]8;;https://x\x07memory\x1b]8;;\x07"
    )
    found, _about = scan(coloured.encode() + b"\n")
    assert any(
        event.signature.id == "cuda-out-of-memory" and "\x1b" not in event.text
        for event in found.events
    )


def test_ranks_of_a_large_job_out_of_order_are_all_heard():
    lines = [watchdog(rank) for rank in range(512)]
    random.Random(3).shuffle(lines)
    answer_facts = _facts("\n".join(lines))
    assert (
        answer_facts["ranks"]["arrived"] == list(range(512))
        and answer_facts["ranks"]["world_size"] == 512
    )
    assert len(answer_facts["collectives"]) == 1


def test_rank_that_is_missing_in_a_large_job_is_named():
    lines = ["using world size: 512, data-parallel size: 512"] + [
        watchdog(rank) for rank in range(512) if rank != 137
    ]
    assert _facts("\n".join(lines))["ranks"]["not_arrived"] == [137]


def _facts(text):
    from unhang.jobs.diagnose.log_facts import describe, gather_facts

    found, _about = scan(text.encode())
    return describe(gather_facts([found]))


@pytest.mark.parametrize(
    "line",
    [
        '    raise RuntimeError("CUDA out of memory. Tried to allocate")',
        "$ dmesg | grep 'CUDA out of memory'",
        "+ grep -c 'CUDA out of memory' job.log",
        "> torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB",
        '{"id": 3, "text": "why do I get CUDA out of memory with batch 8?"}',
    ],
)
def test_quotation_of_an_error_is_no_error_of_this_job(tmp_path, line):
    log = tmp_path / "job.log"
    log.write_text(f"step 1 | loss 2.0\n{line}\nstep 2 | loss 1.9\n")
    assert not diagnose([str(log)])["found"]


def test_log_that_was_pasted_as_a_quotation_as_a_whole_is_the_log_that_is_meant(tmp_path):
    log = tmp_path / "ticket.md"
    log.write_text(
        "Hello, this is what I get:\n> $ torchrun a.py\n> torch.OutOfMemoryError: CUDA out of"
        " memory. Tried to allocate 1 GiB\nThanks\n"
    )
    assert first_cause(diagnose([str(log)])) == "oom"


def test_error_in_a_log_that_a_container_runtime_wrapped_in_json_is_an_error(tmp_path):
    log = tmp_path / "c-json.log"
    log.write_text('{"log":"' + OOM + '\\n","stream":"stderr","time":"2026-01-05T10:00:00Z"}\n')
    assert first_cause(diagnose([str(log)])) == "oom"


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("2024-04-02T02:17:58.120044871Z text", 1712024278.120044871),
        ("[2024-04-02 10:17:58,120] [INFO] text", 1712053078.120),
        ("2024-04-02T04:17:58+02:00 h kernel: x", 1712024278),
        ("07/09/2024 05:30:02 [INFO] text", 1720503002),
        ("[Tue Apr  8 02:37:51 2025] NVRM: x", 1744079871),
        ("[1671442880.204417] [login3:7:0] UCX ERROR", 1671442880.204417),
        (
            "[rank1]:[E1014 08:07:52.118204455 ProcessGroupNCCL.cpp:607] x",
            24739672.118204455,
        ),
        ("[rank1]:[E602 04:51:18.440120933 ProcessGroupNCCL.cpp:616] x", 13150278.440120933),
        ("Aug 21 06:40:10 hgx-03 kernel: x", 20068810),
        ("INFO 06-19 14:02:11 llm_engine.py:161] x", 14652131),
        ("[ 5118.470661] NVRM: x", None),
        ("no stamp at all", None),
        ("2024-13-45 99:99:99 not a date", None),
    ],
)
def test_stamps_of_many_formats_are_read_and_none_is_invented(line, seconds):
    found = parse_prefix(line, len(line))
    at_s = found.time.at_s if found.time else None
    assert at_s == (None if seconds is None else pytest.approx(seconds, abs=1e-5))


@pytest.mark.parametrize(
    ("line", "host", "rank"),
    [
        ("gpu007:88:99 [3] NCCL INFO x", "gpu007", None),
        ("[1,12]<stdout>:gpu007:88:99 [3] NCCL INFO x", "gpu007", ~12),
        ("[rank5]:[E105 10:00:00.1 x.cpp:1] [Rank 5] y", None, 5),
        ("Aug 21 06:40:10 hgx-03 kernel: NVRM: x", "hgx-03", None),
        ("3: some output of srun -l", None, ~3),
        ("[default2]:[E ProcessGroupNCCL.cpp:475] x", None, ~2),
        ("ndv4-027 | ERROR: nhc: x", "ndv4-027", None),
    ],
)
def test_host_and_rank_are_taken_from_what_stands_before_the_message(line, host, rank):
    found = parse_prefix(line, len(line))
    assert (found.host, found.rank) == (host, rank)
