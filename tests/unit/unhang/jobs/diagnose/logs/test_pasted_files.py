"""Scripts and code inside a report: found by their lines, read by lint, cited with the report's own line numbers."""

from __future__ import annotations

import ast

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose, diagnose_text
from unhang.jobs.diagnose.logs.pasted_files import LARGEST_PIECE, MOST_LINES, MOST_PARSES, MOST_PIECES, MOST_STARTS, pieces_in

BATCH = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1

module load conda   # the site's own
export NCCL_DEBUG=INFO
srun python verify.py --data-dir /scratch/d
"""
PROGRAM = """import os
import torch.distributed as dist

os.environ['MASTER_ADDR'] = 'localhost'
dist.init_process_group('nccl', rank=int(os.environ['SLURM_PROCID']), world_size=4)
print('init done')
"""
HANGS = "My training hangs for hours before the first step, on 4 nodes with one GPU each.\n"


def pieces(text):
    return [(one.kind, one.first) for one in pieces_in(list(enumerate(text.splitlines(), 1)))]


def first_cause(text):
    named = [cause for cause in diagnose_text(text)["causes"] if cause["severity"] != "info"]
    return (named[0]["cause"], [line["line"] for line in named[0]["evidence"]], named[0]["remedy"]["person"]) if named else None


@pytest.mark.parametrize("fence", ["```\n", "```bash\n", ""])
def test_script_and_program_are_found_with_and_without_fences(fence):
    end = "```\n" if fence else ""
    text = f"{HANGS}{fence}{BATCH}{end}\nAnd this is verify.py:\n\n{fence}{PROGRAM}{end}\nIt prints nothing. What can I do?\n"
    at = 2 if fence else 1
    assert pieces(text) == [("slurm", 1 + at), ("python", 13 + (3 if fence else 0))]


def test_piece_of_shell_ends_where_people_write_again_and_may_have_a_prompt():
    text = "user@head:~$ ray start --head --num-gpus 4\n$ ray job submit -- python3 -m a.b \\\n   --actor_num_gpus_per_node 8\nIt waits for ever.\n# Versions\n"
    [piece] = pieces_in(list(enumerate(text.splitlines(), 1)))
    assert (piece.kind, piece.first, piece.text.splitlines()) == (
        "shell", 1, ["ray start --head --num-gpus 4", "ray job submit -- python3 -m a.b \\", "--actor_num_gpus_per_node 8"],
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "I import torch and it hangs.\nfrom the start it is slow\n",
        'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    import torch\nImportError: libcudart\n',
        "# Title\n\n- one\n- two\n",
        "NCCL_DEBUG=INFO shows nothing\n",
    ],
)
def test_prose_and_tracebacks_are_no_pieces(text):
    assert pieces(text) == []


def test_numbers_are_bounded():
    assert len(pieces("torchrun a.py\nText between.\n" * 100)) == MOST_PIECES
    late = "a line\n" * MOST_LINES + BATCH
    assert diagnose_text(HANGS + late)["inputs"][0]["notes"] == []


def test_program_that_takes_its_own_machine_for_the_master_of_several_nodes():
    text = f"{HANGS}\n{PROGRAM}\nJob script:\n\n{BATCH}"
    cause, lines, remedy = first_cause(text)
    assert cause == "dns_hostname" and 6 in lines and "MASTER_ADDR" in remedy and "scontrol show hostnames" in remedy
    assert first_cause(text.replace("'localhost'", "os.environ['HEAD']")) is None
    assert first_cause(text.replace("--nodes=4", "--nodes=1")) is None


def test_trainer_of_several_gpus_needs_a_task_for_each():
    trainer = "import lightning as pl\ntrainer = pl.Trainer(devices=2, num_nodes=2)\ntrainer.fit(model)\n"
    batch = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:2\nsrun python toy.py\n"
    text = f"Training is stuck on two nodes, nothing is printed any more.\n\n{trainer}\n{batch}"
    cause, lines, remedy = first_cause(text)
    assert cause == "launch_mismatch" and 4 in lines and "--ntasks-per-node" in remedy and "torchrun" not in remedy
    for tasks in ("--ntasks-per-node=2", "--ntasks=4"):
        assert first_cause(text.replace("#SBATCH --gres", f"#SBATCH {tasks}\n#SBATCH --gres")) is None


def test_rank_that_the_batch_script_expands_too_early():
    batch = (
        '#!/bin/bash\n#SBATCH --nodes=2\nL="accelerate launch --num_machines 2 --machine_rank $SLURM_PROCID --main_process_ip $M"\nsrun bash -c "$L train.py"\n'
    )
    text = f"Socket timeout on two nodes, it never starts.\n\n{batch}\nRuntimeError: Socket Timeout\n"
    cause, lines, remedy = first_cause(text)
    assert cause == "launch_mismatch" and 5 in lines and "$SLURM_NODEID" in remedy
    for right in (text.replace("rank $", "rank \\$"), text.replace('L="', "L='").replace('$M"', "$M'")):
        assert "job:same-node-rank" not in str(diagnose_text(right)) and (first_cause(right) is None or 5 not in first_cause(right)[1])


def test_gpus_asked_for_beyond_those_that_ray_was_given():
    start = "ray start --head --node-ip-address 0.0.0.0 --num-gpus 4\n\nray job submit -- python3 -m train --actor_num_nodes 1 --actor_num_gpus_per_node 8\n"
    text = f"After the parameters it is stuck, no error, and the four GPUs are empty.\n\n{start}"
    cause, lines, remedy = first_cause(text)
    assert cause == "launch_mismatch" and 5 in lines and "ray status" in remedy
    assert first_cause(text.replace("per_node 8", "per_node 4")) is None


MANIFEST = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, command: [torchrun, --nnodes=4, --nproc_per_node=8, train.py]}]}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: pytorch
              command:
                - /bin/sh
                - -c
                - |
                  echo starting
                  torchrun --nnodes=4 --nproc_per_node=8 train.py
"""


