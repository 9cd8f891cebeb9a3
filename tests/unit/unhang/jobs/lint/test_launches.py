"""Batch scripts, launch commands and accelerate's configuration: nodes, processes and GPUs that do
not fit each other, and limits that are too short."""

from __future__ import annotations

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text

BATCH = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"


def found(text, kind="slurm"):
    return {(one.line, one.rule) for one in lint_text(text, kind, Context())}


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("srun torchrun --nnodes=4 --nproc_per_node=4 --rdzv-endpoint=$H:1 a.py", "nodes-differ"),
        (
            (
                "srun --ntasks-per-node=1 torchrun --nnodes=4 --nproc_per_node=4"
                " --rdzv-endpoint=$H:1 a.py"
            ),
            "nodes-differ",
        ),
        (
            "N=4\nsrun torchrun --nnodes=$N --nproc_per_node=4 --rdzv-endpoint=$H:1 a.py",
            "nodes-differ",
        ),
        (
            "torchrun --nnodes=2 --nproc_per_node=4 --rdzv-endpoint=$H:1 a.py",
            "launcher-on-one-node",
        ),
        ("srun torchrun --nnodes=2 --node_rank=0 --master_addr=$M a.py", "same-node-rank"),
        (
            "srun torchrun \\\n  --nnodes 2 \\\n  --nproc-per-node 8 --rdzv-endpoint $H:1 a.py",
            "gpus-fewer-than-processes",
        ),
        ("srun torchrun --nnodes=2 --rdzv-endpoint=localhost:29500 a.py", "master-is-loopback"),
        ("export MASTER_ADDR=127.0.0.1\nsrun python a.py", "master-is-loopback"),
        (
            "srun --ntasks-per-node=8 torchrun --nproc_per_node=4 --rdzv-backend=c10d a.py",
            "launcher-in-each-task",
        ),
        (
            "srun torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --master_addr=$M a.py",
            "same-node-rank",
        ),
        (
            (
                "srun torchrun --nnodes=2 --node_rank=$SLURM_PROCID --master_addr=$M"
                " --rdzv_backend=c10d a.py"
            ),
            "master-is-loopback",
        ),
        ("srun torchrun --nnodes=2 --master_addr=172.17.0.3 a.py", "master-is-loopback"),
        ("srun ray start --head --block --node-ip-address 0.0.0.0", "master-is-loopback"),
        (
            "srun torchrun --standalone --nnodes=2 --master_addr=$M a.py",
            "standalone-of-several-nodes",
        ),
        ("srun torchrun --nnodes=2 --nproc_per_node=4 a.py", "master-is-loopback"),
        (
            "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv_backend=c10d a.py --master_addr",
            "master-is-loopback",
        ),
        ("srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 -m train", "master-is-loopback"),
        (
            (
                "srun --ntasks-per-node=4 torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE"
                " --rdzv-backend=c10d a.py"
            ),
            "launcher-in-each-task",
        ),
        ("srun deepspeed --no_ssh --node_rank=$SLURM_NODEID a.py", "same-node-rank"),
        ("#SBTACH --time=01:00:00\nsrun python a.py", "misspelt-directive"),
        ("srun --gpus-per-task=1 python a.py", "one-gpu-per-task"),
        ("docker run --gpus all image python a.py", "container-shm"),
        (
            (
                "docker run --ipc=host -p 29500:29500 image torchrun --nnodes=2 --node_rank=$N"
                " --master_addr=10.0.0.4 a.py\nssh $other"
            ),
            "container-on-bridge",
        ),
        ("deepspeed --num_nodes 2 --num_gpus 4 a.py", "launcher-on-one-node"),
        ('srun -N1 -w $node ray start --address "$head" --num-gpus 4 &', "ray-without-block"),
        ("srun --ntasks-per-node=1 python a.py fit --trainer.devices 4", "tasks-unlike-devices"),
        ("#SBATCH --ntasks-per-node=2\nsrun python a.py trainer.devices=4", "tasks-unlike-devices"),
        (
            "srun --ntasks-per-node=1 \\\n bash -c 'export MASTER_ADDR=$(hostname)\npython a.py'",
            "master-is-loopback",
        ),
        (
            (
                "srun bash -lc 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID"
                " --master_addr=`hostname -i` a.py'"
            ),
            "master-is-loopback",
        ),
    ],
)
def test_launch_that_does_not_fit_is_found(command, rule):
    rules = {name for _, name in found(f"{BATCH}{command}\n")}
    assert rules == {rule}


