"""The run folder: names, atomic writes, full disks. unhang reads what the plugins write."""

from __future__ import annotations

import grp
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_fleet import PROJECT, envelope

from unhang.core.errors import UserError
from unhang.core.run import run_folder, whole_files

sys.path.append(str(PROJECT / "plugins"))
from unhang.core.ansible import run_files

NAMES = st.text(min_size=1, max_size=300) | st.sampled_from(
    [".", "..", "../x", "a/b", "gpu001", "GPU-1.x_y~z", "\udcff", "%2E"]
)


def node(host, **more):
    """A node document."""
    return {
        **run_files.node_document(host, [], {}, "ok", None, {"schema": "unhang/node-facts/1"}),
        **more,
    }


@given(NAMES)
def test_a_host_name_is_always_one_plain_file_name(host):
    stem = run_folder.file_stem(host)
    assert set(stem) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%")
    assert stem not in ("", ".", "..")
    assert len(stem) + len(".json") <= 255


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_two_hosts_never_share_a_file(hosts):
    assert run_folder.file_stem(hosts[0]) != run_folder.file_stem(hosts[1])


def test_plain_host_names_stay_readable():
    assert run_folder.file_stem("gpu-001.rack_2.example") == "gpu-001.rack_2.example"


def test_run_ids_do_not_collide_and_are_what_the_schema_allows():
    ids = {run_folder.new_run_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(identity.isascii() and identity.replace("-", "").isalnum() for identity in ids)


def test_what_the_plugins_write_is_what_unhang_reads(tmp_path):
    run = tmp_path / "20260101T000000Z-abcdef"
    (run / "nodes").mkdir(parents=True)
    run_folder.write_document(
        run / "run.json", {"schema": "unhang/run/1", "id": run.name, "hosts": ["../x", "gpu001"]}
    )
    run_files.write_node(run, node("../x"), raw="rubbish")
    run_files.write_node(run, node("gpu001"))
    run_files.point_latest(run)
    assert run_folder.list_runs(tmp_path) == [run]
    assert (
        run_folder.find_run("latest", tmp_path)
        == run
        == run_folder.find_run(run.name, tmp_path)
        == run_folder.find_run(run, tmp_path)
    )
    assert run_folder.read_run(run).hosts == ["../x", "gpu001"]
    assert sorted(run_folder.read_node(path)["host"] for path in run_folder.node_files(run)) == [
        "../x",
        "gpu001",
    ]


def test_latest_moves_on_from_run_to_run(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run_files.point_latest(tmp_path / name)
    assert os.readlink(tmp_path / "latest") == "b"


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path):
    writer = whole_files.write_atomically
    target = tmp_path / "document.json"
    writer(target, "old")
    with_limit(lambda: writer(target, "x" * 100_000), expect=OSError)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def with_limit(action, expect):
    """Runs `action` with a limit of 10 kB for each file, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(expect):
            action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_that_lies_in_the_folder_of_temporary_files_becomes_an_answer(
    tmp_path, monkeypatch
):
    """Once a folder there with the name of the run was believed, whoever had made it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = tmp_path / "20261120T175745Z-c128066de5"
    (run / "nodes").mkdir(parents=True)
    run_folder.write_document(run / "run.json", {"schema": "unhang/run/1", "hosts": ["a"]})
    planted = tmp_path / f"unhang-spill-{run.name}" / "nodes"
    planted.mkdir(parents=True)
    (planted / "a.json").write_text(json.dumps(node("a")))
    (planted / "b.json").symlink_to("/etc/passwd")
    run_files.close_for_another(run)
    assert [path.name for path in run_folder.node_files(run)] == ["a.json"]
    assert run_folder.read_node(run / "nodes" / "a.json")["status"] == "failed"
    assert len(list(planted.iterdir())) == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", "\xff"])
def test_an_unreadable_run_is_one_line_with_the_file(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"run\.json") as shown:
        run_folder.read_run(tmp_path)
    assert "\n" not in str(shown.value)


def test_a_run_that_is_not_there_names_those_that_are(tmp_path):
    with pytest.raises(UserError, match="make one with: unhang audit"):
        run_folder.find_run("latest", tmp_path)
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "run.json").write_text("{}")
    with pytest.raises(UserError, match="the newest are r1"):
        run_folder.find_run("r2", tmp_path)


