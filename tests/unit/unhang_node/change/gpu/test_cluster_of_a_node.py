"""The name of the cluster that a node's own slurm.conf gives."""

from __future__ import annotations

import os

import pytest

from unhang_node.change.gpu import users


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        (
            "# ClusterName=old\nClusterName=East # ours\nNodeName=gpu001 Comment=ClusterName=x\n",
            "east",
        ),
        ("SlurmctldHost=ctl\n", ""),
        (None, ""),
    ],
)
def test_the_cluster_is_that_of_the_first_slurm_conf(tmp_path, monkeypatch, text, cluster):
    monkeypatch.setattr(users, "FOLDERS", (str(tmp_path / "none"), str(tmp_path)))
    if text is not None:
        (tmp_path / "slurm.conf").write_text(text)
    assert users.read_cluster() == cluster


def test_a_file_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(users, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(users, "CONFIGURATION_DEADLINE_S", 0.2)
    os.mkfifo(tmp_path / "slurm.conf")  # nobody writes into it
    assert users.read_cluster() == ""