def test_number_of_machines_beside_torchrun_is_read_without_its_own_option():
    assert (
        found(
            "accelerate launch --num_machines 2 --main_process_ip $H a.py || torchrun"
            " --nproc_per_node=4 a.py\n",
            "shell",
        )
        == set()
    )


@pytest.mark.parametrize(
    "command",
    [
        (
            "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv-backend=c10d"
            " --rdzv-endpoint=$HEAD:29500 a.py"
        ),
        (
            "srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc_per_node=gpu"
            " --node_rank=$SLURM_NODEID --master_addr=$HEAD a.py'"
        ),
        (
            "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 --rdzv-backend=c10d"
            " --rdzv-endpoint=$HEAD:1 --node_rank=$SLURM_NODEID a.py"
        ),
        (
            "srun torchrun --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:1"
            " --master_addr=$HEAD a.py"
        ),
        "#SBATCH --exclusive\n# SBATCH --time=1\n#BASH --x",
        "srun torchrun --nnodes=1:2 --nproc_per_node=4 --rdzv-backend=c10d a.py",
        "srun -N 1 -w $head torchrun --nnodes=1 --node_rank=0 a.py",
        "pdsh -w $hosts torchrun --nnodes=2 --rdzv-endpoint=$H:1 a.py",
        "# torchrun --nnodes=4 a.py",
        (
            "export MASTER_ADDR=localhost\nsrun -N 1 -n 1 torchrun --nnodes=1 --nproc_per_node=4"
            " --master_addr=localhost a.py"
        ),
        "srun --ntasks-per-node=1 torchrun --nproc_per_node=4 --rdzv-backend=c10d a.py",
        "srun -n 2 torchrun --nproc_per_node=4 --rdzv-backend=c10d a.py",
        "docker run --gpus all --shm-size=8g image",
        "docker run --gpus all --ipc=host image",
        "docker run image",
        (
            "docker run --net=host --ipc=host image torchrun --nnodes=2 --node_rank=$N"
            " --master_addr=10.0.0.4 a.py\nssh $other"
        ),
        "deepspeed --hostfile=hosts a.py",
        "deepspeed --launcher slurm --num_nodes 2 a.py",
        "deepspeed --num_nodes=1 --num_gpus 4 a.py",
        "cp hosts /job/hostfile\ndeepspeed a.py",
        "srun bash -c 'deepspeed --no_ssh --node_rank=$SLURM_NODEID a.py'",
        'srun -N1 -w $node ray start --address "$head" --num-gpus 4 --block &',
        "srun -N1 -w $node bash -c 'ray start --address $head; sleep infinity' &",
        "ray start --address $head --num-gpus 4",
        "srun --ntasks-per-node=4 python a.py fit --trainer.devices 4",
        (
            "srun --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=4 --rdzv-endpoint=$H:1"
            " a.py trainer.devices=4"
        ),
        "export MASTER_ADDR=$(hostname)\nsrun bash -c 'python a.py'",
        (
            "srun bash -c 'if [ $SLURM_NODEID = 0 ]; then export MASTER_ADDR=$(hostname); fi;"
            " python a.py'"
        ),
        "srun -N1 -n1 bash -c 'MASTER_ADDR=$(hostname) python a.py'",
    ],
)
def test_launch_that_fits_is_silent(command):
    assert found(f"{BATCH}{command}\n") == set()


