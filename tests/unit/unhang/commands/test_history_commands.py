"""`unhang history` and `history diff`: formats, exit codes, what is refused, and text of nodes on a
terminal."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
from pathlib import Path

import pytest
from gallery import read_gallery
from run_folders import Fleet, facts, finding

from unhang import cli
from unhang.audit.history.changes import Changes, FactChange
from unhang.audit.history.pruning import runs_on_disk, to_prune
from unhang.audit.history.rendering import render_changes
from unhang.audit.history.runs import PastRun
from unhang.commands import RENAMED
from unhang.core.nodeset import expand_limit

GALLERY = Path(__file__).resolve().parents[3] / "fixtures" / "gallery"
NASTY = "n\x1b[2J\u202ee"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two runs between which driver and findings change, and what nodes say is hostile."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(folder)
    before = fleet.run({"gpu1": facts(), "gpu2": facts(), NASTY: facts()}, [finding("bad", "gpu1")])
    now = fleet.run(
        {"gpu1": facts("580"), "gpu2": facts("580"), NASTY: facts(NASTY)},
        [finding("worse", "gpu2", found=NASTY), finding("bad", NASTY)],
    )
    (folder / "runs" / "latest").symlink_to(now.name)
    return str(folder / "runs"), before.name, now.name


@pytest.fixture
def runs_in(monkeypatch):
    """Sets the folder of runs that the commands read."""
    return lambda folder: monkeypatch.setenv("UNHANG_RUNS", str(folder))


@pytest.fixture
def command(stored, capsys, runs_in):
    """Runs a command on it: (exit code, standard output, standard error)."""
    runs_in(stored[0])

    def run(*arguments):
        words = ["history", "diff"] if arguments[0] == "diff" else ["history"]
        code = cli.main([*words, *arguments[1:]])
        return code, *capsys.readouterr()

    return run


def test_a_table_says_what_changed_and_ends_with_one_for_what_is_new(command, stored):
    code, out, errors = command("diff")
    assert (code, errors) == (1, "")
    assert "NEW         error: gpu2: What worse says [worse]" in out
    assert "RESOLVED    error: gpu1: What bad says [bad]" in out
    assert "FACT        gpu[1-2] (2 nodes): driver.loaded.version: 535.154.05 -> 580" in out
    assert command("diff", stored[2], stored[1])[1] == out  # the earlier one is the earlier one


@pytest.mark.parametrize(
    "argv",
    [
        ("diff",),
        ("history",),
        ("history", "worse"),
        ("history", NASTY),
        ("diff", "-o", "csv"),
    ],
)
def test_nothing_that_a_node_says_reaches_the_terminal_as_a_command(command, argv):
    _, out, errors = command(*argv)
    assert "\x1b" not in out + errors and "\u202e" not in out + errors


def test_other_formats_say_the_same(command):
    rows = json.loads(command("diff", "-o", "json")[1])
    assert {row["change"] for row in rows} == {"new", "resolved", "fact"}
    table = list(csv.DictReader(io.StringIO(command("diff", "-o", "csv")[1])))
    assert [row["change"] for row in table] == [row["change"] for row in rows]
    assert next(row for row in table if row["now"] == "580")["hosts"] == "gpu1 gpu2"
    assert command("diff", "-q")[:2] == (1, "")


def test_facts_that_nodes_have_for_the_first_time_share_a_line_and_no_value_is_not_the_text_none():
    one = {"hosts": ("a", "b")}
    facts = [
        FactChange("kernel.lockdown", None, "none", **one),
        FactChange("node.arrays", None, [], **one),
        FactChange("node.cdi", None, [], ("a",)),
    ]
    changed = [
        FactChange("driver.loaded.version", "535", "580", **one),
        FactChange("kernel.modules[x]", None, {"name": "x"}, **one),
    ]
    row = PastRun("r", Path(), "2026-11-20T00:00:00Z", None, None, (), frozenset("ab"))
    lines = render_changes(row, row, Changes((), (*changed, *facts)), "unhang", 200)
    assert lines[2:] == [
        "FACT        a,b (2 nodes): driver.loaded.version: 535 -> 580",
        "FACT        a,b (2 nodes): kernel.modules[x]: (none) -> {name: x}",
        "FACT        a,b (2 nodes): first values of kernel.lockdown, node.arrays; -o json has them",
        "FACT        a: node.cdi: (none) -> (empty)",
    ]


def test_without_names_the_last_two_runs_of_one_inventory_are_compared(tmp_path, capsys, runs_in):
    fleet = Fleet(tmp_path)
    before = fleet.run({"gpu1": facts()}, [], inventory="mine")
    fleet.run({"localhost": facts()}, [], inventory="local")
    now = fleet.run({"gpu1": facts("580")}, [], inventory="mine")
    fleet.run({"cloud1": facts()}, [], inventory="cloud", day=19)
    runs_in(tmp_path / "runs")
    cli.main(["history", "diff"])
    out = " ".join(capsys.readouterr().out.split())
    assert before.name in out and now.name in out
    assert "FACT gpu1: driver.loaded.version: 535.154.05 -> 580" in out
    assert "localhost" not in out and "cloud1" not in out


def test_a_first_run_of_an_inventory_is_not_compared_with_another_one(tmp_path, capsys, runs_in):
    fleet = Fleet(tmp_path)
    first = fleet.run({"gpu1": facts()}, [], inventory="mine")
    second = fleet.run({"localhost": facts()}, [], inventory="local")
    (tmp_path / "runs" / "latest").symlink_to(second.name)
    runs_in(tmp_path / "runs")
    assert cli.main(["history", "diff"]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert f"{second.name} is the only run of local" in errors
    assert f"unhang history diff {first.name} latest" in errors
    assert cli.main(["history", "diff", first.name, "latest", "-q"]) in (0, 1)


@pytest.mark.parametrize("which", ["later", "earlier"])
def test_every_node_that_only_one_of_the_runs_asked_is_named(tmp_path, capsys, runs_in, which):
    fleet = Fleet(tmp_path)
    runs_in(tmp_path / "runs")
    names = [
        f"{kind}{number}"
        for kind in ("alpha", "beta", "gamma", "delta", "kappa", "omega", "sigma", "theta")
        for number in (1, 3)
    ]
    everyone, few = {host: facts() for host in ("zeta", *names)}, {"zeta": facts()}
    folders = []
    for seen in (everyone, few) if which == "later" else (few, everyone):
        folder = fleet.run(seen, [])
        document = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(
            json.dumps({**document, "limit": "zeta" if seen is few else None})
        )
        folders.append(str(folder))
    cli.main(["history", "diff", *folders])
    out = capsys.readouterr().out
    label, limit = ("NOT ASKED", " (limit zeta):") if which == "later" else ("ASKED", "")
    named = (
        " ".join(out.partition(f"\n{label} ")[2].split())
        .partition(f" (16 nodes) in the later run{limit}")[0]
        .replace(", ", ",")
    )
    assert set(expand_limit(named.replace(" ", ""))) == set(names)
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("filters", "rules", "facts_too", "code"),
    [(("--host", "gpu1"), {"bad"}, True, 0), (("--rule", "wor*"), {"worse"}, False, 1),
    (("--severity", "critical"), set(), False, 0),
     (("--host", "gpu[1-2]"), {"bad", "worse"}, True, 1)],
)  # fmt: skip
def test_filters_narrow_what_is_shown_and_what_counts(command, filters, rules, facts_too, code):
    found, out, _ = command("diff", "-o", "json", *filters)
    rows = json.loads(out)
    assert (
        found,
        {row["rule"] for row in rows if row["rule"]},
        any(row["fact"] for row in rows),
    ) == (code, rules, facts_too)


def test_fail_on_says_what_is_bad_enough(command):
    assert [
        command("diff", "--fail-on", severity)[0] for severity in ("critical", "error", "info")
    ] == [0, 1, 1]


def test_a_rule_says_since_when_and_what_came_with_it(command):
    code, out, _ = command("history", "worse")
    assert code == 0
    assert (
        "with it changed driver.loaded.version: 535.154.05 -> 580 (on 1 of 1, and on 1 without the"
        " finding)" in " ".join(out.split())
    )


def test_a_node_says_what_happened_to_it(command):
    text = " ".join(command("history", "gpu2")[1].split())
    assert (
        "fact: driver.loaded.version: 535.154.05 -> 580" in text
        and "new: error: What worse says [worse]" in text
        and "holds since: error: What worse says [worse]" in text
    )
    assert [row["what"] for row in json.loads(command("history", "gpu2", "-o", "json")[1])] == [
        "fact",
        "new",
        "holds since",
    ]


def test_runs_are_listed_with_their_counts(command, stored):
    listed = json.loads(command("history", "-o", "json")[1])
    assert [row["id"] for row in listed] == list(stored[1:])
    (newest,) = json.loads(command("history", "-n", "1", "-o", "json")[1])
    assert newest["id"] == stored[2]
    assert command("history")[1].splitlines()[1].split()[:4] == [
        stored[1], "2026-11-20", "00:01", "3"
    ]  # fmt: skip


def test_the_names_of_the_version_before_answer_with_the_new_ones(capsys):
    for old, new in RENAMED.items():
        assert cli.main([*old.split(), "latest"]) == 2
        assert capsys.readouterr().err == f"unhang: unhang {old} has another name now: {new}\n"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["/srv/unhang/inventory/mycluster/"], "inventory/mycluster"),
        ("hosts.yml", "hosts.yml"),
        (["a/b/c", "d"], "b/c, d"),
        (None, ""),
    ],
)
def test_runs_of_two_inventories_can_be_told_apart(tmp_path, capsys, runs_in, given, shown):
    folder = Fleet(tmp_path).run({"a": facts()}, [], limit="gpu001")
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | {"inventory": given}))
    runs_in(tmp_path / "runs")
    assert cli.main(["history"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert line[head.index("INVENTORY") : head.index("LIMIT")].strip() == shown
    assert line.endswith("gpu001")


@pytest.mark.parametrize(
    ("argv", "reported"),
    [(("history", "gpu3"), "did you mean gpu"), (("diff", "nonsense"),
    "is not a run folder"),
     (("diff", "--since", "soon"), "--since takes yesterday"),
     (("diff", "a", "b", "c"), "two runs are compared, not 3"),
     (("diff", "latest", "latest"), "there is nothing yet to compare it with"),
     (("history", "--apply"), "--apply needs --prune"),
     (("history", "--prune"), "--prune needs --keep N"),
     (("diff", "--severity", "bad"), "--severity takes some of")],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_to_do(command, argv, reported):
    code, out, errors = command(*argv)
    assert (code, out, errors.count("\n")) == (2, "", 1) and reported in errors


def test_without_a_run_the_next_step_is_named(tmp_path, capsys, runs_in):
    runs_in(tmp_path / "none")
    assert cli.main(["history", "diff"]) == 2
    assert "make one with: unhang audit" in capsys.readouterr().err
    assert cli.main(["history"]) == 0
    assert f"no judged run in {tmp_path}/none" in " ".join(capsys.readouterr().out.split())


def test_pruning_shows_first_and_keeps_what_is_new_unfinished_or_evidence(
    tmp_path, monkeypatch, capsys
):
    fleet = Fleet(tmp_path)
    runs = [fleet.run({"a": facts()}, day=day) for day in (1, 2, 3, 4, 5)]
    (runs[0] / "journal.jsonl").write_text("")
    unfinished = json.loads((runs[1] / "run.json").read_text()) | {"finished": None}
    (runs[1] / "run.json").write_text(json.dumps(unfinished))
    (tmp_path / "runs" / "latest").symlink_to(runs[4].name)
    (tmp_path / "runs" / "link").symlink_to(runs[2].name)
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    argv = ["history", "--prune", "--keep", "0", "--older-than", "2026-11-05"]
    assert cli.main(argv) == 0
    shown, reported = capsys.readouterr()
    assert (
        shown.split() == [str(runs[2]), str(runs[3])]
        and "2 run folders would be removed" in reported
    )
    with monkeypatch.context() as busy:
        busy.setattr("shutil.rmtree", lambda _: os.listdir("/dev/null"))
        assert cli.main([*argv, "--apply"]) == 1
    assert f"{runs[2]} could not be removed: Not a directory" in capsys.readouterr().err
    assert all(run.is_dir() for run in runs)
    assert cli.main([*argv, "--apply"]) == 0
    assert [run.is_dir() for run in runs] == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("keep", "before", "going"),
    [
        (None, None, []),
        (2, None, [1, 2, 3]),
        (None, "2026-11-03", [1, 2]),
        (4, "2026-11-03", [1]),
        (9, "2026-11-30", []),
        (0, "2026-11-01", []),
    ],
)
def test_a_folder_goes_when_it_is_both_old_and_beyond_the_count(tmp_path, keep, before, going):
    fleet = Fleet(tmp_path)
    for day in (1, 2, 3, 4, 5):
        fleet.run({"a": facts()}, day=day)
    assert [
        int(one.folder.name[6:8]) for one in to_prune(runs_on_disk(tmp_path / "runs"), keep, before)
    ] == going


@pytest.mark.slow
def test_a_card_that_the_last_run_read_and_this_one_does_not_is_named(tmp_path, capsys, runs_in):
    """Where neither a table of models, a setting, an admission record nor a peer says what a node
    has, its last run does."""
    healthy = next(
        machine.document["sections"]
        for machine in read_gallery(GALLERY)
        if machine.name == "dgx_h200"
    )
    lost = copy.deepcopy(healthy)
    lost["network"]["rdma"] = [card for card in lost["network"]["rdma"] if card["name"] != "mlx5_3"]
    lost["gpus"]["devices"].pop()
    fleet = Fleet(tmp_path)
    for sections in (healthy, lost):
        fleet.run({"gpu1": sections}, [])
    runs_in(tmp_path / "runs")
    cli.main(["history", "diff", "-o", "json"])
    gone = {
        row["fact"]: row["before"]["pci_address"]
        for row in json.loads(capsys.readouterr().out)
        if row["now"] is None
    }
    assert gone == {"gpus.devices[7]": "0000:17:00.0", "network.rdma[mlx5_3]": "0000:40:00.0"}
