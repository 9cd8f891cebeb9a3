"""The answers of many kinds of nodes are counted together, as if each were counted by itself."""

import random

from unhang.audit.judge.ballots import ballots_of
from unhang.audit.judge.groups import Ballot, Compared, add_votes
from unhang.audit.judge.memory import BundleVerdicts
from unhang.audit.judge.node_rules import Judged


def one_by_one(votes, group):
    ballots = {}
    for outcome, hosts in votes:
        for number, compared in outcome.compared:
            add_votes(ballots.setdefault(number, Ballot(group)), hosts, compared)
    return ballots


def fleet(noise):
    """Votes over rules of which some are answered in several combinations, with equal answers that are one object and such that are two."""
    shared = {
        number: [Compared(1, 1), Compared(1, 1), Compared(2, 2), Compared(judged=Judged("skip")), Compared(judged=Judged("unknown"))] for number in range(6)
    }
    bundles, votes = [(0,), (1, 2), (3,), (4, 5), (0, 1, 2, 3, 4, 5), (1, 2, 4, 5), ()], []
    for place in range(noise.randrange(1, 12)):
        numbers = noise.choice(bundles)
        usual = noise.random() < 0.7
        compared = tuple((number, shared[number][0 if usual else noise.randrange(5)]) for number in numbers)
        votes.append((BundleVerdicts((), (), compared), [f"n{place}-{number}" for number in range(noise.randrange(1, 4))]))
    return votes


def test_ballots_are_those_of_counting_one_kind_of_node_after_the_other():
    several = 0
    for seed in range(400):
        votes = fleet(random.Random(seed))
        found, wanted = ballots_of(iter(votes), "rack1"), one_by_one(votes, "rack1")
        assert list(found) == list(wanted), f"fleet {seed}"
        assert found == wanted, f"fleet {seed}"
        several += sum(len(ballot.values) > 1 for ballot in found.values())
    assert several > 100


def test_no_two_ballots_share_a_list_of_hosts():
    answer, hosts = Compared(1, 1), ["a", "b"]
    ballots = ballots_of([(BundleVerdicts((), (), ((1, answer), (2, answer))), hosts)], "rack1")
    ballots[1].values[1][1].append("c")
    assert ballots[2].values[1][1] == hosts == ["a", "b"]
