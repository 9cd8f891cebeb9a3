"""What reports taught that somebody judged without the signatures: launchers, services, steps that wait, work before a barrier, and checks that passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.strict_yaml import load_yaml
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.rendering import render_table

ROOT = Path(__file__).resolve().parents[5]
FOLDER = ROOT / "tests/fixtures/diagnose_reports"
SETS = {
    name: {row["id"]: row for row in load_yaml(FOLDER / f"{name}.yml")[0]["reports"]}
    for name in (
        *("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
        *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth"),
        *("nineteenth", "twentieth"),
    )
}
REPORTS = {name: row for rows in SETS.values() for name, row in rows.items()}
# Those whose ending is the first cause above a remark today.
NAMED_SINCE = {
    "third": 19,
    "fourth": 15,
    "fifth": 11,
    "sixth": 3,
    "seventh": 2,
    "eighth": 0,
    "ninth": 13,
    "tenth": 10,
    "eleventh": 3,
    "twelfth": 15,
    "thirteenth": 11,
    "fourteenth": 2,
    "fifteenth": 7,
    "sixteenth": 10,
    "seventeenth": 9,
    "eighteenth": 3,
    "nineteenth": 11,
    "twentieth": 9,
}
# Another cause than the ending is still named, alone or beside it.
OTHERS_NAMED = {
    "LlamaFactory-1213",
    "accelerate-2000",
    "ai-on-eks-240",
    "athena-139",
    "aws-ofi-nccl-663",
    "azurehpc-health-checks-142",
    "deepep-121",
    "deepep-553",
    "determined-8915",
    "f5tts-1008",
    "horovod-1652",
    "horovod-2640",
    "jax-35905",
    "llamafactory-5308",
    "llamafactory-8549",
    "llava-739",
    "mm-eureka-54",
    "nccl-1000",
    "nccl-1835",
    "nccl-214",
    "nccl-844",
    "nccl-969",
    "nuplan-devkit-253",
    "ompi-599",
    "openrlhf-492",
    "pytorch-130414",
    "pytorch-137268",
    "pytorch-50921",
    "pytorch-79388",
    "pytorch-examples-540",
    "specforge-781",
    "torchx-541",
    "trixie-52",
    "trtllm-2021",
    "yolov-40",
}
JUDGED = ("useful", "open", "noisy", "misleading", "wrong")
ALSO = {"slow_rank_or_io": {"watchdog_timeout_too_short"}, "wrong_interface": {"firewall_ports"}}
STORE = (
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 "
    "(world_size=4, num_workers_joined=2, timeout=0:30:00)\n"
)
WATCHDOG = (
    "[rank{rank}]:[E302 11:00:00.120000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
)
NO_PLACE = (
    "TimeoutError: Placement group creation timed out. Make sure your cluster either has enough resources or use an autoscaling cluster. "
    "Current resources available: {'CPU': 4.0}, resources requested by the placement group: [{'CPU': 8.0}]\n"
)
NO_SSH = "RuntimeError: Using hostfile at hosts.txt but host=10.7.0.4 was not reachable via ssh. If you are running with a single node remove hosts.txt.\n"


def loud(found):
    return [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]


def remedy_of(found, cause):
    return next(one["remedy"] for one in found["causes"] if one["cause"] == cause)


def test_page_shows_how_fresh_answers_were_judged():
    files = sorted(FOLDER.glob("*.yml"))
    judged = {path.stem: load_yaml(path)[0]["reports"] for path in files}
    assert all(row["judged"] in JUDGED and row["why"] and row["ending"] for rows in judged.values() for row in rows)

    def counted(*sets, unkept=()):
        words = [row[key] for name, key in sets for row in judged[name]] + [word for count, word in unkept for _ in range(count)]
        useful, left_open, noisy, misleading, wrong = (words.count(word) for word in JUDGED)
        return f"| {len(words)} | {useful} | {left_open} | {noisy} | {misleading + wrong} |"

    page = (ROOT / "docs/diagnosis-scores.md").read_text(encoding="utf-8")
    three = ((12, "useful"), (9, "open"), (2, "noisy"), (14, "misleading"))  # of the first days: three sets whose texts were not kept
    assert counted(*((name, "judged") for name in ("second", "third", "fifth", "seventh", "ninth", "twelfth")), unkept=three) in page
    before = [(name, "before") for name in ("fifteenth", "sixteenth", "eighteenth", "twentieth")]
    assert counted(*before, ("seventeenth", "judged"), ("nineteenth", "judged")) in page
    assert counted(("seventeenth", "reader"), ("nineteenth", "reader")) in page
    last = ("twentyfourth", "twentyfifth", "twentysixth")
    for names in (("twentyfirst", "twentysecond", "twentythird"), last, ("twentyseventh",)):
        assert counted(*((name, "before") for name in names)) in page and counted(*((name, "judged") for name in names)) in page
    pairs = [row["rather"] for name in last for row in judged[name]]
    new, old = (pairs.count(word) for word in ("new", "before"))
    assert f"Of the last {len(pairs)} pairs of answers\nthe new one was preferred {new} times, the old one {old} times" in page


def test_page_of_the_decision_has_the_counts_of_the_pairs():
    page = (ROOT / "docs/decisions/0023-one-list-of-next-steps.md").read_text(encoding="utf-8")
    pairs = [row for name in ("fifteenth", "sixteenth") for row in SETS[name].values()]
    new, old = (sum(row["rather"] == word for row in pairs) for word in ("new", "before"))
    assert f"Of {len(pairs)} fresh pairs" in page and f"preferred {new} times, the old one {old} times" in page


@pytest.mark.parametrize("name", sorted(REPORTS.keys() - OTHERS_NAMED))
def test_no_report_gets_a_loud_cause_other_than_its_ending(answer, name):
    found = answer(REPORTS[name]["text"])
    assert set(loud(found)) <= {REPORTS[name]["cause"], *ALSO.get(REPORTS[name]["cause"], set())}
    assert found["outcome"]["word"] != "healthy"


@pytest.mark.parametrize("rows", sorted(SETS))
def test_endings_that_are_named_today_stay_named(answer, rows):
    named = [name for name, row in SETS[rows].items() if loud(answer(row["text"]))[:1] == [row["cause"]]]
    assert len(named) >= NAMED_SINCE[rows], named
    assert {row["cause"] for row in REPORTS.values()} - set(load_causes()) == {"none"}


@pytest.mark.parametrize(("line", "named", "others"), [(NO_PLACE, "ray status", ("srun", "ssh ")), (NO_SSH, "ssh -o BatchMode=yes", ("srun", "Ray"))])
def test_advice_and_commands_are_those_of_the_launcher_of_the_log(answer, line, named, others):
    found = answer(line)
    advice = " ".join([remedy_of(found, "launch_mismatch")["person"], *found["causes"][0]["collect"], *found["collect_next"]])
    assert named in advice and not [word for word in others if word in advice]


def test_advice_names_no_launcher_where_the_log_shows_none(answer):
    person = remedy_of(answer("RuntimeError: rank argument 3 doesn't match pg rank 4\n"), "launch_mismatch")["person"]
    assert "--node_rank" in person and not [word for word in ("Slurm", "Ray", "ssh") if word in person]


def test_work_that_goes_on_at_the_barrier_of_the_store_is_the_reason(answer):
    going_on = "Running tokenizer on dataset:  61%|######    | 610000/1000000 [28:51<18:26, 352.40 examples/s]\n"
    assert loud(answer(going_on + STORE)) == ["watchdog_timeout_too_short", "slow_rank_or_io"]
    done = going_on.replace("  61%", " 100%").replace("610000", "1000000")
    assert "launch_mismatch" in loud(answer(done + STORE))


def test_process_that_still_installs_is_the_reason_why_the_coordinator_waits(answer):
    missed = (
        "w0 | E0506 10:10:12.7 1123 agent.cc:371] Failed to connect to coordination service: DEADLINE_EXCEEDED: Deadline Exceeded\n"
        "w0 | Additional GRPC error information from remote target coordination_service while calling /xla.coordination.CoordinationService/RegisterTask:\n"
    )
    installs = "w1 | Installing collected packages: jax, jaxlib\n"
    found = answer(installs + missed)
    assert not {"firewall_ports", "launch_mismatch"} & set(loud(found)) and "jax.distributed.initialize" in str(remedy_of(found, "watchdog_timeout_too_short"))
    assert "firewall_ports" in loud(answer(f"{installs}w1 | Successfully installed jax-0.6.0\n{missed}"))


@pytest.mark.parametrize(("waits", "named"), [("4.391", True), ("0.391", False)])
def test_steps_that_wait_for_their_data_are_slow_for_that_reason(answer, waits, named):
    steps = "".join(f"INFO | Train Epoch: 0 [{n}/9000 (3%)] Data (t): {waits} Batch (t): 4.621, 55.4/s, 55.4/s/gpu\n" for n in range(0, 600, 100))
    found = answer(f"training is slow\n{steps}")
    assert ("slow_rank_or_io" in loud(found)) is named
    assert not named or "how" not in remedy_of(found, "slow_rank_or_io")  # no time limit is in the log, and none is to be raised


def test_steps_that_take_long_in_turns_are_a_remark_about_the_loader(answer):
    def remarks(seconds):
        steps = "".join(f"INFO - Epoch: 1/3, Step: {n}/90, Loss: 3.2, Time/step: {seconds(n):.4f}\n" for n in range(20))
        return [one["cause"] for one in answer(f"time of each step is not steady\n{steps}")["causes"]]

    assert remarks(lambda n: 45.1 if n % 2 else 4.2) == ["slow_rank_or_io"]
    assert remarks(lambda n: 4.2 + n / 100) == []


def test_process_that_was_killed_at_its_memory_limit_ran_out_of_memory(answer):
    frames = 'Traceback (most recent call last):\n  File "/w/eval.py", line 30, in <module>\n    mp.spawn(main, nprocs=4)\n'
    end = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n"
    limit = "memory+swap: usage 50331648kB, limit {}kB, failcnt 27\n"
    assert loud(answer(frames + end + limit.format(50331648))) == ["oom"]
    assert loud(answer(frames + end + limit.format(90331648))) == []


def test_service_of_logs_that_does_not_answer_before_the_first_step(answer):
    away = "wandb: Network error (ConnectTimeout), entering retry loop.\n"
    waits = WATCHDOG.format(rank=1, seq=3) + WATCHDOG.format(rank=2, seq=3)
    assert loud(answer(away + waits)) == ["slow_rank_or_io"]
    assert loud(answer(f"step 1 loss 3.0\n{away}{waits}")) == loud(answer(waits)) == []


def test_job_that_was_interrupted_within_the_service_of_its_logs(answer):
    stack = (
        "it stands in the middle of an epoch\n^CTraceback (most recent call last):\n"
        '  File "/w/env/lib/python3.10/site-packages/{}/sdk/queue.py", line 50, in publish\n    self.q.put(record)\n{}\n'
    )
    found = answer(stack.format("wandb", "KeyboardInterrupt"))
    assert loud(found) == ["slow_rank_or_io"] and "WANDB_MODE=offline" in remedy_of(found, "slow_rank_or_io")["person"]
    assert loud(answer(stack.format("numpy", "KeyboardInterrupt"))) == []


def test_missing_plugin_is_not_called_harmless_where_it_is_the_cause(answer):
    lines = "n1:3:3 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\nn1:3:9 [0] NCCL INFO Using network Socket\n"
    found = answer(f"two p5.48xlarge, slow all-reduce\n{lines}")
    assert loud(found) == ["net_plugin_not_loaded"]
    shown = " ".join(render_table(found).split())
    assert "plugin is installed" not in shown and "harmless" not in shown
    assert "harmless" in [one["kind"] for one in answer(f"slow all-reduce\n{lines}")["remarks"]]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("(RayTrainWorker pid=3011) start", "ray status"),
        ("train-worker-0   2/2     Running   3          14m", "kubectl get pods -o wide"),
    ],
)
def test_job_that_hangs_without_a_word_is_asked_for_what_its_launcher_knows(answer, line, command):
    assert any(command in one for one in answer(f"{line}\nand then it hangs\n")["collect_next"])
    assert not any(command in one for one in answer("rank 0 starts\nand then it hangs\n")["collect_next"])
