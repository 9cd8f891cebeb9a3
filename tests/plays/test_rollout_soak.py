"""Released nodes soak and are asked again, by the playbook and the site's own drain command, over
scripted nodes: each run plays up to the next soak."""

from __future__ import annotations

import site_drain
from scripted_rollout import prepare, roll_out

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

REAL = ("drain", "wait", "keep", "release")
WAVES = [["gpu001"], ["gpu002", "gpu003"]]
HOSTS = ("gpu001", "gpu002", "gpu003")
MOST_RUNS = 8  # of the playbook, each of which takes longer than the soak


def begun(folder):
    """(scripted nodes, variables) after the run that has released the canary."""
    site = folder / "site"
    site.mkdir()
    given = {
        **site_drain.install(site, {host: {} for host in HOSTS}),
        "drain_poll_s": 1,
        "node_change_rootfs": str(folder),
        "unhang_soak": "1s",
    }
    return roll_out(prepare(folder, WAVES, REAL), {}, **given), given


def played_on(scripted, given):
    """Runs the playbook until no node soaks."""
    for _ in range(MOST_RUNS):
        roll_out(scripted, {}, **given)
        if replay(read_journal(scripted.run).entries).soak is None:
            return
    raise AssertionError(scripted.played.output)


def statuses(scripted, host):
    return [
        entry.status
        for entry in read_journal(scripted.run).entries
        if (entry.host, entry.step) == (host, "soak")
    ]


def test_a_canary_that_is_drained_after_its_release_stops_what_follows(tmp_path):
    done, given = begun(tmp_path)
    assert done.states() == {"gpu001": "released"}, done.played.output
    assert "nothing new is begun, gpu001 soaks until " in done.played.output
    assert done.played.failed == {"gpu001": 1, "gpu002": 0, "gpu003": 0}
    site_drain.install(
        tmp_path / "site", {"gpu001": {"drained": True, "by": "alice", "reason": "Xid 79"}}
    )
    played_on(done, given)
    assert done.states() == {"gpu001": "lost"}, done.played.output
    assert done.why("gpu001") == "soak: it is out of service, and takes no jobs: alice (Xid 79)"
    assert (
        "not proved healthy among the canaries: gpu001 (failed after its release)"
        in done.played.output
    )
    assert done.acts("apply") == ["gpu001"]


def test_nodes_that_are_well_after_each_soak_are_asked_before_each_wave_and_at_the_end(tmp_path):
    done, given = begun(tmp_path)
    for _ in WAVES:
        played_on(done, given)
    assert done.states() == dict.fromkeys(HOSTS, "released"), done.played.output
    assert (statuses(done, "gpu001"), statuses(done, "gpu003")) == (["done", "done"], ["done"])
    [first, *_] = [
        entry.evidence["why"]
        for entry in read_journal(done.run).entries
        if (entry.host, entry.step, entry.status) == ("", "soak", "done")
    ]
    assert first == "gpu001: answers in the boot of its proof, of which no record is left"
