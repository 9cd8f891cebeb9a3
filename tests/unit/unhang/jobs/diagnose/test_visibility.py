"""What a process lets itself see of the GPUs, and who holds them although nvidia-smi lists
nobody."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose


def _causes(folder, text):
    log = folder / "job.log"
    log.write_text(text, encoding="utf-8")
    return [(cause["cause"], cause["severity"]) for cause in diagnose([str(log)])["causes"]]


@pytest.mark.parametrize(
    ("bar", "alarmed"),
    [
        ("Epoch 3:  41%|####1     | 212/517 [02:31<03:37,  1.40it/s]\n", False),
        ("Epoch 0:   0%|          | 0/517 [00:00<?, ?it/s]\n", True),
    ],
)
def test_rank_whose_epochs_go_on_does_not_wait_for_others(tmp_path, bar, alarmed):
    text = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2\n" + bar
    assert (("launch_mismatch", "warning") in _causes(tmp_path, text)) == alarmed
