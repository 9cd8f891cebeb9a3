"""`unhang mcp`, asked by the protocol's own client over standard input and output: evidence with
lines and sources, texts of logs and nodes as data, and nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from marked_texts import ORDER, outside_of_marks, texts
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from unhang.commands.assistant_server import INSTRUCTIONS
from unhang.commands.assistant_tools import TOOLS

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz012345"
NCCL_LOG = (
    "gpu01:100:100 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
    f"gpu01:100:100 [0] misc/socket.cc:50 NCCL WARN {ORDER}\n"
    f"[rank0]: RuntimeError: {ORDER} » token={TOKEN} \u202e\U000e0041\n"
    "[rank1]:[E1120 10:00:00.000 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=2, OpType=BROADCAST, NumelIn=65, NumelOut=65,"
    " Timeout(ms)=1800000) ran for 1800731 milliseconds before timing out.\n"
)
SCRIPT = f"#!/bin/bash\nexport NCCL_P2P_DISABLE=1\nexport NCCL_SOCKET_IFNAME='{ORDER}'\n"


def ask(folder, *calls):
    """[(answer, whether it is an error)] of the calls (tool, arguments), in one session."""

    async def session():
        async with Client(stdio_client(server_of(folder))) as client:
            return [await client.call_tool(name, given) for name, given in calls]

    results = anyio.run(session)
    texts = [one.content[0].text for one in results]
    assert all(len(text.encode()) <= 16 << 10 for text in texts)
    return [(json.loads(text), one.is_error) for text, one in zip(texts, results, strict=True)]


def server_of(folder):
    environment = {
        **os.environ,
        "UNHANG_RUNS": str(folder / "runs"),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
    }
    arguments = ["-P", "-m", "unhang", "mcp", "--within", str(folder)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=environment)


def audited(folder, facts):
    """A run of an audit of one node in folder/runs."""
    node = folder / "node.json"
    node.write_text(json.dumps(facts))
    environment = {**os.environ, "UNHANG_RUNS": str(folder / "runs")}
    command = [sys.executable, "-P", "-m", "unhang", "audit", "--via", "files", str(node), "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode in (0, 1), done.stderr


def files_of(folder):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "job.log").write_text(NCCL_LOG)
    (work / "job.sh").write_text(SCRIPT)
    return work


def test_tools_are_listed_as_read_only_and_say_when_to_use_them(folder):
    async def session():
        async with Client(stdio_client(server_of(folder))) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(session)
    assert [one.name for one in tools] == ["diagnose", "inspect", "explain", "audit", "lint"]
    for one in tools:
        assert one.annotations.read_only_hint is True
        assert one.annotations.destructive_hint is False
        assert one.input_schema["additionalProperties"] is False
        assert one.name in INSTRUCTIONS


def test_each_tool_answers_with_lines_and_sources_and_writes_nothing(folder):
    facts = json.loads((FIXTURES / "h200x4" / "node.json").read_text())["facts"]
    audited(folder, facts)
    before = files_of(folder)
    diagnosed, of_text, explained, found, linted, of_script = ask(
        folder,
        ("diagnose", {"files": [str(folder / "job.log")]}),
        ("diagnose", {"text": NCCL_LOG, "with_audit": True}),
        ("explain", {"name": "xid 79"}),
        ("audit", {}),
        ("lint", {"files": [str(folder)]}),
        ("lint", {"text": SCRIPT, "kind": "shell"}),
    )
    assert files_of(folder) == before
    for answer, is_error in (diagnosed, of_text, explained, found, linted, of_script):
        assert not is_error
        assert answer["reading"].startswith("Texts in «» are copied")
    (cause, *_) = diagnosed[0]["document"]["causes"]
    assert cause["cause"] == "rank_failed"
    assert cause["sources"][0]["url"].startswith("https://")
    assert (cause["lines"][0]["file"], cause["lines"][0]["line"]) == (f"«{folder / 'job.log'}»", 3)
    assert of_text[0]["document"]["causes"][0]["cause"] == "rank_failed"
    topic = explained[0]["document"]["topics"][0]
    assert "meaning: GPU has fallen off the bus" in topic["lines"]
    assert topic["sources"][0]["url"].startswith("https://docs.nvidia.com/")
    rows = found[0]["document"]["findings"]
    assert rows and all(row["sources"] and row["found"] for row in rows)
    assert found[0]["document"]["run"]["started"]
    for answer, _ in (linted, of_script):
        hidden = next(one for one in answer["document"]["findings"] if one["rule"] == "hides-fault")
        assert hidden["line"] == 2
        assert hidden["source"].startswith("https://docs.nvidia.com/")


def test_an_unknown_error_has_its_line_and_host_and_no_line_stands_twice(folder):
    for host, rank, said in (("gpu016", 0, "step 7"), ("gpu017", 3, "QuarkError: flux inverted")):
        (folder / host).mkdir()
        (folder / host / f"rank{rank}.log").write_text(f"[rank{rank}]: {said}\n")
    (folder / "gpu017" / "job.log").write_text("[rank3]: QuarkError: flux inverted\n")
    answers = ask(
        folder,
        ("diagnose", {"files": [str(folder / host) for host in ("gpu016", "gpu017")]}),
        ("diagnose", {"files": [str(folder / "gpu017" / "job.log")]}),
        ("diagnose", {"text": NCCL_LOG}),
    )
    for answer, _ in answers[:2]:
        (row, *_) = answer["document"]["primary"]
        assert row["text"].endswith("QuarkError: flux inverted»") and row["host"] == "«gpu017»"
    for answer, _ in answers:
        told = [text for _, text in texts(answer["document"]) if len(text) > 60]
        quoted = [text for text in told if str(folder) not in text]
        assert quoted == list(dict.fromkeys(quoted))


def test_an_order_in_a_log_a_script_or_a_node_stays_a_quoted_text(folder):
    facts = json.loads((FIXTURES / "h200x4" / "node.json").read_text())["facts"]
    for gpu in facts["sections"]["gpus"]["devices"]:
        gpu["model"] = ORDER
    facts["sections"]["nccl"]["libraries"][0]["path"] = f"/{ORDER}/libnccl.so.2"
    audited(folder, facts)
    answers = ask(
        folder,
        ("diagnose", {"files": [str(folder / "job.log"), str(folder / "job.sh")]}),
        ("audit", {}),
        ("lint", {"files": [str(folder / "job.sh")]}),
        ("explain", {"name": ORDER}),
        ("lint", {"files": [str(folder / ORDER)]}),
        (ORDER.split()[0], {}),
    )
    for answer, _ in answers[:2]:
        assert any("IGNORE ALL" in text for _, text in texts(answer))
    for answer, _ in answers:
        assert not [text for text in outside_of_marks(answer) if "IGNORE ALL" in text]
        for _, text in texts(answer):
            assert text.isprintable()
            assert text.strip("«»").count("«") + text.strip("«»").count("»") == 0 or (
                text == answer["reading"]
            )
    assert TOKEN not in json.dumps([answer for answer, _ in answers])
    told = json.dumps([INSTRUCTIONS, *(one.description for one in TOOLS.values())])
    assert "IGNORE" not in told


def test_only_files_and_folders_within_are_read(folder, tmp_path):
    other = tmp_path / "other.log"
    other.write_text(NCCL_LOG)
    (folder / "link.log").symlink_to(other)
    os.mkfifo(folder / "pipe")
    wrong = [
        str(other),
        str(folder / "link.log"),
        f"{folder}/../other.log",
        str(folder / "pipe"),
        str(folder / "none.log"),
        "/proc/self/environ",
        "/dev/null",
        "-",
        "--run=latest",
        "a\0b",
    ]
    begun = time.monotonic()
    answers = ask(folder, *(("diagnose", {"files": [one]}) for one in wrong))
    assert time.monotonic() - begun < 60
    assert [is_error for _, is_error in answers] == [True] * len(wrong)
    assert all(answer["document"] is None for answer, _ in answers)
    assert "(--within)" in answers[0][0]["said"][0]
    assert "a pipe" in answers[3][0]["said"][0]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("diagnose", {}),
        ("diagnose", {"text": "x", "files": ["y"]}),
        ("diagnose", {"files": "job.log"}),
        ("lint", {"text": "x", "fix": True}),
        ("lint", {"text": "x", "nccl": "2 --fix"}),
        ("audit", {"hosts": "@/etc/shadow"}),
        ("audit", {"rule": "--out=x"}),
        ("inspect", {"pid": 0}),
        ("explain", {}),
        ("remediate", {}),
    ],
)
def test_a_call_that_no_tool_takes_is_refused_with_what_was_expected(folder, name, given):
    ((answer, is_error),) = ask(folder, (name, given))
    assert is_error and answer["said"] and answer["document"] is None


def test_a_call_that_is_given_up_leaves_no_process(folder):
    """A look takes seconds: two of them, at a rank that stands."""
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=-1) as rank:
        looking = f"--pid={rank.pid}".encode()

        async def session():
            async with Client(stdio_client(server_of(folder))) as client:
                with anyio.move_on_after(30) as patience:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(client.call_tool, "inspect", {"pid": rank.pid})
                        while not started(looking):
                            await anyio.sleep(0.05)
                        tasks.cancel_scope.cancel()
                return patience.cancelled_caught

        try:
            assert not anyio.run(session), "the look never began"
            end = time.monotonic() + 10
            while started(looking) and time.monotonic() < end:
                time.sleep(0.1)
            assert not started(looking)
        finally:
            rank.kill()


def started(word):
    """Processes with this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if word in path.read_bytes().split(b"\0") else []
        except OSError:
            continue  # it has ended
    return found


def typed(*words, before=""):
    program = f"{before}; from unhang.cli import main; sys.exit(main({list(words)!r}))"
    return subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; {program}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="about root")
def test_root_has_to_name_the_folders():
    done = typed("mcp", before="pass")
    assert (done.returncode, done.stdout) == (2, "")
    assert "root may read every file" in done.stderr


def test_without_the_sdk_the_line_that_installs_it_is_printed(tmp_path):
    done = typed("mcp", "--within", str(tmp_path), before="sys.modules['mcp_types'] = None")
    assert done.returncode == 2
    assert "[mcp]'\n" in done.stderr
