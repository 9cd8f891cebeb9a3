"""`unhang remediate --apply` names the plan that it applies, and refuses another than the one that
a person has previewed."""

from __future__ import annotations

import json
import shutil

import pytest
from rollout_plans import HOSTS, Recorded, planned

from unhang.act.commands.preview import PREVIEWED, refuse_another_than_previewed
from unhang.act.plan.plan_document import digest_of_plan, read_plan
from unhang.cli import main
from unhang.core.ansible.play_process import Played
from unhang.core.errors import UserError
from unhang.core.run.own_runs import mark_as_own


@pytest.fixture
def run_folder(tmp_path):
    """A plan, which nobody has previewed yet."""
    folder = tmp_path / "20261120T070000Z-0123456789"
    (folder / "nodes").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps(
            {
                "schema": "unhang/run/1",
                "id": folder.name,
                "hosts": list(HOSTS),
                "inventory": [str(tmp_path / "hosts")],
            }
        )
    )
    planned(folder)
    return folder


def previewed(folder, text):
    (folder / PREVIEWED).write_text(text)


def test_a_plan_that_was_previewed_or_that_nobody_previewed_is_applied(run_folder):
    plan = read_plan(run_folder)
    refuse_another_than_previewed(run_folder, plan)
    previewed(run_folder, json.dumps({"digest": digest_of_plan(plan)}))
    refuse_another_than_previewed(run_folder, plan)


def test_another_plan_than_the_previewed_one_is_refused_with_both_digests_before_anything_is_started(
    run_folder, capsys
):
    digest = digest_of_plan(read_plan(run_folder))
    previewed(run_folder, json.dumps({"digest": "0123456789abcdef"}))
    assert main(["remediate", str(run_folder), "--apply"]) == 2
    problem = capsys.readouterr().err
    assert f"the plan {digest[:12]} was not previewed, unlike the plan 0123456789ab" in problem
    assert "; preview it first: " in problem
    assert not (run_folder / "journal.jsonl").exists()


def test_without_a_name_none_of_two_rollouts_is_chosen_while_the_earlier_one_holds_nodes(
    run_folder, tmp_path, capsys, monkeypatch
):
    started = []
    monkeypatch.setattr(
        "unhang.act.commands.remediate.play_into", lambda *_: started.append(1) or Played("", 1)
    )
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path))
    (tmp_path / "hosts").write_text("")
    later = tmp_path / "20261121T070000Z-0123456789"
    shutil.copytree(run_folder, later)
    (tmp_path / "latest").symlink_to(later.name)
    document = json.loads((later / "run.json").read_text())
    (later / "run.json").write_text(json.dumps({**document, "id": later.name}))
    mark_as_own(run_folder)
    mark_as_own(later)
    rollout = Recorded(run_folder, read_plan(run_folder))
    rollout.begin()
    rollout.through(HOSTS[0], until="wait")
    assert main(["remediate", "--apply"]) == 2
    problem = capsys.readouterr().err
    assert f"  {HOSTS[0]} by the rollout of {run_folder.name}: " in problem
    assert f" remediate {tmp_path.name}/{run_folder.name} --apply\n" in problem
    assert "  of the latest run: " in problem
    assert f" remediate {tmp_path.name}/{later.name} --apply\n" in problem
    assert not started
    rollout.through(HOSTS[0], failing="wait")  # so it is released, and nothing is held
    assert main(["remediate", "--apply"]) == 2
    assert started
    assert "by the rollout of" not in capsys.readouterr().err


def test_a_rollout_that_never_began_is_not_ended(run_folder, capsys, monkeypatch):
    monkeypatch.setattr(
        "unhang.act.commands.remediate.play_into", lambda *_: pytest.fail("Ansible was started")
    )
    mark_as_own(run_folder)
    before = sorted(run_folder.iterdir())
    assert main(["remediate", str(run_folder), "--end"]) == 2
    assert (
        f"--end: no rollout of {run_folder} has begun: there is nothing to end"
        in capsys.readouterr().err
    )
    assert sorted(run_folder.iterdir()) == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": "\\u001b[2J"}', "[" * 100_000])
def test_a_note_of_a_preview_that_is_damaged_is_no_preview(run_folder, text):
    previewed(run_folder, text)
    with pytest.raises(UserError, match="; preview it first") as refused:
        refuse_another_than_previewed(run_folder, read_plan(run_folder))
    assert "\x1b" not in str(refused.value)
