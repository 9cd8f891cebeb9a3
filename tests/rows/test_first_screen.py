"""The first screen of a diagnosis: at most twelve lines of every recorded log, one command to paste,
and what was read and what was not where nothing is named."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang import cli
from unhang.core.verdict.answer import render_evidence, screen_of
from unhang.core.verdict.screen import render_screen
from unhang.core.verdict.waited_rows import Beside, waited_for_row
from unhang.core.verdict.waiting import LAUNCHED, Group, Step, waited_for
from unhang.jobs.diagnose.answer import answer_of
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_causes

FIXTURES = Path(__file__).parents[1] / "fixtures"
LOGS = sorted(FIXTURES.glob("diagnose/*/*.log"))
WATCHDOG = (
    "[rank{0}]:[E1021 23:14:07.5 ProcessGroupNCCL.cpp:685] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
    " Timeout(ms)=600000) ran for 600040 milliseconds before timing out.\n"
)


def screen(path: Path | str, width: int = 100) -> list[str]:
    return render_screen(screen_of(answer_of(diagnose([str(path)]))), width).splitlines()


def command_in(lines: list[str]) -> str:
    """The line below `next:`."""
    at = next(number for number, line in enumerate(lines) if re.match(r"next(, on \S+)?:$", line))
    return lines[at + 1].strip()


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_screen_has_more_than_twelve_lines_and_each_has_one_command_that_a_shell_reads(log):
    answer = diagnose([str(log)])
    if answer["outcome"]["word"] == "nothing":  # one page says what to bring
        return
    whole = screen_of(answer_of(answer))
    for width in (60, 100, 160):
        lines = render_screen(whole, width).splitlines()
        assert len(lines) <= 12, "\n".join(lines)
        text = " ".join("".join(lines).split())
        own = (whole.headline, *whole.advice[:1], whole.next_tells) if width > 60 else ()
        assert [one for one in own if one not in text] == []
        assert sum(line.startswith("next") for line in lines) == 1
        command = command_in(lines)
        assert not re.search("PID|{pid}", command)
        done = subprocess.run(
            ["bash", "-n", "-c", command], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), command


def test_a_log_without_an_end_sends_to_the_job_first():
    """But for a kernel log and the output of a machine's tools, which are of no job; of one that has
    ended, to what looks at its next start."""
    sent = [
        command_in(lines)
        for log in LOGS
        if (lines := screen(log))[0].startswith("not decided")
        and log.stem
        not in "aer-and-bus-messages boot-messages dcgmi-diag ibstat-unused-port kernel-boot-fm-ok"
        " ulimit-and-df"
    ]
    assert len(sent) > 10
    assert [one for one in sent if not one.startswith(("unhang inspect", "unhang watch"))] == []


def test_every_log_that_names_a_cause_shows_its_line_and_how_certain_it_is():
    shown = 0
    for log in LOGS:
        answer = diagnose([str(log)])
        causes = [one for one in answer["causes"] if one["severity"] != "info"]
        if answer["outcome"]["word"] != "cause" or not any(
            one["line"] for one in causes[0]["evidence"]
        ):
            continue
        text = "\n".join(screen(log, 160))
        assert causes[0]["certainty"] in text.splitlines()[0] + text.splitlines()[1]
        assert any(
            f"{Path(one['file']).name}:{one['line']}" in text for one in causes[0]["evidence"]
        ), text
        shown += 1
    assert shown > 50


@pytest.mark.parametrize(
    ("text", "command", "host"),
    [
        ("Feb 01 11:00:01 n1 kernel: NVRM: Xid (PCI:0000:c7:00): 79, pid=8, GPU has fallen off the"
         " bus.\n", "nvidia-smi -i 0000:c7:00.0 -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT", "n1"),
        ((FIXTURES / "diagnose" / "healthy" / "aer-and-bus-messages.log").read_text(),
         "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT,PERFORMANCE", None),
        ("+ torchrun --nproc-per-node 8 /job/train.py --lr 1\nNCCL version 2.21.5+cuda12.4\n"
         "step 1 | loss 2.0\n" + WATCHDOG.format(0) + WATCHDOG.format(1),
         'unhang inspect --pid "$(pgrep -of train.py)"', None),
        ("step 1 | loss 2.0\n" + WATCHDOG.format(0) + "srun: error: n1: task 0: Aborted (core dumped)\n",
         "unhang watch --all --on-hang dump", None),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVRM version: NVIDIA UNIX"
         " x86_64 Kernel Module  535.54.03\n",
         "cat /proc/driver/nvidia/version; nvidia-smi | head -4", None),
    ],
)  # fmt: skip
def test_the_command_fits_what_was_read(text, command, host):
    then = diagnose_text(text)["next"]
    assert (then["command"], then["host"]) == (command, host)


def test_a_value_from_a_log_that_a_shell_would_run_is_not_in_the_command():
    answer = diagnose_text("OSError: [Errno 28] No space left on device: '/data/$(reboot)/x'\n")
    assert answer["causes"][0]["cause"] == "disk_full"
    assert answer["next"]["command"] == "df -h; df -i"


def test_without_an_end_the_screen_says_what_was_read_and_what_was_not(tmp_path):
    (tmp_path / "job.log").write_text("step 1 | loss 2.0\nstep 2 | loss 1.9\n")
    lines = screen(tmp_path / "job.log")
    assert lines[0].startswith("not decided: ")
    assert "  read: job.log (2 lines)" in lines
    assert "  not given: the kernel's log, stacks, a flight recorder's dump" in lines
    assert command_in(lines) == "unhang inspect"


def test_what_to_do_comes_before_the_line_that_shows_it_and_each_kind_of_evidence_has_one(tmp_path):
    line = "n{0}:7:7 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n"
    (tmp_path / "job.log").write_text(line.format(1) + line.format(2))
    headline, do, *_ = lines = screen(tmp_path / "job.log", 160)
    assert headline.startswith("/dev/shm is too small") and do.startswith("  if so (owner: sre): ")
    assert [one for one in lines if "posix_fallocate" in one] == [lines[3]]
    assert "  because " in lines[4]


@pytest.mark.parametrize(
    ("file", "label", "host"),
    [
        ("node-{1}-rank{0}.log", "", ["host node-a"]),
        ("node-{1}/rank{0}.log", "", ["host node-a"]),
        ("{0}.log", "node-{1}7: ", ["host node-a7"]),
        ("logs-{1}/attempt_0/{0}/stderr.log", "", []),
    ],
)
def test_a_rank_is_named_with_its_host(tmp_path, file, label, host):
    line = (
        f"{label}[rank{{0}}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    )
    for rank, name in enumerate("ab"):
        path = tmp_path / file.format(rank, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line.format(rank, name))
    where = diagnose([str(tmp_path)])["causes"][0]["where"]
    assert [one for one in where if one.startswith("host ")] == host


def test_only_where_storage_fails_a_disk_or_mount_is_mended():
    for found, mends in (
        (diagnose([str(FIXTURES / "diagnose_joined" / "never" / "stacks")]), False),
        (diagnose_text("[ 7.2] EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455\n"), True),
    ):
        cause = found["causes"][0]
        assert (cause["cause"], "mount" in cause["remedy"]["person"]) == ("slow_rank_or_io", mends)


def test_the_short_form_has_the_lines_of_an_undecided_job_each_once(tmp_path):
    for rank, host in enumerate(("n1", "n2")):
        (tmp_path / f"{host}-rank{rank}.log").write_text(f"step 1 | loss {rank}.5\n")
    short = json.loads(render_evidence(answer_of(diagnose([str(tmp_path)]))))
    shown = [(one["text"], one["line"], one["host"]) for one in short["lines"]]
    assert shown == [("step 1 | loss 0.5", 1, "n1"), ("step 1 | loss 1.5", 1, "n2")]
    short = json.loads(render_evidence(answer_of(diagnose_text(WATCHDOG.format(0)))))
    assert len(short["consequences"]) == 1 and short["lines"] == []


def test_a_healthy_job_is_told():
    lines = screen(FIXTURES / "diagnose" / "healthy" / "nccl-tests.log")
    assert lines[0].startswith("HEALTHY: ") and command_in(lines).startswith("unhang watch")


def test_a_file_that_could_not_be_read_is_named(tmp_path):
    (tmp_path / "job.log").write_text("step 1 | loss 2.0\n")
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
    answer = diagnose([str(tmp_path / "job.log"), str(tmp_path / "core")])
    text = render_screen(screen_of(answer_of(answer)))
    assert "  not read: core (" in text


def test_the_rest_stands_behind_v(tmp_path, capsys):
    log = FIXTURES / "diagnose" / "slow_rank_or_io" / "nfs.log"
    assert cli.main(["diagnose", str(log)]) == 1
    short = capsys.readouterr().out
    assert cli.main(["diagnose", "-v", str(log)]) == 1
    whole = capsys.readouterr().out
    assert len(short.splitlines()) <= 12 < len(whole.splitlines())
    assert whole.startswith(short)
    for words in ("WHAT HAPPENED", "source: https://", "read "):
        assert words in whole and words not in short.replace("read only", "")


def test_who_is_waited_for_heads_the_screen_of_a_document_that_has_it():
    answer = diagnose_text("step 1 | loss 2.0\n")
    group = Group("mesh_tp", (0, 1, 2, 3), 4)
    steps = [Step(rank, "mesh_tp", "ALLREDUCE", 7, LAUNCHED) for rank in (0, 1, 3)]
    row = waited_for_row(waited_for([group], steps, seen=range(4)), Beside(hosts={2: "gpu07"}))
    text = render_screen(
        screen_of(answer_of({**json.loads(json.dumps(answer)), "waited_for": row}))
    )
    assert text.splitlines()[0] == (
        "rank 2 (gpu07) is waited for: 3 of 4 ranks of mesh_tp wait in ALLREDUCE #7   likely"
    )
    assert "next, on gpu07:\n  unhang inspect\n" in text


def test_each_cause_has_a_command_that_needs_no_value_and_none_that_changes_anything():
    changes = re.compile(
        r"\b(rm|kill|pkill|setpci|modprobe|reboot|systemctl (?!status|show)|--gpu-reset)\b"
    )
    for cause, row in load_causes().items():
        rows = row.get("commands", ())
        assert not rows or not re.search(r"\{[a-z]+\}", rows[-1]["run"].replace("{}", "")), cause
        for one in rows:
            assert not changes.search(one["run"]), one
            assert "MASTER" not in one["run"] + one["tells"]
            done = subprocess.run(
                ["bash", "-n", "-c", one["run"]], capture_output=True, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (0, b""), one


def test_a_log_of_the_kernel_asks_for_no_stacks_of_ranks():
    answer = diagnose([str(FIXTURES / "diagnose" / "healthy" / "aer-and-bus-messages.log")])
    assert answer["outcome"]["word"] == "no_end"
    assert [one.split("\n")[0] for one in answer["collect_next"]] == ["unhang audit"]
    assert "py-spy" not in json.dumps(answer)


@pytest.mark.parametrize("name", ["vllm-serving", "vllm-eight-ranks"])
def test_a_server_s_log_asks_nothing_about_master_addr(name):
    log = FIXTURES / "diagnose" / "healthy" / f"{name}.log"
    for text in (log.read_text(), log.read_text().partition("Application startup complete")[0]):
        answer = diagnose_text(text)
        assert "MASTER_ADDR" not in json.dumps([answer["collect_next"], answer["next"]])
