"""Masking, Markdown, the table, the command and the join with an audit."""

from __future__ import annotations

import json

import pytest
from job_diagnosis import diagnose

from unhang import cli
from unhang.core.redact import Mask, redacted
from unhang.jobs.diagnose.rendering import render_table

LOG = (
    "gpu-secret-07:88:99 [3] NCCL INFO Bootstrap : Using ens3:10.20.30.40<0>\n"
    "gpu-secret-08:88:99 [3] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.20.30.40<41117> failed : No route to host\n"
    "2026-01-05 10:00:00 gpu-secret-07.corp.example.com HF_TOKEN=hf_abcdefghijklmnopqrst RuntimeError: CUDA out of memory. Tried\n"
    "ERROR user anna in /home/anna/run: RuntimeError: CUDA error: uncorrectable ECC error encountered password=hunter22\n"
)


def written(tmp_path, text=LOG):
    log = tmp_path / "job.log"
    log.write_text(text)
    return str(log)


def test_mask_takes_hosts_addresses_users_and_secrets_out_and_keeps_one_name_for_each(tmp_path):
    shown = json.dumps(redacted(diagnose([written(tmp_path)])))
    for word in ("gpu-secret", "10.20.30.40", "hf_abcdefghijklmnopqrst", "hunter22", "/home/anna"):
        assert word not in shown
    assert (
        "<host-1>" in shown
        and "<host-2>" in shown
        and "<ip-1>" in shown
        and "<ip-2>" not in shown
        and "<secret>" in shown
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdef.ghijkl-123", "Authorization: Bearer <secret>"),
        ("https://user:pa55word@git.example.org/x", "://<secret>@"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+123", "AWS_SECRET_ACCESS_KEY=<secret>"),
        ("export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "WANDB_API_KEY=<secret>"),
        ("key AKIAABCDEFGHIJKLMNOP", "key <secret>"),
        ("gid fe80::215:5dff:fe33:ff6d on mlx5_0", "gid <ip-1> on mlx5_0"),
        ("mac 02:42:ac:11:00:02", "mac <mac-1>"),
        ("GPU-11111111-2222-3333-4444-555555555555", "<gpu-1>"),
        ("mail bob@example.com", "mail <mail-1>"),
    ],
)
def test_mask_knows_what_secrets_and_addresses_look_like(text, masked):
    assert masked in Mask([]).text(text)


@pytest.mark.parametrize(
    "line",
    [
        (
            "[W socket.cpp:601] [c10d] The client socket has failed to connect to"
            " [verysecret]:29500 (errno: 110 - Connection timed out)."
        ),
        (
            "[E socket.cpp:719] [c10d] The client socket has timed out after 900s while trying to"
            " connect to (verysecret, 29500)."
        ),
        (
            "anna@verysecret:~$ MASTER_ADDR=verysecret NCCL_TIMEOUT=1 torchrun --rdzv_endpoint"
            " verysecret:29500 a.py"
        ),
        (
            "mpirun noticed that process rank 3 with PID 811 on node verysecret exited on signal 9"
            " (Killed)."
        ),
        (
            "n1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote"
            " peer verysecret.hpc.example.org<43817>"
        ),
    ],
)
def test_mask_knows_hosts_by_where_they_stand(tmp_path, line):
    answer = diagnose([written(tmp_path, line + "\n")])
    assert "verysecret" in json.dumps(answer) and "verysecret" not in json.dumps(redacted(answer))


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA out of memory for user verysecret at /home/verysecret/train.py",
        (
            "PermissionError: [Errno 13] Permission denied: '/gpfs/projects/verysecret/ck.pt' owner"
            " x@a.example.org uid=1001(verysecret)"
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/tmp/x' uid=0(root) gid=0(root)"
            " groups=0(root),1001(verysecret)"
        ),
        (
            "RuntimeError: disk quota exceeded: '/scratch/verysecret-runs/a' belongs to owner:"
            " 'verysecret'"
        ),
        "RuntimeError: could not write /scratch/verysecret_2/a, USER=verysecret",
        "RuntimeError: could not write /scratch/verysecret/a, mail to verysecret@hpc.example.org",
    ],
)
def test_mask_knows_users_by_where_they_stand_and_masks_them_everywhere(tmp_path, line):
    answer = diagnose(
        [written(tmp_path, f"{line}\nRuntimeError: no room in /scratch/verysecret/x\n")]
    )
    shown = json.dumps(redacted(answer))
    assert "verysecret" in json.dumps(answer) and "verysecret" not in shown
    assert "<user-1>" in shown and "<user-2>" not in shown


