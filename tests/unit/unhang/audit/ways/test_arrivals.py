"""Each node once: the newest document wins, what contradicts itself is named, and a document that
belongs to nobody changes no node."""

from __future__ import annotations

import json
import tarfile

import pytest
from test_split_documents import facts

from unhang.audit.ways.arrivals import Meant, write_arrivals
from unhang.audit.ways.files import arrivals_of, limits
from unhang.core.run import run_folder

MEANT = {"gpu001": Meant(["gpu"], {"driver": {}}), "gpu002": Meant(["gpu"], {})}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "documents").mkdir()
    return tmp_path / "documents"


@pytest.fixture
def arrive(tmp_path):
    """(sources, the inventory's hosts) -> (nodes of the run, Arrived)."""

    def read(*sources, meant=MEANT):
        run = tmp_path / "run"
        run_folder.make_folder(run)
        arrived = write_arrivals(
            run,
            meant,
            (
                ("2026-01-01T00:00:00Z", one)
                for source in sources
                for one in arrivals_of(str(source), limits())
            ),
        )
        return {
            node["host"]: node for node in map(run_folder.read_node, run_folder.node_files(run))
        }, arrived

    return read


def at(hostname, hour, **node):
    """Facts that were read at an hour."""
    document = facts(hostname, **node)
    document["collector"]["collected_at"] = f"2026-11-24T{hour:02}:00:00Z"
    return document


def claims(host, document, **more):
    """A node's file as a node may send it, with groups and a policy."""
    node = {
        "host": host,
        "groups": ["all"],
        "policy": {"driver": {"version": "535.104.05"}},
        "status": "ok",
        "message": None,
    }
    return {"schema": "unhang/node/1", **node, **more, "facts": document}


def put(folder, **documents):
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(
            document if isinstance(document, str) else json.dumps(document)
        )
    return folder


def run_of(folder, node):
    """A run folder with this node."""
    run_folder.make_folder(folder)
    run_folder.write_document(folder / "nodes" / f"{node['host']}.json", node)
    run_folder.write_document(folder / "run.json", {})
    return folder


def test_groups_and_policy_are_the_inventorys_and_names_may_have_a_domain(arrive, folder):
    nodes, arrived = arrive(
        put(folder, a=facts("gpu001.cluster.example"), gpu002=facts("other-name"))
    )
    assert {
        host: (node["groups"], node["policy"], node["status"]) for host, node in nodes.items()
    } == {
        "gpu001": (["gpu"], {"driver": {}}, "ok"),
        "gpu002": (["gpu"], {}, "ok"),
    }
    assert (arrived.lines, arrived.faults) == ([], [])


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_newest_of_two_counts_in_whatever_order_they_come(arrive, folder, names):
    nodes, arrived = arrive(put(folder, **{names[0]: at("gpu001", 9), names[1]: at("gpu001", 10)}))
    assert nodes["gpu001"]["facts"]["collector"]["collected_at"] == "2026-11-24T10:00:00Z"
    assert (arrived.twice, arrived.lines) == ({"gpu001"}, [])


def test_two_machines_of_one_name_are_named(arrive, folder):
    nodes, arrived = arrive(
        put(folder, a=at("gpu001", 9, machine_id="1"), b=at("gpu001", 10, machine_id="2"))
    )
    assert nodes["gpu001"]["facts"]["sections"]["node"]["machine_id"] == "2"
    assert len(arrived.lines) == 1
    assert "two machines answer by this name" in arrived.lines[0]


def test_half_an_answer_never_replaces_a_whole_one(arrive, folder):
    whole = json.dumps(at("gpu001", 9))
    nodes, arrived = arrive(
        put(
            folder, gpu001=f"{whole}\n{whole[:150]}", gpu002=whole[:150].replace("gpu001", "gpu002")
        )
    )
    assert nodes["gpu001"]["status"] == "ok"
    assert nodes["gpu002"]["status"] == "invalid"
    assert "not valid JSON" in nodes["gpu002"]["message"]
    assert len(arrived.faults) == 1


def test_a_node_that_answers_as_another_is_invalid(arrive, folder):
    nodes, _ = arrive(put(folder, gpu001=facts("gpu002.cluster.example")))
    assert (nodes["gpu001"]["status"], nodes["gpu001"]["facts"]) == ("invalid", None)
    assert nodes["gpu001"]["message"] == "this is the answer of gpu002, not of gpu001"
    assert "gpu002" not in nodes


