"""`unhang lint` as it is typed: standard input, misspelt rules, files that cannot be read, names of
clouds."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from unhang import cli
from unhang.jobs.lint.knowledge import rules

HOME = Path(__file__).parents[5]
BAD = "export NCCL_DEBUG=verbose\n"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text(BAD)
    return str(path)


def test_misspelt_rule_is_refused_and_not_a_clean_result(script, capsys):
    assert cli.main(["lint", "--rule", "wrong-vlaue", script]) == 2
    assert "did you mean wrong-value?" in capsys.readouterr().err
    assert cli.main(["lint", "--rule", "wrong-*,pod-shm", "-q", script]) == 1


def test_list_of_rules_is_that_of_the_code_and_of_the_page():
    page = (
        (HOME / "docs/lint.md").read_text().split("| rule | severity | finds |")[1].split("\n\n")[0]
    )
    listed = {
        name
        for row in re.findall(r"^\| ([a-z][a-z, -]+) \|", page, re.MULTILINE)
        for name in row.split(", ")
    }
    assert len(listed) > 50 and listed == set(rules())


def test_standard_input_is_linted(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(BAD.encode())))
    assert cli.main(["lint", "-"]) == 1
    assert "(stdin):1: error: NCCL_DEBUG=verbose" in capsys.readouterr().out


def test_script_with_a_byte_order_mark_is_linted_as_one_without(tmp_path, capsys):
    marked = findings(tmp_path, capsys, "a.sh", f"\ufeff{BAD}")
    assert (
        marked
        == findings(tmp_path, capsys, "b.sh", BAD)
        == [(1, "wrong-value", "NCCL_DEBUG=verbose")]
    )


def test_file_that_cannot_be_read_as_text_is_no_clean_result(tmp_path, script, capsys):
    binary = tmp_path / "job.sh"
    binary.write_bytes(b"\0\1\2")
    assert cli.main(["lint", str(binary)]) == 2
    assert "job.sh is binary or larger than 8 MiB, so nothing was read" in capsys.readouterr().err
    assert cli.main(["lint", "-q", str(binary), script]) == 1


def test_count_is_that_of_the_files_that_were_read(tmp_path, script, capsys):
    (tmp_path / "job.sh").write_bytes(b"\0")
    assert cli.main(["lint", script, str(tmp_path / "job.sh")]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"{tmp_path}/job.sh: is binary or larger than 8 MiB",
        "1 file: 1 error, 0 warnings, 0 remarks; 1 more file not read",
    ]


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("docker run --gpus all,-x a", "docker run --gpus all,-x a"),
        ("export NCCL_PROTO=LL128", "forcing LL128"),
    ],
)
def test_cells_of_csv_have_no_sign_that_the_file_has_not(tmp_path, capsys, line, cell):
    (tmp_path / "a.sh").write_text(f"{line}\n")
    cli.main(["lint", str(tmp_path / "a.sh"), "-o", "csv"])
    shown = capsys.readouterr().out
    assert cell in shown and not re.search(r"[,;] ?'-", shown.replace(",'--ipc", ""))


def test_folder_without_scripts_is_named(tmp_path, capsys):
    assert cli.main(["lint", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cloud", "name"), [("aws", "amazon"), ("gcp", "google"), ("azure", "hyperv")]
)
def test_clouds_have_the_names_that_people_use(cloud, name, tmp_path, capsys):
    path = tmp_path / "x.sh"
    path.write_text("export NCCL_PROTO=simple NCCL_TOPO_FILE=/x NCCL_BUFFSIZE=8388608\n")
    shown = [
        (cli.main(["lint", "--platform", given, str(path)]), capsys.readouterr().out)
        for given in (cloud, name)
    ]
    assert shown[0] == shown[1] and shown[0][1]


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("140", 140)])
def test_explanations_are_wrapped_and_the_line_that_tools_read_is_not(
    tmp_path, monkeypatch, capsys, columns, widest
):
    monkeypatch.setenv("COLUMNS", columns)
    (tmp_path / "train.sh").write_text("export NCCL_IB_DISABLE=1\n")
    assert cli.main(["lint", str(tmp_path / "train.sh")]) == 1
    head, *rest = capsys.readouterr().out.splitlines()
    assert head.endswith("train.sh:1: warning: NCCL_IB_DISABLE=1 [hides-fault]")
    assert widest - 30 < max(len(line) for line in rest if len(line.split()) > 1) <= widest
    named = [line[:13] for line in rest if line.startswith("    ") and line[4] != " "]
    assert named == ["    why      ", "    instead  "]
    assert len(rest) <= 4
    assert rest[-1] == "1 file: 0 errors, 1 warning, 0 remarks"


def test_a_log_is_read_as_a_script_with_a_word_about_diagnose(tmp_path, capsys):
    (tmp_path / "slurm-4711.out").write_text("step 1 loss 2.5\n")
    assert cli.main(["lint", str(tmp_path / "slurm-4711.out")]) == 0
    assert "unhang diagnose reads logs\n1 file: 0 errors" in capsys.readouterr().out


def test_unknown_rule_is_answered_with_the_rules_of_lint_and_not_with_another_list(script, capsys):
    assert cli.main(["lint", "--rule", "zzz", script]) == 2
    said = capsys.readouterr().err
    assert [rule for rule in rules() if rule not in said] == [] and "catalogue" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                "#!/bin/bash\n#SBATCH --nodes=1\nsrun torchrun --nnodes=2 --nproc-per-node=8"
                " train.py\n"
            ),
            "asks for 1 node (line 2)",
        ),
        (
            "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0\ntorchrun --nproc-per-node=2 train.py\n",
            "it has 1 GPU there (CUDA_VISIBLE_DEVICES=0, line 2)",
        ),
        (
            "#!/bin/bash\n#SBATCH --gpus-per-node=1\ntorchrun --nproc-per-node=2 train.py\n",
            "it has 1 GPU there",
        ),
        (
            "compute_environment: LOCAL_MACHINE\ngpu_ids: '0'\nnum_processes: 2\n",
            "it has 1 GPU there",
        ),
    ],
)
def test_one_node_and_one_gpu_are_no_plural(tmp_path, capsys, monkeypatch, text, said):
    monkeypatch.setenv("COLUMNS", "400")
    file = tmp_path / ("job.yaml" if text.startswith("compute") else "job.sh")
    file.write_text(text)
    assert cli.main(["lint", str(file)]) == 1
    assert said in capsys.readouterr().out


def findings(tmp_path, capsys, name, text):
    file = tmp_path / name
    file.write_text(text)
    cli.main(["lint", str(file), "-o", "json"])
    return [
        (one["line"], one["rule"], one["found"])
        for one in json.loads(capsys.readouterr().out)["findings"]
    ]


POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: t}\nspec:\n  containers:\n  - name: a\n    image:"
    " a\n    "
)


@pytest.mark.parametrize(
    "braces",
    [
        "resources: {limits: {nvidia.com/gpu: 8, rdma/shared: 1}}\n",
        "resources: {limits: {rdma/shared: 1, nvidia.com/gpu: 8}}\n",
    ],
)
def test_gpus_of_a_pod_in_braces_are_read(tmp_path, capsys, braces):
    assert findings(tmp_path, capsys, "pod.yaml", POD + braces) == [
        (8, "pod-ipc-lock", "nvidia.com/gpu: 8"),
        (8, "pod-shm", "nvidia.com/gpu: 8"),
    ]
    assert findings(tmp_path, capsys, "pod.yaml", POD + f"# {braces}") == []
    mounted = (
        "volumeMounts: [{mountPath: /dev/shm, name: shm}]\n    securityContext: {capabilities:"
        " {add: [IPC_LOCK]}}\n    "
    )
    assert findings(tmp_path, capsys, "pod.yaml", POD + mounted + braces) == []