@pytest.mark.parametrize(
    "line",
    [
        (
            "RuntimeError: error in user code, for user input: the owner is root, uid=0(root)"
            " gid=100(users)"
        ),
        (
            "RuntimeError: the user asked for user namespaces as user root in /home/train/run.py,"
            " user=docker"
        ),
    ],
)
def test_mask_takes_no_ordinary_word_for_a_user(tmp_path, line):
    answer = diagnose([written(tmp_path, f"{line}\nRuntimeError: train loss\n")])
    shown = json.dumps(redacted(answer))
    assert line.replace("/home/train", "/home/<user-1>") in shown or "<user" not in shown
    assert "<user-2>" not in shown


def test_a_name_that_is_a_word_is_masked_only_where_it_names_a_user(tmp_path):
    shown = json.dumps(
        redacted(
            diagnose(
                [
                    written(
                        tmp_path,
                        "RuntimeError: out of memory at mark 3 for user mark in /home/mark/a.py\n",
                    )
                ]
            )
        )
    )
    assert "at mark 3 for user <user-1> in /home/<user-1>/a.py" in shown


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-cublas-cu12==12.8.4.1",
        "torch 2.4.1",
        "at 127.0.0.1:29500",
        "see https://github.com/NVIDIA/nccl",
        "00:01.0 PCI bridge",
    ],
)
def test_mask_leaves_versions_and_public_addresses(text):
    assert Mask(["gpu1"]).text(text) == text


def test_control_characters_of_a_log_reach_no_terminal(tmp_path):
    text = render_table(
        diagnose([written(tmp_path, "RuntimeError: CUDA out of memory. Tried\x07\x9b31m \u202e\n")])
    )
    assert "\x07" not in text and "\x9b" not in text and "\u202e" not in text


def test_table_tells_cause_lines_remedy_and_source(tmp_path):
    text = render_table(
        diagnose(
            [written(tmp_path, "Failed to initialize NVML: Driver/library version mismatch\n")]
        ),
        200,
    )
    assert "The driver's libraries and its loaded kernel module have different versions" in text
    assert (
        "version_mismatch_driver_library" not in text
        and "score" not in text
        and "(sure, owner: sre)" in text
    )
    assert (
        "job.log:1: Failed to initialize NVML" in text
        and "apply role package_hold with driver.held: true" in text
        and "source: https://" in text
    )