@pytest.mark.parametrize(("before", "after"), [("```yaml\n", "```\n"), ("", ""), ("", "What is wrong with it? Thanks: any help is welcome\n")])
def test_yaml_of_pods_in_a_report_is_read_by_lint(before, after):
    text = f"PyTorchJob waits for ever\n\nThe job never starts to train.\n\n{before}{MANIFEST}\n{after}"
    at = 5 + before.count("\n")
    assert pieces(text) == [("kubernetes", at)]
    cause, lines, _ = first_cause(text)
    assert cause == "launch_mismatch" and {at + 6, at + 18} <= set(lines)
    assert first_cause(text.replace("--nnodes=4", "--nnodes=3")) is None


def test_yaml_that_is_no_pod_or_is_not_valid_is_no_piece():
    assert pieces("kind: regards\nservices: many\n") == []
    assert pieces("kind: Service\nspec:\n  ports: [{port: 29500}]\n") == []
    for cut in (MANIFEST.replace("{spec: {", "{spec: {{", 1), f"{MANIFEST}  rest: [1\n and: more\n", MANIFEST.replace("    Worker:", "    ...", 1)):
        assert "kubernetes" not in dict(pieces(cut))


def test_script_as_a_whole_is_no_report(tmp_path):
    (tmp_path / "job.sbatch").write_text(BATCH)
    assert "is not a log" in diagnose([str(tmp_path / "job.sbatch")])["inputs"][0]["notes"][-1]
    assert len(diagnose([str(tmp_path / "job.sbatch")])["inputs"]) == 1


def test_ends_of_shell_and_code_are_found_in_bounded_time_in_hostile_text():
    for line in ("import a", "def f(:", "#SBATCH --x", "\\", "x=" + "y" * 1999 + "\\", "(" * 1999, "kind: [" + "a, " * 600, "- " * 999):
        assert len(pieces(f"{line}\n" * MOST_LINES)) <= MOST_PIECES


def test_code_is_parsed_a_bounded_number_of_times_and_in_bounded_parts(monkeypatch):
    parsed: list[int] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: (parsed.append(len(text)), parse(text))[1])
    hostile = "".join(f"import a{' ' * 900}\n" if number % 40 < 30 else "def f(:\n" for number in range(MOST_LINES))
    assert pieces(hostile) != []
    pieces("".join(f"import a, {'b' * 900}, )\n" for _ in range(MOST_LINES)))
    assert len(parsed) <= 2 * MOST_STARTS * MOST_PARSES and max(parsed) <= LARGEST_PIECE
