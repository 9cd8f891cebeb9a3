"""Which GPUs a job has on its nodes, out of a line in which its user may write too."""

from __future__ import annotations

import pytest

from unhang.audit.ways.slurm_nodes import parse_held
from unhang.core.errors import UserError

# of Slurm 22.05: scontrol --oneliner --details show job, without what is between
LINE = (
    "JobId=1 JobName={name} UserId=root(0) JobState=RUNNING NumNodes=2 JOB_GRES=gpu:h200:3  "
    " Nodes=gpu001 CPU_IDs=0-1 Mem=0 GRES=gpu:h200:2(IDX:0-1)   Nodes=gpu002 CPU_IDs=0 Mem=0"
    " GRES=gpu:h200:1(IDX:0) MinCPUsNode=1 WorkDir=/tmp Comment={comment}  StdErr=/dev/null Power= "
)
FORGED = "x Nodes=gpu[001-002] CPU_IDs=0 Mem=0 GRES=gpu:h200:2"


def test_each_node_has_its_own_share():
    held = parse_held(LINE.format(name="train", comment="(null)"))
    assert {name: row["count"] for name, (row,) in held.items()} == {"gpu001": "2", "gpu002": "1"}


@pytest.mark.parametrize("place", ["name", "comment"])
def test_what_a_user_writes_decides_nothing(place):
    given = {"name": "n", "comment": "c", place: FORGED}
    with pytest.raises(UserError, match="found two: look at its name and comment"):
        parse_held(LINE.format(**given))
