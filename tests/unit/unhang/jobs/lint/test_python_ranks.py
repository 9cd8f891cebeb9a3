"""Python scripts: collectives that only some ranks call, exits before them, exceptions that skip
them, GPUs that no line selects; read and never run."""

from __future__ import annotations

import textwrap

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.python_names import LARGEST
from unhang.jobs.lint.python_ranks import MOST_PLACES

HEAD = """\
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""


def found(body, head=HEAD):
    """{(line of the body, rule)}."""
    above = head.count("\n")
    return {
        (one.line - above, one.rule)
        for one in lint_text(head + textwrap.dedent(body), "python", Context())
    }


BRANCHES = {
    "get_rank": "if dist.get_rank() == 0:\n    dist.barrier()\n",
    "reversed": "if 0 == rank:\n    dist.barrier()\n",
    "environment": 'if int(os.environ["RANK"]) == 0:\n    dist.barrier()\n',
    "environ.get": 'if int(os.environ.get("LOCAL_RANK", 0)) == 0:\n    dist.barrier()\n',
    "others": "if rank > 0:\n    dist.barrier()\n",
    "with a negation": "if not done and rank == 0:\n    dist.barrier()\n",
    "with more": "if rank == 0 and step % 100 == 0:\n    dist.barrier()\n",
    "or not distributed": "if not dist.is_initialized() or rank == 0:\n    dist.barrier()\n",
    "in list": "if args.local_rank in [-1, 0]:\n    dist.barrier()\n",
    "function of the job": "if is_main_process():\n    dist.barrier()\n",
    "nested": "if rank == 0:\n    with open('x') as f:\n        dist.barrier()\n",
    "another rank": "if rank == world_size - 1:\n    dist.barrier()\n",
    "group made by members": "if rank in members:\n    group = dist.new_group(members)\n",
}


@pytest.mark.parametrize("body", BRANCHES.values(), ids=BRANCHES)
def test_collective_in_a_branch_of_some_ranks_is_found(body):
    assert {rule for _, rule in found(body)} == {"collective-on-some-ranks"}


def test_finding_is_at_the_call_and_names_the_condition():
    text = HEAD + "if rank == 0:\n    print(1)\n    dist.all_reduce(x)\n"
    only = lint_text(text, "python", Context())
    assert [(one.line, one.found) for one in only] == [(6, "dist.all_reduce(x)")]
    assert "rank 0 reach this line (condition in line 4)" in only[0].why


BALANCED = {
    "wait before and after": (
        "if local_rank not in [-1, 0]:\n    dist.barrier()\nload()\nif local_rank == 0:\n   "
        " dist.barrier()\n"
    ),
    "both sides": "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(y, 0)\n",
    "three sides": (
        "if rank == 0:\n    dist.scatter(x, l)\nelif rank == 1:\n    dist.scatter(x)\nelse:\n   "
        " dist.scatter(x)\n"
    ),
    "distributed at all": "if rank != -1:\n    dist.barrier()\n",
    "several processes": "if world_size > 1:\n    dist.barrier()\n",
    "one process": "if world_size == 1 and rank == 0:\n    dist.barrier()\n",
    "group of members": "if rank in members:\n    dist.all_reduce(x, group=tensor_group)\n",
    "group by position": "if rank < 4:\n    dist.barrier(my_group)\n",
    "send and receive": "if rank == 0:\n    dist.send(x, 1)\nelse:\n    dist.recv(x, 0)\n",
    "early return with its own": (
        "def f():\n    if rank != 0:\n        dist.barrier()\n        return\n    work()\n   "
        " dist.barrier()\n"
    ),
    "loop over ranks": "for rank in range(8):\n    if rank == 0:\n        dist.barrier()\n",
    "not of torch": "if rank == 0:\n    queue.barrier()\n    pool.gather(x)\n",
    "two roles": (
        "if rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    model.generate_other_ranks()\n"
    ),
    "definition": "if rank == 0:\n    def f():\n        dist.barrier()\n",
    "return without work": "def f():\n    if rank != 0:\n        return\n    print(1)\n",
    "some other condition": "if step % 10 == 0:\n    dist.barrier()\n",
    "rank of a matrix": "if lora_rank == 0:\n    dist.barrier()\n",
}


@pytest.mark.parametrize("body", BALANCED.values(), ids=BALANCED)
def test_what_all_ranks_call_alike_is_silent(body):
    assert found(body) == set()


def test_variable_that_holds_the_condition_is_followed_unless_it_holds_other_things():
    assert found("first = rank == 0\nif first:\n    dist.barrier()\n") == {
        (3, "collective-on-some-ranks")
    }
    assert found("first = rank == 0\nfirst = ask()\nif first:\n    dist.barrier()\n") == set()


def test_variable_that_holds_a_rank_is_one_whatever_its_name():
    assert found("r = dist.get_rank()\nif r == 0:\n    dist.barrier()\n") == {
        (3, "collective-on-some-ranks")
    }
    assert found("r = dist.get_rank()\nr = ask()\nif r == 0:\n    dist.barrier()\n") == set()


def test_function_that_makes_a_collective_is_one():
    body = "def save(m):\n    dist.barrier()\n\n\ndef main():\n    if rank == 0:\n        save(m)\n"
    assert found(body) == {(7, "collective-on-some-ranks")}
    assert found(body.replace("    dist.barrier()", "    if m:\n        dist.barrier()")) == set()


def test_decorator_that_lets_one_rank_in_is_a_branch():
    assert found("@rank_zero_only\ndef save(m):\n    dist.barrier()\n") == {
        (3, "collective-on-some-ranks")
    }


LIBRARIES = [
    (
        "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
    ),
    (
        "",
        (
            "def save(accelerator):\n    if accelerator.is_local_main_process:\n       "
            " accelerator.gather(x)\n"
        ),
    ),
    (
        "import lightning as L\ntrainer = L.Trainer(devices=8)\n",
        'if trainer.is_global_zero:\n    trainer.save_checkpoint("x")\n',
    ),
    (
        "import deepspeed\nengine, _, _, _ = deepspeed.initialize(model=m)\n",
        'if dist.get_rank() == 0:\n    engine.save_checkpoint("x")\n',
    ),
    (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(m)\n",
        "if rank == 0:\n    s = model.state_dict()\n",
    ),
]


@pytest.mark.parametrize(("head", "body"), LIBRARIES)
def test_collectives_of_libraries_are_known(head, body):
    assert {rule for _, rule in found(body, HEAD + head)} == {"collective-on-some-ranks"}


def test_trainer_for_one_device_may_be_used_by_rank_0_and_a_class_of_the_job_is_not_known():
    test = "if trainer.is_global_zero:\n    trainer.test(m)\n"
    assert found(test, HEAD + "import lightning as L\ntrainer = L.Trainer(devices=8)\n") == {
        (2, "collective-on-some-ranks")
    }
    assert found(test, HEAD + "import lightning as L\ntrainer = L.Trainer(devices=1)\n") == set()
    assert found(test, HEAD + "from my_code import Trainer\ntrainer = Trainer(m)\n") == set()


@pytest.mark.parametrize(
    "head", ["m = DDP(n)\n", "import deepspeed\nm, *_ = deepspeed.initialize(model=n)\n"]
)
def test_forward_of_a_wrapped_model_on_one_rank_is_a_remark(head):
    body = "def evaluate():\n    return m(x)\n\n\nif gpu == 0:\n    evaluate()\n"
    only = [
        one
        for one in lint_text(HEAD + head + body, "python", Context())
        if one.rule == "forward-on-some-ranks"
    ]
    assert [(one.severity, one.found) for one in only] == [("info", "evaluate()")]
    assert found(body.replace("m(x)", "m.module(x)"), HEAD + head) == set()


def test_trainer_is_known_by_the_annotation_of_a_parameter():
    body = (
        "def finish(trainer: {}.Trainer):\n    if trainer.is_global_zero:\n       "
        " trainer.save_checkpoint(path)\n"
    )
    assert found(body.format("L"), HEAD + "import lightning as L\n") == {
        (3, "collective-on-some-ranks")
    }
    assert found(body.format("mine"), HEAD + "import mine\n") == set()


def test_state_of_a_model_that_may_be_sharded_is_a_remark_until_the_file_says_so():
    head = HEAD + "from accelerate import Accelerator\naccelerator = Accelerator()\n"
    body = "if accelerator.is_main_process:\n    accelerator.get_state_dict(m)\n"
    assert found(body, head) == {(2, "sharded-save-on-some-ranks")}
    assert found(body, head + "with_fsdp = True\n") == {(2, "collective-on-some-ranks")}


EXITS = {
    "return": ("def f():\n    if rank != 0:\n        return\n    dist.barrier()\n", 3),
    "exit": ("import sys\nif rank != 0:\n    sys.exit(0)\ndist.barrier()\n", 3),
    "continue": (
        "for x in data:\n    if rank == 0 and bad(x):\n        continue\n    dist.all_reduce(x)\n",
        3,
    ),
    "break before the step": (
        (
            "m = DDP(n)\nfor x in data:\n    m(x).backward()\n    if rank == 0 and good:\n       "
            " break\n"
        ),
        5,
    ),
    "under a further condition": (
        (
            "m = DDP(n)\nfor x in data:\n    m(x).backward()\n    if rank == 0:\n        log(x)\n  "
            "      if good:\n            break\n"
        ),
        7,
    ),
    "from an inner block": (
        "def f():\n    with g:\n        if rank == 0:\n            return\n    dist.barrier()\n",
        4,
    ),
}


@pytest.mark.parametrize(("body", "line"), EXITS.values(), ids=EXITS)
def test_exit_of_some_ranks_before_a_collective_is_found(body, line):
    assert found(body) == {(line, "exit-before-collective")}


QUIET_EXITS = {
    "decision is shared": (
        "for x in data:\n    dist.broadcast(stop, 0)\n    if stop:\n        break\n"
    ),
    "after the last collective": (
        "def f():\n    dist.barrier()\n    if rank != 0:\n        return\n    save()\n"
    ),
    "out of an inner loop": (
        "for x in data:\n    for y in x:\n        if rank == 0:\n            break\n       "
        " work(y)\n    dist.barrier()\n"
    ),
    "collective under another condition": (
        "def f():\n    if not sharded and rank != 0:\n        return\n    if sharded:\n       "
        " dist.barrier()\n"
    ),
    "a failure, after which the launcher ends the others": (
        "def f():\n    if rank == 0 and bad:\n        return -1\n    dist.barrier()\n"
    ),
    "exit with a code": "import sys\nif rank == 0 and bad:\n    sys.exit(1)\ndist.barrier()\n",
    "out of a loop of rank 0": "if rank == 0:\n    for x in data:\n        break\ndist.barrier()\n",
    "backward of another model": (
        "m = DDP(n)\ndef f():\n    if rank != 0:\n        return\n    reference(x).backward()\n"
    ),
}


@pytest.mark.parametrize("body", QUIET_EXITS.values(), ids=QUIET_EXITS)
def test_exit_that_leaves_no_rank_waiting_is_silent(body):
    assert found(body) == set()


TURN = (
    "m = DDP(n)\nfor x in data:\n    try:\n        loss = m(x)\n        loss.backward()\n       "
    " o.step()\n    except {}:\n        {}\n"
)


@pytest.mark.parametrize(
    "handler",
    [
        "print(1)",
        "continue",
        "if 'out of memory' in str(e):\n            continue\n        else:\n            raise",
    ],
)
def test_exception_that_skips_a_collective_in_a_loop_is_found(handler):
    assert found(TURN.format("RuntimeError as e", handler)) == {(7, "exception-skips-collective")}


@pytest.mark.parametrize(
    ("caught", "handler"),
    [
        ("Exception", "raise"),
        ("Exception", "sys.exit(1)"),
        ("KeyboardInterrupt", "pass"),
        ("Exception", "dist.all_reduce(flag)"),
    ],
)
def test_exception_that_ends_the_job_or_is_agreed_upon_is_silent(caught, handler):
    assert found(TURN.format(caught, handler)) == set()


def test_loop_over_a_slice_by_rank_with_collectives_in_it_is_found():
    body = "part = files[rank::world_size]\nfor x in tqdm(part):\n    dist.all_gather(y, x)\n"
    assert found(body) == {(2, "uneven-shards")}
    assert (
        found(body.replace("    dist.all_gather(y, x)", "    work(x)\ndist.all_gather(y, x)"))
        == set()
    )
    assert found("with model.join():\n    pass\n" + body) == set()


UNEVEN = {
    "number of turns": (
        "n = 40 if rank == 0 else 33\nfor x in range(n):\n    dist.all_gather(y, x)\n"
    ),
    "stride": "for i in range(rank, len(files), world_size):\n    dist.all_gather(y, x)\n",
    "shard": "for x in data.shard(num_shards=8, index=rank):\n    dist.all_gather(y, x)\n",
}


@pytest.mark.parametrize("body", UNEVEN.values(), ids=UNEVEN)
def test_number_of_turns_that_depends_on_the_rank_is_found(body):
    assert {rule for _, rule in found(body)} == {"uneven-shards"}


def test_bar_of_one_rank_around_the_same_loader_is_silent():
    assert (
        found(
            "it = tqdm(loader) if rank == 0 else loader\nfor x in it:\n    dist.all_gather(y, x)\n"
        )
        == set()
    )


OWN = {
    "nan": (
        (
            "m = DDP(n)\nfor x in data:\n    loss = m(x)\n    if not torch.isfinite(loss):\n       "
            " continue\n    loss.backward()\n"
        ),
        {(4, "decided-by-each-rank")},
    ),
    "nan of all": (
        (
            "m = DDP(n)\nfor x in data:\n    if torch.isnan(loss_reduced):\n        continue\n   "
            " loss.backward()\n"
        ),
        set(),
    ),
    "clock": (
        "for x in data:\n    if time.monotonic() - last > 3:\n        dist.all_reduce(x)\n",
        {(2, "decided-by-each-rank")},
    ),
    "clock of a log line": (
        (
            "for x in data:\n    if time.monotonic() - last > 3:\n        print(x)\n   "
            " dist.all_reduce(x)\n"
        ),
        set(),
    ),
    "set": (
        "for name in set(metrics):\n    dist.all_reduce(metrics[name])\n",
        {(1, "decided-by-each-rank")},
    ),
    "sorted set": (
        "for name in sorted(set(metrics)):\n    dist.all_reduce(metrics[name])\n",
        set(),
    ),
}


@pytest.mark.parametrize(("body", "expected"), OWN.values(), ids=OWN)
def test_what_each_rank_decides_by_its_own_is_a_remark(body, expected):
    assert found(body) == expected


def test_exception_around_a_function_that_trains_is_found_where_collectives_follow():
    step = "def fit(m, o):\n    m(x).backward()\n    o.step()\n\n\nm = DDP(n)\n"
    assert found(
        f"{step}try:\n    fit(m, o)\nexcept RuntimeError:\n    print(1)\ndist.barrier()\n"
    ) == {(9, "exception-skips-collective")}
    assert found(f"{step}try:\n    fit(m, o)\nexcept RuntimeError:\n    print(1)\n") == set()
    assert (
        found(
            f"{step}try:\n    dist.barrier()\nexcept RuntimeError:\n    print(1)\ndist.barrier()\n"
        )
        == set()
    )


def test_measurement_of_a_gradient_is_no_step():
    assert (
        found(
            "m = DDP(n)\nfor x in data:\n    try:\n        y = m(x)\n        y.backward()\n   "
            " except Exception:\n        pass\n"
        )
        == set()
    )


def test_method_is_not_taken_for_a_function_of_the_same_name():
    body = (
        "class Index:\n    def open(self):\n        dist.barrier()\n\n\nif rank == 0:\n   "
        " open(path)\n"
    )
    assert found(body) == set()
    assert found(
        body.replace(
            "    def open",
            "    def go(self):\n        if rank == 0:\n            self.open()\n\n    def open",
        )
    ) == {(4, "collective-on-some-ranks")}


SCRIPT = 'dist.init_process_group("nccl")\nm = net.cuda()\nif __name__ == "__main__":\n    main()\n'


def test_script_in_which_no_process_chooses_a_gpu_is_found():
    assert found(SCRIPT) == {(1, "no-set-device")}


AT_ONCE = 'dist.init_process_group("nccl")\nm = net.cuda()\n'


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (AT_ONCE, 1), (f"if world_size > 1:\n{textwrap.indent(AT_ONCE, '    ')}", 2),
        (f"def net():\n    pass\n\n\n{AT_ONCE}", 5),
        (f"def main():\n{textwrap.indent(AT_ONCE, '    ')}", None),
        (f"class Job:\n    def run(self):\n{textwrap.indent(AT_ONCE, '        ')}", None),
        (f"torch.cuda.set_device(local_rank)\n{AT_ONCE}", None),
    ],
)  # fmt: skip
def test_call_outside_a_function_starts_a_job_and_a_module_of_functions_does_not(script, line):
    assert found(script) == ({(line, "no-set-device")} if line else set())


@pytest.mark.parametrize(
    ("backend", "is_nccl"),
    [
        ("dist.Backend.NCCL if torch.cuda.is_available() else dist.Backend.GLOO", True),
        ("dist.Backend.GLOO", False),
    ],
)
def test_backend_in_a_variable_is_the_one_that_it_is_set_to(backend, is_nccl):
    script = (
        f"backend = {backend}\ndist.init_process_group(backend=backend)\nx ="
        " torch.zeros(1).cuda()\nif __name__ == '__main__':\n    main()\n"
    )
    assert (found(script) == {(2, "no-set-device")}) is is_nccl


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.set_device(local_rank)",
        'mesh = dist.init_device_mesh("cuda", (8,))',
        'device = torch.device(f"cuda:{rank}")',
        "m.to(rank)",
        'os.environ["CUDA_VISIBLE_DEVICES"] = x',
        "import pytest",
    ],
)
def test_script_that_chooses_a_gpu_is_silent(line):
    assert found(f"{line}\n{SCRIPT}") == set()


def test_global_rank_as_index_of_a_gpu_is_a_remark():
    assert found("torch.cuda.set_device(dist.get_rank())\n") == {(1, "device-by-global-rank")}
    assert found('r = int(os.environ["RANK"])\ntorch.cuda.set_device(r)\n') == {
        (2, "device-by-global-rank")
    }
    for use in (
        'm.to(f"cuda:{r}")',
        'torch.device("cuda", r)',
        "DDP(m, device_ids=[r])",
        "DDP(m, output_device=r)",
    ):
        assert found(f'r = int(os.environ["RANK"])\nx = {use}\ntorch.cuda.set_device(r)\n') == {
            (2, "device-by-global-rank")
        }
        assert found(f'r = int(os.environ["LOCAL_RANK"])\nx = {use}\n') == set()
    assert found("torch.cuda.set_device(dist.get_rank() % 8)\n") == set()
    assert found("def worker(rank):\n    torch.cuda.set_device(rank)\n") == set()


def test_mark_silences_a_line():
    assert found("if rank == 0:\n    dist.barrier()  # unhang: ignore\n") == set()


@pytest.mark.parametrize(
    "text",
    [
        "if rank == 0:\n  dist.barrier(\n", "(" * 5000, "not " * 5000 + "rank",
        "a." * 20000 + "rank", "if rank == 0: " * 300, "rank = '\udcff'\n", "\0rank",
        "if " + " and ".join(["rank == 0"] * 3000) + ":\n    dist.barrier()\n",
        "rank = " + "[" * 90 + "]" * 90, "rank\n" * (LARGEST // 5 + 1),
    ],
)  # fmt: skip
def test_hostile_text_is_no_finding_and_no_failure(text):
    assert {one.rule for one in lint_text(text, "python", Context())} <= {
        "collective-on-some-ranks",
        "not-parsed",
    }


def test_script_is_read_and_never_run(tmp_path):
    mark = tmp_path / "ran"
    assert found(f"open({str(mark)!r}, 'w').write('x')\nif rank == 0:\n    dist.barrier()\n") == {
        (3, "collective-on-some-ranks")
    }
    assert not mark.exists()


def test_number_of_conditions_that_are_looked_into_is_bounded():
    body = "if rank == 0:\n    dist.barrier()\n" * (MOST_PLACES * 3)
    assert 0 < len(found(body)) <= MOST_PLACES


LOOP = """
model = DDP(net)
for batch in loader:
    loss = model(batch).mean()
    if {test}:
        continue
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "rules"),
    [
        ("rank == 3 and batch.numel() == 0", {(6, "exit-before-collective")}),
        ("loss > 100", {(5, "decided-by-each-rank")}),
        ("len(batch) == 0", {(5, "decided-by-each-rank")}),
        ("batch is None", {(5, "decided-by-each-rank")}),
        ("mean_loss > 100", set()),
        ("step % 10 == 0", set()),
    ],
)
def test_turn_that_a_rank_leaves_before_its_backward_is_found(test, rules):
    assert found(LOOP.format(test=test)) == rules