def test_a_stranger_is_named_and_written_nowhere(arrive, folder):
    nodes, arrived = arrive(put(folder, x=facts("../../etc/passwd")))
    assert nodes == {}
    assert "../../etc/passwd is not a host of the inventory" in arrived.lines[0]


def test_without_an_inventory_a_name_of_a_node_is_no_path(arrive, folder, tmp_path):
    nodes, _ = arrive(put(folder, x=facts("../../escaped")), meant=None)
    assert list(nodes) == ["../../escaped"]
    assert [
        path for path in tmp_path.rglob("*escaped*") if path.parent != tmp_path / "run" / "nodes"
    ] == []


@pytest.mark.parametrize("packing", ["w", "w:gz", "w:xz"])
def test_a_tar_gives_what_its_folder_gives(arrive, folder, tmp_path, packing):
    put(folder, a=facts("gpu001"), b=facts("gpu002"))
    (folder / "c.json").symlink_to("/etc/passwd")
    (folder / "note.md").write_text("no document")
    with tarfile.open(tmp_path / "all.tar", packing) as archive:
        archive.add(folder, "../documents")
    nodes, arrived = arrive(tmp_path / "all.tar")
    assert {host: node["facts"] for host, node in nodes.items()} == {
        "gpu001": facts("gpu001"),
        "gpu002": facts("gpu002"),
    }
    assert arrived.faults == []


def test_a_tar_that_was_cut_gives_what_it_has_and_says_so(arrive, folder, tmp_path):
    put(folder, a=facts("gpu001"), b=facts("gpu002") | {"pad": "x"})
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(folder / "a.json", "a.json")
        archive.add(folder / "b.json", "b.json")
    with tarfile.open(tmp_path / "all.tar") as archive:
        half = archive.getmember("b.json").offset_data + 100
    (tmp_path / "cut.tar").write_bytes((tmp_path / "all.tar").read_bytes()[:half])
    nodes, arrived = arrive(tmp_path / "cut.tar")
    assert list(nodes) == ["gpu001"]
    assert any("cannot be read to its end" in one for one in arrived.faults)


def test_the_folder_of_a_run_gives_its_nodes_as_they_are(arrive, tmp_path):
    node = {
        "schema": "unhang/node/1",
        "host": "gpu003",
        "groups": ["old"],
        "policy": {},
        "status": "unreachable",
        "message": "no route",
        "facts": None,
    }
    nodes, _ = arrive(run_of(tmp_path / "other", node), meant=None)
    assert nodes == {"gpu003": node}


def test_a_node_that_sends_groups_and_a_policy_has_none(arrive, folder):
    nodes, arrived = arrive(put(folder, stream=claims("gpu001", at("gpu001", 9))), meant=None)
    assert (nodes["gpu001"]["groups"], nodes["gpu001"]["policy"], nodes["gpu001"]["facts"]) == (
        [],
        {},
        at("gpu001", 9),
    )
    assert arrived.claimed == {"gpu001"}


def test_with_an_inventory_a_nodes_own_policy_is_no_news(arrive, folder):
    nodes, arrived = arrive(put(folder, stream=claims("gpu001", at("gpu001", 9))))
    assert (nodes["gpu001"]["groups"], nodes["gpu001"]["policy"]) == (["gpu"], {"driver": {}})
    assert arrived.claimed == set()


@pytest.mark.parametrize("source", [".", "nodes", "nodes/gpu003.json"])
def test_the_file_of_a_run_keeps_its_policy_however_it_is_named(arrive, tmp_path, source):
    node = claims("gpu003", at("gpu003", 9))
    nodes, arrived = arrive(run_of(tmp_path / "other", node) / source, meant=None)
    assert (nodes, arrived.claimed) == ({"gpu003": node}, set())


def test_a_file_that_lies_beside_a_run_json_is_no_file_of_a_run(arrive, folder):
    put(folder, stream=claims("gpu001", at("gpu001", 9)), run="{}")
    nodes, arrived = arrive(folder / "stream.json", meant=None)
    assert (nodes["gpu001"]["policy"], arrived.claimed) == ({}, {"gpu001"})


SPOOFS = {
    "later": at("gpu666", 10, machine_id="6"),
    "of the year 9999": at("gpu666", 9) | {"collector": {"collected_at": "9999-01-01T00:00:00Z"}},
    "without a time": at("gpu666", 9) | {"collector": {}},
}