ADDRESSED = (
    "srun torchrun --nnodes=2 --nproc_per_node=4 --rdzv-backend=c10d --rdzv-endpoint={}:29500 a.py"
)


@pytest.mark.parametrize(
    ("commands", "is_found"),
    [
        (ADDRESSED.format("$HEAD"), False),
        (
            f"echo $MASTER_ADDR\npython prepare.py\nsrun hostname\n{ADDRESSED.format('$HEAD')}",
            False,
        ),
        (ADDRESSED.format("$MASTER_ADDR"), True),
        (ADDRESSED.format("${MASTER_ADDR}"), True),
        (f"HEAD=$MASTER_ADDR\n{ADDRESSED.format('$HEAD')}", True),
        (f"srun python b.py\n{ADDRESSED.format('$HEAD')}", True),
        (f"mpirun -np 8 ./b\n{ADDRESSED.format('$HEAD')}", True),
        (f"deepspeed b.py\n{ADDRESSED.format('$HEAD')}", True),
        ("srun accelerate launch --num_machines 2 b.py", True),
        ("srun bash run.sh", True),
    ],
)
def test_loopback_in_the_variable_is_a_fault_where_something_reads_it(commands, is_found):
    assert found(f"{BATCH}export MASTER_ADDR=localhost\n{commands}\n") == (
        {(4, "master-is-loopback")} if is_found else set()
    )


def test_limit_of_a_minute_is_a_remark_where_it_is_a_timeout():
    assert found("torchrun a.py --ddp_timeout 60\n", "shell") == {(1, "timeout-short")}
    assert found("dist.init_process_group('nccl', timeout=timedelta(seconds=60))\n", "python") == {
        (1, "timeout-short")
    }
    assert found("wait = timedelta(seconds=60)\n", "python") == set()
    assert (
        found("dist.init_process_group('nccl', timeout=timedelta(minutes=30))\n", "python") == set()
    )


@pytest.mark.parametrize(
    "text",
    [
        "torchrun " + "--a=b " * 20000,
        "\\\n" * 20000 + "torchrun",
        "#SBATCH " + "-N " * 5000,
        "torchrun --nnodes=" + "9" * 5000,
    ],
)
def test_hostile_script_is_no_failure(text):
    assert found(text) <= {(1, "gpus-fewer-than-processes")}


@pytest.mark.parametrize(
    "launch",
    [
        "srun bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID a.py'",
        "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_PER_NODE a.py",
        "export MASTER_ADDR=$HEAD\nsrun torchrun --nnodes=2 --node_rank=$R --master_port=1 a.py",
        "srun torchrun --nnodes=2 --node_rank=$R --rdzv_backend=c10d --rdzv_id $SLURM_JOB_ID a.py",
    ],
)
def test_several_nodes_without_an_address_meet_at_the_loopback(launch):
    text = f"{BATCH}{launch}\n"
    only = [one for one in lint_text(text, "slurm", Context()) if one.severity != "info"]
    assert [one.rule for one in only] == ["master-is-loopback"]
    assert "meets at 127.0.0.1" in only[0].why


@pytest.mark.parametrize(
    "launch",
    [
        "srun torchrun --nnodes $SLURM_NNODES --node_rank $R --master_addr $HEAD a.py",
        "srun torchrun --nnodes=2 --node_rank=$R $RENDEZVOUS a.py",
        'L="torchrun --nnodes=2 --nproc_per_node=4"\nsrun sh -c "$L --master_addr $HEAD a.py"',
        "export PET_RDZV_ENDPOINT=$HEAD:1\nsrun torchrun --nnodes=2 --node_rank=$R a.py",
    ],
)
def test_address_that_is_given_or_may_be_in_a_variable_is_silent(launch):
    assert found(f"{BATCH}{launch}\n") == set()
