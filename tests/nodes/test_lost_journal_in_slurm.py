"""A journal that is lost while a rollout is interrupted, on booted nodes in a real Slurm: the nodes
know better, and the same command goes on."""

from __future__ import annotations

import json
import types

import pytest
import slurm_nodes
from slurm_site import DEADLINE_S, Site, states

from unhang.act.rollout.journal import JOURNAL

NAMES = ("gpu001", "gpu002", "gpu003")
RELEASED, CHANGED, UNTOUCHED = NAMES
RULE = "cuda-visible-devices-pinned"
DISABLED = "# disabled by unhang: CUDA_VISIBLE_DEVICES=0"
pytestmark = [*slurm_nodes.marks(3000), pytest.mark.nightly]


@pytest.fixture(scope="module")
def day(fake_library, tmp_path_factory):
    """Killed with one node released and one changed; then the journal is removed."""
    work = tmp_path_factory.mktemp("lost")
    with slurm_nodes.pinned_cluster_of(NAMES, fake_library, work) as cluster:
        site = Site(cluster, work, variables={"unhang_smoke": False})
        run = site.audit()
        waves = [wave["hosts"] for wave in site.plan(run, "--rule", RULE, "--floor", "0")["waves"]]
        with site.remediating(run, "python3") as process:
            site.await_step(process, run, CHANGED, "apply", "done")
        (run / JOURNAL).unlink()
        status = site.unhang("remediate", str(run), "--status")
        document = json.loads(site.unhang("remediate", str(run), "--status", "--format", "json"))
        with site.remediating(run, "python3") as process:
            code = process.wait(timeout=DEADLINE_S)
        texts = {
            name: cluster.fleet.shell(name, "cat /etc/environment; ls /var/lib/unhang")
            for name in NAMES
        }
        slurm = {name: cluster.state(name)[0] for name in NAMES}
        after = site.unhang("remediate", str(run), "--status")
        found = types.SimpleNamespace(
            waves=waves,
            status=status,
            document=document,
            code=code,
            texts=texts,
            slurm=slurm,
            after=after,
        )
        found.states, found.output, found.journal = (
            states(run, NAMES),
            site.output,
            (run / JOURNAL).read_text(),
        )
        yield found


def test_the_status_of_a_lost_journal_calls_no_node_untouched(day):
    assert day.waves == [[RELEASED], [CHANGED], [UNTOUCHED]]
    assert "the journal of this rollout was lost" in day.status
    assert "not touched" not in day.status
    assert {row["state"] for row in day.document["hosts"]} == {"unfinished"}


def test_the_same_command_rebuilds_it_from_the_nodes_and_goes_on(day):
    assert day.code == 0, day.output[-3000:]
    assert "by what the nodes have kept: 1 released, 1 unfinished" in day.output
    assert day.states == dict.fromkeys(NAMES, "released")
    assert set(day.slurm.values()) == {"IDLE"}
    assert "by what the nodes have kept: 1 released, 1 unfinished" in day.after


def test_a_released_node_is_not_changed_again_and_nothing_of_the_rollout_stays_on_a_node(day):
    lines = [json.loads(line) for line in day.journal.splitlines()]
    assert [
        line["step"]
        for line in lines
        if line["host"] == RELEASED and not line["evidence"].get("rebuilt")
    ] == []
    assert all(
        DISABLED in text and "lock.json" not in text and "baseline.json" not in text
        for text in day.texts.values()
    )