@pytest.mark.parametrize("spoof", SPOOFS.values(), ids=SPOOFS)
@pytest.mark.parametrize("is_first", [True, False])
def test_another_nodes_facts_never_replace_the_answer_of_the_host_itself(
    arrive, folder, spoof, is_first
):
    documents = [claims("gpu001", spoof), at("gpu001", 9, machine_id="1")]
    stream = "\n".join(map(json.dumps, documents if is_first else documents[::-1]))
    nodes, arrived = arrive(put(folder, stream=stream), meant=None)
    assert nodes["gpu001"]["facts"] == documents[1]
    assert arrived.twice == {"gpu001"}
    assert len(arrived.lines) == 1 and "gpu001 is in" in arrived.lines[0]
    assert (
        "two machines answer by this name" in arrived.lines[0]
        or "they call themselves gpu001 and gpu666" in arrived.lines[0]
    )


@pytest.mark.parametrize(
    "time", ["9999-01-01T00:00:00Z", "zzzz", "", None, "2026-11-24T10:00:00+09:00"]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_time_that_nobody_can_trust_is_older_than_every_other(arrive, folder, time, is_first):
    odd = at("gpu001", 9, odd=True) | {"collector": {"collected_at": time}}
    documents = [odd, at("gpu001", 8)]
    stream = "\n".join(map(json.dumps, documents if is_first else documents[::-1]))
    nodes, arrived = arrive(put(folder, stream=stream))
    assert nodes["gpu001"]["facts"] == at("gpu001", 8)
    assert any("a time later than now" in line for line in arrived.lines) == (
        time == "9999-01-01T00:00:00Z"
    )


def test_a_clock_that_is_ahead_costs_no_node_its_answer(arrive, folder):
    ahead = at("gpu001", 9) | {"collector": {"collected_at": "9999-01-01T00:00:00Z"}}
    nodes, _ = arrive(put(folder, a=ahead))
    assert (nodes["gpu001"]["status"], nodes["gpu001"]["facts"]) == ("ok", ahead)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_loose_file_of_a_node_that_was_not_read_never_replaces_an_answer(
    arrive, folder, is_first
):
    documents = [claims("gpu001", None, status="failed", message="no"), at("gpu001", 9)]
    stream = "\n".join(map(json.dumps, documents if is_first else documents[::-1]))
    nodes, arrived = arrive(put(folder, stream=stream), meant=None)
    assert nodes["gpu001"]["status"] == "ok"
    assert "failed in the one, ok in the other" in arrived.lines[0]


def test_a_newer_run_whose_node_was_not_read_still_counts(arrive, folder, tmp_path):
    unread = run_of(
        tmp_path / "other", claims("gpu001", None, status="unreachable", message="no route")
    )
    old = at("gpu001", 9) | {"collector": {"collected_at": "2025-01-01T00:00:00Z"}}
    nodes, _ = arrive(put(folder, gpu001=old), unread, meant=None)
    assert nodes["gpu001"]["status"] == "unreachable"


def gpus(document, *uuids):
    document["sections"]["gpus"] = {
        "probe": {"status": "ok"},
        "devices": [{"uuid": uuid} for uuid in uuids],
    }
    return document


@pytest.mark.parametrize(
    ("newer", "line"),
    [
        (
            gpus(at("gpu001", 10, machine_id="1"), "GPU-3", "GPU-4"),
            "two machines answer by this name, or all GPUs were replaced",
        ),
        (gpus(at("gpu001", 10), "GPU-1", "GPU-2"), "only one of them says which machine it is"),
        (
            gpus(at("gpu001", 10, machine_id={}), "GPU-1", 7, {}),
            "only one of them says which machine it is",
        ),
        (gpus(at("gpu001", 10, machine_id="1"), "GPU-2", "GPU-3"), ""),
    ],
)
def test_gpus_and_a_missing_machine_id_tell_machines_apart_too(arrive, folder, newer, line):
    older = gpus(at("gpu001", 9, machine_id="1"), "GPU-1", "GPU-2")
    _, arrived = arrive(put(folder, a=older, b=newer))
    assert len(arrived.lines) == bool(line)
    assert all(line in one for one in arrived.lines)


def test_strangers_push_no_conflict_of_machines_off_the_screen(arrive, folder):
    strangers = [facts(f"stranger{number}") for number in range(1200)]
    stream = "\n".join(
        map(
            json.dumps,
            [*strangers, at("gpu001", 9, machine_id="1"), at("gpu001", 10, machine_id="2")],
        )
    )
    _, arrived = arrive(put(folder, stream=stream))
    assert "two machines answer by this name" in arrived.lines[0]