def test_command_prints_one_json_object_and_exits_by_what_it_found(tmp_path, capsys):
    assert cli.main(["diagnose", "--format", "json", written(tmp_path)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "unhang/diagnosis/1" and "sre" in [
        cause["owner"] for cause in answer["causes"] if cause["cause"] == "xid_hardware"
    ]
    assert (
        cli.main(
            [
                "diagnose",
                "--fail-on",
                "critical",
                written(tmp_path, "step 1 | loss 2\n{'train_runtime': 9.1}\n"),
            ]
        )
        == 0
    )
    assert "HEALTHY: the job ended normally" in capsys.readouterr().out


def test_command_says_in_one_line_what_it_cannot_read(tmp_path, capsys):
    assert cli.main(["diagnose", str(tmp_path / "none.log")]) == 2
    assert cli.main(["diagnose"]) == 2
    (tmp_path / "core").write_bytes(bytes(range(256)) * 400)
    assert cli.main(["diagnose", str(tmp_path / "core")]) == 2
    reported = capsys.readouterr().err.splitlines()
    assert len(reported) == 3 and all(line.startswith("unhang: ") for line in reported)


def findings(tmp_path, *rows):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": "unhang/run/1", "id": "run"}))
    (run / "findings.json").write_text(
        json.dumps({"schema": "unhang/findings/1", "run": {"id": "run"}, "findings": list(rows)})
    )
    (run / "nodes").mkdir()
    sections = {
        "driver": {"loaded": {"version": "550.54.15"}},
        "gpus": {"devices": [{"model": "NVIDIA RTX A6000"}] * 2},
    }
    (run / "nodes" / "gpu007.cluster.json").write_text(
        json.dumps({"host": "gpu007.cluster", "facts": {"sections": sections}})
    )
    (run / "nodes" / "gpu900.json").write_text("half a docu")
    return str(run)


def finding(rule, host, severity="error"):
    return {
        "rule": rule,
        "host": host,
        "verdict": "fail",
        "severity": severity,
        "title": rule,
        "found": "x",
        "scope": "node",
    }


HANG = (
    "gpu007:88:99 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n[rank0]:[E105 10:31:12.1"
    " ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for"
    " 600079 milliseconds before timing out.\n"
)


def test_a_run_folder_is_no_folder_of_logs(tmp_path, capsys):
    run = findings(tmp_path, finding("acs-on-bare-metal", "gpu007"))
    assert cli.main(["diagnose", written(tmp_path), run]) == 2
    shown = capsys.readouterr()
    assert (
        f"{run} is a run folder of unhang" in shown.err
        and f"unhang diagnose LOG --run {run}\n" in shown.err
        and shown.out == ""
    )
    (tmp_path / "run" / "smoke").mkdir()
    (tmp_path / "run" / "smoke" / "rank0.log").write_text(LOG)
    assert cli.main(["diagnose", f"{run}/smoke"]) == 1


def test_findings_of_an_audit_on_the_hosts_of_the_log_decide_between_causes(tmp_path, capsys):
    run = findings(
        tmp_path,
        finding("acs-on-bare-metal", "gpu007.cluster"),
        finding("gpu-ecc-uncorrected", "gpu900"),
    )
    assert cli.main(["diagnose", "--format", "json", "--run", run, written(tmp_path, HANG)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["causes"][0]["cause"] == "acs_iommu"
    assert any(
        one["file"].endswith("findings.json") and "gpu007" in one["text"]
        for one in answer["causes"][0]["evidence"]
    )
    assert answer["facts"]["audited"] == [{"host": "gpu007", "findings": ["acs-on-bare-metal"]}]
    assert "xid_hardware" not in [one["cause"] for one in answer["causes"]]


def test_run_without_findings_is_reported(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    assert cli.main(["diagnose", "--run", str(tmp_path / "run"), written(tmp_path, HANG)]) == 2
    assert "unhang judge" in capsys.readouterr().err


def test_findings_on_hosts_that_the_log_does_not_name_say_nothing(tmp_path, capsys):
    run = findings(
        tmp_path, finding("acs-on-bare-metal", "gpu900"), finding("gpu-ecc-uncorrected", "gpu901")
    )
    for text in ("step 1 | loss 2.0\nstep 2 | loss 1.9\n", HANG):
        cli.main(["diagnose", "--format", "json", "--run", run, written(tmp_path, text)])
        answer = json.loads(capsys.readouterr().out)
        assert not [
            one
            for cause in answer["causes"]
            for one in cause["evidence"]
            if one["file"].endswith("findings.json")
        ]


@pytest.mark.parametrize(
    "text, told",
    [
        (HANG.replace("gpu007", "c1"), "audit: the log names no host of the run"),
        (HANG + HANG.replace("gpu007", "c1"), "audit: not in the run: c1"),
        (HANG.replace("gpu007:88:99 ", ""), "audit: the log names no host"),
        (HANG, None),
    ],
)
def test_hosts_of_the_log_that_the_run_does_not_have_are_named(text, told, tmp_path, capsys):
    cli.main(
        [
            "diagnose",
            "-v",
            "--run",
            findings(tmp_path, finding("acs-on-bare-metal", "gpu007")),
            written(tmp_path, text),
        ]
    )
    shown = capsys.readouterr().out
    assert told in shown if told else "audit: " not in shown


def test_evidence_that_is_in_no_line_is_one_sentence_without_a_place(tmp_path):
    answer = diagnose([written(tmp_path)])
    cause = answer["causes"][0]
    cause["evidence"] = [
        {
            "file": "resembles",
            "line": 0,
            "text": "solved logs say so",
            "says": "solved logs say so",
            "weight": 1.0,
        },
        *cause["evidence"][:1],
    ]
    text = render_table(answer, 100)
    assert text.count("for: solved logs say so") == 1
    assert "resembles" not in text and text.count("solved logs say so") == 1
