"""The nodes of `tests/bench/bench_judge.py` differ in the facts in which working nodes differ, and not in facts by which the judge caches verdicts."""

from bench import bench_judge

from unhang.audit.judge import steady_rules
from unhang.audit.judge.run_input import read_run_input

NODES = 40


def test_what_differs_on_each_node_at_work_makes_no_node_one_of_its_kind(tmp_path, monkeypatch):
    """A rule that compares such a value with others is a rule over a node's own values, whose fact the schema calls a sample: else each node of a
    fleet is judged in full, which takes twice the time."""
    judged, judge = [], steady_rules.SteadyBundle.judge
    monkeypatch.setattr(steady_rules.SteadyBundle, "judge", lambda bundle, *rest: judged.append(bundle) or judge(bundle, *rest))
    bench_judge.write_run(tmp_path, NODES, False)
    rules = bench_judge.load_catalogue()
    bench_judge.judge_run(read_run_input(tmp_path), rules, "2026-11-20", conclude=bench_judge.conclusion(rules.rules))
    times_in_full = len(judged) / len(set(judged))
    assert 1 <= times_in_full <= NODES / 3
