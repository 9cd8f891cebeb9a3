"""Each node once: the newest document wins, what contradicts itself is named, and a document that belongs to nobody changes no node."""

from __future__ import annotations

import json
import tarfile

import pytest
from test_split_documents import facts

from unhang.audit.collect.arrivals import Meant, write_arrivals
from unhang.audit.collect.files import arrivals_of
from unhang.run import run_folder

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
        arrived = write_arrivals(run, meant, (("2026-01-01T00:00:00Z", one) for source in sources for one in arrivals_of(str(source))))
        return {node["host"]: node for node in map(run_folder.read_node, run_folder.node_files(run))}, arrived

    return read


def at(hostname, hour, **node):
    """Facts that were read at an hour."""
    document = facts(hostname, **node)
    document["collector"]["collected_at"] = f"2026-11-24T{hour:02}:00:00Z"
    return document


def put(folder, **documents):
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return folder


def test_groups_and_policy_are_the_inventorys_and_names_may_have_a_domain(arrive, folder):
    nodes, arrived = arrive(put(folder, a=facts("gpu001.cluster.example"), gpu002=facts("other-name")))
    assert {host: (node["groups"], node["policy"], node["status"]) for host, node in nodes.items()} == {
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
    nodes, arrived = arrive(put(folder, a=at("gpu001", 9, machine_id="1"), b=at("gpu001", 10, machine_id="2")))
    assert nodes["gpu001"]["facts"]["sections"]["node"]["machine_id"] == "2"
    assert len(arrived.lines) == 1
    assert "two machines answer by this name" in arrived.lines[0]


def test_half_an_answer_never_replaces_a_whole_one(arrive, folder):
    whole = json.dumps(at("gpu001", 9))
    nodes, arrived = arrive(put(folder, gpu001=f"{whole}\n{whole[:150]}", gpu002=whole[:150].replace("gpu001", "gpu002")))
    assert nodes["gpu001"]["status"] == "ok"
    assert nodes["gpu002"]["status"] == "invalid"
    assert "no valid JSON" in nodes["gpu002"]["message"]
    assert len(arrived.faults) == 1


def test_a_node_that_answers_as_another_is_invalid(arrive, folder):
    nodes, _ = arrive(put(folder, gpu001=facts("gpu002.cluster.example")))
    assert (nodes["gpu001"]["status"], nodes["gpu001"]["facts"]) == ("invalid", None)
    assert nodes["gpu001"]["message"] == "expected the answer of gpu001, found that of gpu002"
    assert "gpu002" not in nodes


def test_a_stranger_is_named_and_written_nowhere(arrive, folder):
    nodes, arrived = arrive(put(folder, x=facts("../../etc/passwd")))
    assert nodes == {}
    assert "expected a host of the inventory, found ../../etc/passwd" in arrived.lines[0]


def test_without_an_inventory_a_name_of_a_node_is_no_path(arrive, folder, tmp_path):
    nodes, _ = arrive(put(folder, x=facts("../../escaped")), meant=None)
    assert list(nodes) == ["../../escaped"]
    assert [path for path in tmp_path.rglob("*escaped*") if path.parent != tmp_path / "run" / "nodes"] == []


@pytest.mark.parametrize("packing", ["w", "w:gz", "w:xz"])
def test_a_tar_gives_what_its_folder_gives(arrive, folder, tmp_path, packing):
    put(folder, a=facts("gpu001"), b=facts("gpu002"))
    (folder / "c.json").symlink_to("/etc/passwd")
    (folder / "note.md").write_text("no document")
    with tarfile.open(tmp_path / "all.tar", packing) as archive:
        archive.add(folder, "../documents")
    nodes, arrived = arrive(tmp_path / "all.tar")
    assert {host: node["facts"] for host, node in nodes.items()} == {"gpu001": facts("gpu001"), "gpu002": facts("gpu002")}
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
    other = tmp_path / "other"
    run_folder.make_folder(other)
    node = {"schema": "unhang/node/1", "host": "gpu003", "groups": ["old"], "policy": {}, "status": "unreachable", "message": "no route", "facts": None}
    run_folder.write_document(other / "nodes" / "gpu003.json", node)
    run_folder.write_document(other / "run.json", {})
    nodes, _ = arrive(other, meant=None)
    assert nodes == {"gpu003": node}
