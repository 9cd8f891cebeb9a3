"""The bar of an audit, from the files of its run."""

from __future__ import annotations

import os

from unhang.core.ansible.run_files import node_document, write_node
from unhang.core.commands.counted_nodes import CountedNodes
from unhang.core.run.run_folder import write_document

HOSTS = [f"gpu{number:02d}" for number in range(1, 9)]


def opened(tmp_path):
    (tmp_path / "nodes").mkdir()
    write_document(tmp_path / "run.json", {"schema": "unhang/run/1", "id": "r", "hosts": HOSTS})
    return tmp_path


def answered(folder, *rows):
    for host, status in rows:
        facts = {} if status == "ok" else None
        write_node(folder, node_document(host, ["gpu"], {"a": "b"}, status, None, facts))


def test_before_the_run_knows_its_hosts_one_line_says_so(tmp_path):
    lines = CountedNodes(tmp_path).lines(100)
    assert len(lines) == 1
    assert lines[0].startswith("the nodes are listed ")
    assert "0:00:0" in lines[0]


def test_counts_and_the_first_three_that_are_waited_for(tmp_path):
    folder = opened(tmp_path)
    nodes = CountedNodes(folder)
    answered(folder, ("gpu01", "ok"), ("gpu04", "unreachable"), ("gpu05", "timeout"))
    bar, waited = nodes.lines(100)
    assert bar.startswith("3 of 8 nodes ")
    assert "1 failed, 1 unreachable" in bar
    assert waited == "waited for: gpu02, gpu03, gpu06 and 2 more"
    answered(folder, *((host, "ok") for host in HOSTS if host not in ("gpu04", "gpu05")))
    (bar,) = nodes.lines(100)
    assert bar.startswith("8 of 8 nodes ")
    assert "1 failed, 1 unreachable" in bar


def test_a_run_that_is_gone_on_with_counts_what_was_read_and_waits_for_the_rest(tmp_path):
    folder = opened(tmp_path)
    answered(folder, ("gpu01", "ok"), ("gpu02", "python_too_old"), ("gpu03", "unreachable"))
    nodes = CountedNodes(folder)
    assert nodes.lines(100)[0].startswith("2 of 8 nodes ")
    before = (folder / "nodes" / "gpu03.json").stat().st_mtime_ns
    answered(folder, ("gpu03", "unreachable"))
    os.utime(folder / "nodes" / "gpu03.json", ns=(before + 1, before + 1))
    bar = nodes.lines(100)[0]
    assert bar.startswith("3 of 8 nodes ")
    assert "1 unreachable" in bar


def test_what_is_no_node_of_the_run_and_a_name_with_controls_change_nothing_on_the_screen(tmp_path):
    folder = opened(tmp_path)
    evil = "gpu\x1b[2J01"
    write_document(
        folder / "run.json", {"schema": "unhang/run/1", "id": "r", "hosts": ["gpu01", evil]}
    )
    nodes = CountedNodes(folder)
    (folder / "nodes" / "stranger.json").write_text('{"status":"ok"}')
    (folder / "nodes" / "gpu01.json").write_text("rubbish")
    bar, waited = nodes.lines(100)
    assert bar.startswith("1 of 2 nodes ")
    assert "1 failed" in bar
    assert waited == r"waited for: gpu\x1b[2J01"


def test_lines_keep_to_the_width(tmp_path):
    folder = opened(tmp_path)
    answered(folder, ("gpu01", "ok"))
    assert all(len(line) <= 40 for line in CountedNodes(folder).lines(40))
    assert CountedNodes(folder).lines(60)[0].endswith("unreachable 0:00:00, 0:00:00 left")