TRAINING = """\
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % 8)
{model}
for step, batch in enumerate(loader):
    if {condition}:
        continue
    loss = model(batch)
    loss.backward()
    optimizer.step()
"""
OF_ANOTHER_FILE = "model = build_model()"


@pytest.mark.parametrize(
    ("condition", "who"),
    [
        ("rank", "rank other than 0"),
        ("not rank and step == 3", "rank 0"),
        ("rank >= world // 2", "rank >= world // 2"),
        ("step > 9 and rank < 2", "rank < 2"),
        ("rank > 2", "rank > 2"),
        ("4 >= rank", "rank <= 4"),
        ("rank == 10", "rank equal to 10"),
        ("step == 10 + rank", "10 + rank equal to step"),
        ("(step + rank) % 5 == 0", "(step + rank) % 5 equal to 0"),
        ("step % world == rank", "rank equal to step % world"),
    ],
)
@pytest.mark.parametrize("model", ["model = DDP(net)", OF_ANOTHER_FILE])
def test_turn_that_some_ranks_end_before_backward_is_found(condition, who, model):
    text = HEAD + TRAINING.format(condition=condition, model=model)
    only = [one for one in lint_text(text, "python", Context()) if one.severity != "info"]
    assert [(one.line, one.rule) for one in only] == [(10, "exit-before-collective")]
    assert f"ranks with {who} do not continue" in only[0].why


@pytest.mark.parametrize(
    ("condition", "model"),
    [
        ("rank < world", "model = DDP(net)"),
        ("rank > -1 and step == 0", "model = DDP(net)"),
        ("rank >= 0 and step == 0", "model = DDP(net)"),
        ("step % 2 == 0", "model = DDP(net)"),
        ("world > 4", "model = DDP(net)"),
        ("rank > 2", f"{OF_ANOTHER_FILE}; dist.send(x, 1)"),
    ],
)
def test_turn_that_all_ranks_end_or_stages_of_a_pipeline_are_silent(condition, model):
    assert found(TRAINING.format(condition=condition, model=model)) == set()


def test_condition_of_many_sums_is_no_failure():
    long = " + ".join(["step"] * 90)
    assert found(TRAINING.format(condition=f"rank == {long}", model=OF_ANOTHER_FILE)) <= {
        (7, "exit-before-collective")
    }
