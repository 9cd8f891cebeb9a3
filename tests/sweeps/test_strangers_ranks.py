"""Processes that a stranger makes push no job out: trees of /proc as a node has them with thousands
of made-up ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspected import inspection_of, render_details

from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.base.section import Absent
from unhang_node.job.finding import MOST_RANKS, read_ranks
from unhang_node.job.look import OPTIONS

STRANGER, OWNER, OTHER = 41000, 42000, 43000  # users of no machine: their names are their numbers


class Tree:
    """A folder that stands for /proc."""

    def __init__(self, folder: Path) -> None:
        # no process of this machine has such a number: a look passes over its own
        self.folder, self.next = folder, 1 << 22
        folder.mkdir()

    def add(self, uid: int, parent: int = 1, command: str = "python", **variables: object) -> int:
        """A process, by its number."""
        pid, self.next = self.next, self.next + 1
        (self.folder / str(pid)).mkdir()
        texts = {
            "stat": f"{pid} ({command}) S {parent} " + "0 " * 17 + f"{pid} 0 0",
            "status": f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}\n",
            "environ": "".join(f"{name}={value}\0" for name, value in variables.items()),
            "cmdline": f"{command}: [4711.0]\0" if command == "slurmstepd" else "",
        }
        for name, text in texts.items():
            (self.folder / str(pid) / name).write_text(text)
        return pid

    def ranks(self, **options: object) -> tuple[list[dict], list[dict]]:
        """(rows, unread rows)."""
        context = Context(
            Root(procfs=str(self.folder)), {**OPTIONS, "skipped": [], **options}, (), None
        )
        pieces = list(read_ranks(context))
        return [row for piece in pieces for row in piece[1].get("ranks", [])], [
            row for piece in pieces for row in piece[2]
        ]


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path / "proc")


def add_job(
    tree: Tree, uid: int, size: int, job: str, names: tuple[str, str] = ("RANK", "WORLD_SIZE")
) -> list[int]:
    return [
        tree.add(uid, **{names[0]: rank, names[1]: size}, MASTER_PORT=job) for rank in range(size)
    ]


@pytest.mark.parametrize("of_one_job", [True, False])
def test_three_thousand_ranks_of_a_stranger_leave_every_other_job_its_place(tree, of_one_job):
    for number in range(3000):
        tree.add(STRANGER, RANK=number, WORLD_SIZE=3000, MASTER_PORT="0" if of_one_job else number)
    jobs = {OWNER: add_job(tree, OWNER, 8, "29500"), OTHER: add_job(tree, OTHER, 2, "29501")}
    rows, unread = tree.ranks()
    for uid, pids in jobs.items():
        assert sorted(row["pid"] for row in rows if row["user"] == str(uid)) == pids
    assert len(rows) == MOST_RANKS
    [left] = unread
    assert left["reason"].startswith(
        f"of user {STRANGER}: {3000 - (MOST_RANKS - 10)} of 3000 ranks ({1 if of_one_job else 3000}"
        " jobs) left out"
    )
    probe = {"status": "ok", "duration_ms": 1.0, "error": None, "unread": unread}
    document = {
        "collector": {"host": "gpu01"},
        "ranks": [row for row in rows if row["user"] == str(OWNER)],
        "sections": {"ranks": {"probe": probe}},
    }
    assert f"of user {STRANGER}: " in render_details(inspection_of([document]))


def test_a_large_job_of_a_user_pushes_out_no_small_one_of_the_same(tree):
    add_job(tree, OWNER, 600, "1")
    small = add_job(tree, OWNER, 4, "2")
    rows, unread = tree.ranks()
    assert set(small) <= {row["pid"] for row in rows}
    assert (
        len(rows) == MOST_RANKS
        and f"of user {OWNER}: 348 of 604 ranks (2 jobs) left out" in unread[0]["reason"]
    )


def test_a_stranger_with_other_variables_hides_no_job_of_mpi(tree):
    pids = add_job(tree, OWNER, 4, "1", ("PMI_RANK", "PMI_SIZE"))
    tree.add(STRANGER, RANK=0, WORLD_SIZE=1)
    assert set(pids) <= {row["pid"] for row in tree.ranks()[0]}


def test_a_launcher_below_srun_is_no_rank_of_its_own(tree):
    agent = tree.add(OWNER, SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=1, SLURM_JOB_ID=7)
    pids = [
        tree.add(
            OWNER,
            agent,
            SLURM_PROCID=0,
            SLURM_STEP_NUM_TASKS=1,
            SLURM_JOB_ID=7,
            RANK=rank,
            WORLD_SIZE=2,
        )
        for rank in range(2)
    ]
    assert [row["pid"] for row in tree.ranks()[0]] == pids


def test_a_process_that_only_says_that_it_is_of_a_slurm_job_is_not_of_it(tree):
    """A watcher would take it for a rank, and end the job for it."""
    step = tree.add(0, command="slurmstepd")
    own = tree.add(OWNER, step, RANK=0, WORLD_SIZE=1, SLURM_JOB_ID=4711)
    tree.add(STRANGER, RANK=1, WORLD_SIZE=2, SLURM_JOB_ID=4711)
    tree.add(
        STRANGER, tree.add(STRANGER, command="slurmstepd"), RANK=1, WORLD_SIZE=2, SLURM_JOB_ID=4711
    )
    assert [row["pid"] for row in tree.ranks(slurm_job="4711")[0]] == [own]
    with pytest.raises(Absent):
        tree.ranks(slurm_job="4712")


@pytest.mark.parametrize(
    ("uid", "other_rank", "other", "apart"),
    [
        (OWNER, 1, {"MASTER_PORT": 29501}, [1]),
        (OWNER, 1, {"MASTER_ADDR": "there"}, [1]),
        (OWNER, 1, {"MASTER_PORT": 29501, "WORLD_SIZE": 4}, []),
        (OWNER, 1, {"MASTER_PORT": 29501, "SLURM_JOB_ID": 7}, []),
        (OWNER, 0, {"MASTER_PORT": 29501}, []),
        (STRANGER, 1, {"MASTER_PORT": 29501}, []),
    ],
)
def test_a_rank_that_meets_elsewhere_is_told_and_a_neighbour_s_is_not(
    uid, other_rank, other, apart, tree
):
    """Of the same user, program and world size; what another user claims is no part of the job."""
    meets = {"WORLD_SIZE": 2, "MASTER_ADDR": "here", "MASTER_PORT": 29500}
    own = tree.add(OWNER, RANK=0, **meets)
    tree.add(uid, RANK=other_rank, **{**meets, **other})
    for rank in (0, 1):  # a job of its own, whose ranks do meet
        tree.add(OWNER, RANK=rank, **{**meets, "MASTER_PORT": 29600})
    context = Context(
        Root(procfs=str(tree.folder)), {**OPTIONS, "skipped": [], "pids": [own]}, (), None
    )
    found = [row for piece in read_ranks(context) for row in piece[1].get("apart", [])]
    assert [row["rank"] for row in found] == apart
