"""The files of a job beside its log: what they say is evidence where the log fits it and leaves the
cause open, and nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from job_diagnosis import diagnose

from unhang import cli
from unhang.jobs.diagnose.diagnosing import MOST_JOB_FILES
from unhang.jobs.diagnose.meaning.conclusion import NO_LOG
from unhang.jobs.lint.job_kinds import job_kind

PAIRS = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures" / "diagnose_job_files" / "held_back.yml").read_text()
)
STUCK = (
    "[rank1]:[E1122 10:10:01.412 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576,"
    " Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
)
PARTED = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
CLEAN = (
    "import torch.distributed as dist\nif dist.get_rank() == 0:\n   "
    " print('ready')\ndist.barrier()\n"
)
POD = """kind: Pod
spec:
  containers:
  - command: [torchrun, --nnodes=2, --nproc_per_node=4, train.py]
    env: [{name: NCCL_DEBUG, value: INFO}]
"""
HEALTHY = "step 10 loss 2.1\nstep 20 loss 1.9\nTraining completed successfully\n"


@pytest.fixture
def answer(tmp_path):
    def answer(**files):
        """The diagnosis of files by name; __ replaces a dot."""
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return diagnose([str(tmp_path / name.replace("__", ".")) for name in files])

    return answer


def first(found):
    return next((one["cause"] for one in found["causes"] if one["severity"] != "info"), None)


def places(found):
    return (
        {f"{Path(one['file']).name}:{one['line']}" for one in found["causes"][0]["evidence"]}
        if found["causes"]
        else set()
    )


@pytest.mark.parametrize("pair", PAIRS, ids=[pair["id"] for pair in PAIRS])
def test_cause_is_named_with_the_line_of_the_file(pair, tmp_path):
    for name, text in pair["files"].items():
        (tmp_path / name).write_text(text)
    found = diagnose([str(tmp_path / name) for name in pair["files"]])
    assert first(found) == pair["cause"]
    assert pair["names"] is None or pair["names"] in places(found)


def test_answer_has_the_line_of_the_log_and_what_to_write_instead(answer):
    found = answer(job__log=STUCK, train__py=PARTED)
    assert {"train.py:3", "job.log:1"} <= places(found)
    assert [
        (Path(place).name, how[:25]) for place, how in found["causes"][0]["remedy"]["how"].items()
    ] == [("train.py:3", "call it on every rank, an")]
    assert [one["kind"] for one in found["inputs"]] == ["log", "job"]
    assert found["inputs"][1]["notes"] == ["unhang lint: line 3 collective-on-some-ranks"]


def test_file_raises_nothing_without_a_line_of_the_log_that_fits(answer):
    alone = answer(job__log=HEALTHY)
    found = answer(job__log=HEALTHY, train__py=PARTED)
    assert found["outcome"] == alone["outcome"] and found["outcome"]["word"] == "healthy"
    assert found["causes"] == []


def test_log_that_stops_in_silence_gets_a_remark_and_no_finding(answer):
    silent = "step 10 loss 2.1\nstep 20 loss 1.9\nstep 30 loss 1.8\n"
    found = answer(job__log=silent, train__py=PARTED)
    assert found["outcome"]["word"] == "no_end"
    assert [(one["cause"], one["severity"]) for one in found["causes"]][:1] == [
        ("rank_desync_app", "info")
    ]
    assert answer(job__log=silent, train__py=CLEAN)["causes"] == answer(job__log=silent)["causes"]


def test_what_the_log_decides_is_not_changed(answer):
    decided = (
        STUCK.replace("[rank1]", "[rank0]")
        + "n1:3:3 [0] init.cc:495 NCCL WARN Duplicate GPU detected : rank 3 and rank 0 both on CUDA"
        " device 1000\n"
    )
    alone, found = answer(job__log=decided), answer(job__log=decided, train__py=PARTED)
    assert first(alone) == first(found) == "rank_device_mapping"
    assert [one["cause"] for one in alone["causes"]] == [one["cause"] for one in found["causes"]]


def test_rank_that_failed_first_is_the_cause_whatever_the_script_does(answer):
    failed = "[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'labels'\n" + STUCK
    assert (
        first(answer(job__log=failed, train__py=PARTED))
        == first(answer(job__log=failed))
        == "rank_failed"
    )


def test_process_that_was_killed_first_is_not_explained_by_the_script(answer):
    killed = "step 10 loss 2\nError: rank 2 exited with exit code 137\n" + STUCK
    found = answer(job__log=killed, train__py=PARTED)
    assert "train.py:3" not in {
        f"{Path(one['file']).name}:{one['line']}"
        for cause in found["causes"]
        for one in cause["evidence"]
    }


def test_limit_of_a_file_counts_only_where_it_is_the_one_that_ran_out(answer):
    script = (
        "from datetime import timedelta\ndist.init_process_group('nccl',"
        " timeout=timedelta(seconds=60))\n"
    )
    short = STUCK.replace("600000", "60000").replace("600031", "60031")
    assert "train.py:2" in {
        f"{Path(one['file']).name}:{one['line']}"
        for cause in answer(job__log=short, train__py=script)["causes"]
        for one in cause["evidence"]
    }
    other = answer(job__log=STUCK, train__py=script)
    assert "train.py:2" not in {
        f"{Path(one['file']).name}:{one['line']}"
        for cause in other["causes"]
        for one in cause["evidence"]
    }


def test_text_that_is_no_log_stays_so_beside_a_script(answer):
    assert (
        answer(notes__log="hello world\n", run__sh="#!/bin/bash\nexport NCCL_DEBUG=INFO\n")[
            "outcome"
        ]["word"]
        == "nothing"
    )


def test_ranks_that_all_wait_in_one_collective_are_not_parted(answer):
    everyone = (
        "torchrun --nproc_per_node=2 train.py\n"
        + STUCK
        + STUCK.replace("ank1", "ank0").replace("ank 1", "ank 0")
    )
    assert "train.py:3" not in places(answer(job__log=everyone, train__py=PARTED))


@pytest.mark.parametrize("where", ["job.log", "train.sbatch"])
def test_setting_of_the_log_counts_before_that_of_a_script(answer, where):
    text = {
        "job.log": "n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 0.\n" + STUCK,
        "train.sbatch": STUCK,
    }[where]
    found = answer(job__log=text, train__sbatch="#!/bin/bash\nexport NCCL_P2P_DISABLE=1\n")
    shown = [
        (one["name"], one["value"], Path(one["file"]).name) for one in found["facts"]["settings"]
    ]
    assert shown == [("NCCL_P2P_DISABLE", "0" if where == "job.log" else "1", where)]


def test_words_of_a_script_are_no_messages_of_the_job(answer):
    message = "NCCL WARN Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 1000"
    script = (
        "#!/bin/bash\n# RuntimeError: CUDA error: an illegal memory access\nsort <<<"
        f" x\n{message}\n"
    )
    assert answer(job__log=HEALTHY, run__sh=script)["outcome"]["word"] == "healthy"
    assert (
        answer(job__log=HEALTHY, train__py=f'raise RuntimeError("{STUCK.strip()}")\n')["outcome"][
            "word"
        ]
        == "healthy"
    )


def test_sharded_save_counts_where_a_configuration_shards_the_model(answer):
    script = (
        "from accelerate import Accelerator\naccelerator = Accelerator()\nif"
        " accelerator.is_main_process:\n    accelerator.get_state_dict(m)\n"
    )
    assert "train.py:4" not in places(answer(job__log=STUCK, train__py=script))
    found = answer(job__log=STUCK, train__py=script, ds__json='{"zero_optimization": {"stage": 3}}')
    assert first(found) == "rank_desync_app" and "train.py:4" in places(found)


def test_memory_of_the_job_is_named_where_a_process_was_killed(answer):
    killed = "step 10 loss 2\nstep 20 loss 2\nError: rank 1 exited with exit code 137\n"
    script = "#!/bin/bash\n#SBATCH --mem=16G\nsrun python train.py\n"
    found = answer(job__log=killed, run__sbatch=script)
    assert "run.sbatch:2" in {
        f"{Path(one['file']).name}:{one['line']}"
        for cause in found["causes"]
        if cause["cause"] == "oom"
        for one in cause["evidence"]
    }


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("train.py", "x = 1\n", "python"),
        ("run.sh", "#!/bin/bash\n#SBATCH -N 2\n", "slurm"),
        ("Dockerfile.gpu", "FROM a\n", "docker"),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\n", "kubernetes"),
        ("fsdp.yaml", "compute_environment: LOCAL_MACHINE\n", "kubernetes"),
        ("ds.json", '{"zero_optimization": {"stage": 3}}', "deepspeed"),
        ("command.txt", "torchrun --nproc_per_node=8 \\\n  train.py\n", "shell"),
        ("start", "#!/bin/bash\ntorchrun train.py\n", "shell"),
        ("job.log", "#!/bin/bash\n+ torchrun train.py\n", None),
        ("slurm-1.out", "torchrun train.py\nstep 1 loss 2\n", None),
        ("label.yaml", "cause_class: oom\n", None),
        ("trace.json", '{"entries": [], "pg_config": {}}', None),
        ("train.py.gz", "x", None),
    ],
)
def test_files_of_a_job_are_known_by_name_and_first_lines(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    assert job_kind(tmp_path / name) == kind


def test_script_without_a_log_is_read_as_text_like_before(answer):
    found = answer(
        train__py=(
            "torch.distributed.DistBackendError: NCCL WARN Duplicate GPU detected : rank 3 and rank"
            " 0 both on CUDA device 1000\n"
        )
    )
    assert [one["kind"] for one in found["inputs"]] == ["log"]


def test_hostile_files_are_named_and_harm_nothing(tmp_path, capsys):
    (tmp_path / "job.log").write_text(STUCK)
    (tmp_path / "deep.py").write_text("(" * 100_000)
    (tmp_path / "zero.py").write_bytes(b"x = 1\n" * 2000 + b"\0\1")
    (tmp_path / "marks.sh").write_bytes(b"#!/bin/bash\nexport NCCL_DEBUG=\xff\x1b[31m\n")
    (tmp_path / "run.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    names = [
        str(tmp_path / name) for name in ("job.log", "deep.py", "zero.py", "marks.sh", "run.py")
    ]
    assert cli.main(["diagnose", "-o", "json", *names]) in (1, 3)
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in shown["inputs"]] == ["log", "job", "job", "job", "job"]
    assert not (tmp_path / "ran").exists()
    assert cli.main(["diagnose", *names]) in (1, 3)
    assert "\x1b" not in capsys.readouterr().out


def test_number_of_job_files_is_bounded(tmp_path):
    (tmp_path / "job.log").write_text(STUCK)
    for number in range(MOST_JOB_FILES + 3):
        (tmp_path / f"m{number:04}.py").write_text("x = 1\n")
    notes = [one["notes"] for one in diagnose([str(tmp_path)])["inputs"] if one["notes"]]
    assert notes == [[f"was not read: binary, or more than {MOST_JOB_FILES} files of the job"]] * 3


def test_empty_log_beside_a_script_is_nothing_to_read(tmp_path, capsys):
    (tmp_path / "job.log").write_text("")
    (tmp_path / "train.py").write_text(CLEAN)
    assert cli.main(["diagnose", str(tmp_path / "train.py"), str(tmp_path / "job.log")]) == 2
    assert "the log is an empty file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "is_noted"),
    [
        ("train.py", CLEAN, True), ("job.sbatch", "#SBATCH -N 4\nsrun train\n", True),
        ("job.log", STUCK, False), ("pod.yaml", POD, True),
        ("job.yml", f"{POD}status: {{}}\n", True),
        ("compose.yml", "services:\n  serve:\n    environment: [NCCL_DEBUG=INFO]\n", True),
        ("a.yaml", f"{POD}status:\n  phase: Pending\n", False),
        ("b.yaml", f"{POD}status:\n  containerStatuses:\n  - lastState: {{}}\n", False),
        ("events.yaml",
        "kind: List\nitems:\n- kind: Event\n  lastTimestamp: now\n  reason: BackOff\n", False),
        ("config.json", '{"zero_optimization": {"stage": 3}}\n', True),
        ("nccl.conf", "NCCL_DEBUG=INFO\n", True), ("notes.yaml", "a: b\n", False),
    ],
)  # fmt: skip
def test_script_without_a_log_is_reported_as_one(tmp_path, name, text, is_noted):
    (tmp_path / name).write_text(text)
    (about,) = diagnose([str(tmp_path / name)])["inputs"]
    assert (about["kind"], about["notes"] == [NO_LOG]) == ("log", is_noted)


def test_scripts_alone_are_no_log_that_stops(tmp_path, capsys):
    for name, text in (
        ("train.py", f"{CLEAN}import torch.distributed\n"),
        ("job.sbatch", "export NCCL_DEBUG=INFO\ntorchrun --nproc-per-node=8 train.py\n"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "pod.yaml").write_text(POD)
    assert cli.main(["diagnose", str(tmp_path / "pod.yaml")]) == 2
    assert (
        "there is no log of a job, only what starts a job; unhang lint checks it"
        in capsys.readouterr().err
    )
    assert cli.main(["diagnose", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert (
        "there is no log of a job, only what starts a job; unhang lint checks it" in shown.err
        and shown.out == ""
    )
    (tmp_path / "job.sbatch").write_text(STUCK)
    assert diagnose([str(tmp_path)])["outcome"]["word"] != "nothing"


def test_log_alone_is_read_without_lint(tmp_path):
    log = tmp_path / "job.log"
    log.write_text(STUCK)
    program = (
        "import sys\nfrom unhang import cli\ncli.main(['diagnose', '-q',"
        f" {str(log)!r}])\nprint([name for name in sys.modules if 'unhang.jobs.lint' in name])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    # which files are of a job, and no more
    assert shown.stdout.strip() == "['unhang.jobs.lint', 'unhang.jobs.lint.job_kinds']"