def large_envelope(size=60_000):
    """An answer of this many bytes."""
    facts = {
        "schema": "unhang/node-facts/1",
        "collector": {},
        "sections": {"node": {"probe": {"status": "ok"}, "hostname": "x" * size}},
    }
    return envelope(node_facts=json.dumps(facts))


def test_a_disk_that_fills_up_during_a_run_loses_nothing_that_was_written(fleet):
    fleet.answering("a-small", envelope())
    fleet.answering("b-large", large_envelope(3_000_000))
    fleet.answering("c-small", envelope())
    done = limited_play(fleet, 2_000_000)
    assert "the answers of 1 nodes could not be written (b-large: File too large)" in done.stderr
    assert "Traceback" not in done.stderr
    assert {host: node["status"] for host, node in fleet.nodes().items()} == {
        "a-small": "ok",
        "b-large": "failed",
        "c-small": "ok",
    }
    assert fleet.nodes()["b-large"]["message"] == "its answer could not be written: File too large"


def limited_play(fleet, limit_bytes):
    """The audit with a limit on the size of each file."""
    wrapper = fleet.folder / "limited"
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))"
    wrapper.write_text(
        f"#!{sys.executable}\nimport os, resource, sys\n{limit}\nos.execv(sys.argv[1],"
        " sys.argv[1:])\n"
    )
    wrapper.chmod(0o755)
    command = [
        wrapper,
        Path(sys.executable).parent / "ansible-playbook",
        PROJECT / "playbooks" / "audit.yml",
        "-i",
        fleet.inventory,
    ]
    return subprocess.run(
        list(map(str, command)),
        env=fleet.environment(),
        cwd=fleet.folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_answers_that_the_run_folders_disk_cannot_take_are_counted_and_named(fleet):
    fleet.runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", str(fleet.runs)], check=True)
    try:
        for name in ("a", "b", "c"):
            fleet.answering(name, large_envelope())
        done = fleet.play(environment={"TMPDIR": str(fleet.folder)})
    finally:
        subprocess.run(["umount", str(fleet.runs)], check=True)
    assert (
        "the answers of 3 nodes could not be written (a: No space left on device); free some room"
        " and audit them again" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_run_folder_that_cannot_be_made_ends_the_audit_before_it_looks(fleet):
    fleet.answering("a", envelope())
    fleet.runs.write_text("in the way")
    done = fleet.play()
    assert done.returncode == 2
    assert "could not make the run folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
def test_a_run_is_for_its_user_alone_whatever_the_umask(tmp_path, umask, monkeypatch):
    monkeypatch.delenv("UNHANG_GROUP", raising=False)
    run, before = tmp_path / "runs" / "r1", os.umask(umask)
    try:
        run_folder.make_folder(run)
        run_folder.write_document(run / "run.json", {})
        run_files.write_node(run, node("a"))
        whole_files.write_named(tmp_path / "named.txt", "x")
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o7777
        for path in (
            run,
            run / "nodes",
            run / "run.json",
            run / "nodes" / "a.json",
            tmp_path / "named.txt",
        )
    }
    assert modes == {
        "r1": 0o700,
        "nodes": 0o700,
        "run.json": 0o600,
        "a.json": 0o600,
        "named.txt": 0o666 & ~umask,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another group takes root")
def test_a_site_may_share_runs_with_a_group(tmp_path, monkeypatch):
    monkeypatch.setenv("UNHANG_GROUP", "daemon")
    run, group = tmp_path / "runs" / "r1", grp.getgrnam("daemon").gr_gid
    run_folder.make_folder(run)
    run_files.write_node(run, node("a"))
    found = {
        path.name: (path.stat().st_mode & 0o777, path.stat().st_gid)
        for path in (run, run / "nodes", run / "nodes" / "a.json")
    }
    assert found == {"r1": (0o750, group), "nodes": (0o750, group), "a.json": (0o640, group)}
    monkeypatch.setenv("UNHANG_GROUP", "no-such-group")
    with pytest.raises(LookupError):
        run_folder.make_folder(tmp_path / "runs" / "r2")
