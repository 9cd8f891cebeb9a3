"""`unhang runs`, `diff` and `history`: formats, exit codes, what is refused, and text of nodes on a
terminal."""

from __future__ import annotations

import copy
import csv
import io
import json
from pathlib import Path

import pytest
from gallery import read_gallery
from run_folders import Fleet, facts, finding

from unhang import cli
from unhang.audit.history.changes import Changes, FactChange
from unhang.audit.history.pruning import runs_on_disk, to_prune
from unhang.audit.history.recording import record
from unhang.audit.history.rendering import render_changes
from unhang.audit.history.run_rows import RunRow
from unhang.core.nodeset import expand_limit

GALLERY = Path(__file__).resolve().parents[3] / "fixtures" / "gallery"
NASTY = "n\x1b[2J\u202ee"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A history of two runs in which driver and findings change, and what nodes say is hostile."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(folder)
    before = fleet.run({"gpu1": facts(), "gpu2": facts(), NASTY: facts()}, [finding("bad", "gpu1")])
    now = fleet.run(
        {"gpu1": facts("580"), "gpu2": facts("580"), NASTY: facts(NASTY)},
        [finding("worse", "gpu2", found=NASTY), finding("bad", NASTY)],
    )
    for run in (before, now):
        record(run, folder / "history.db")
    return str(folder / "history.db"), before.name, now.name


@pytest.fixture
def command(stored, capsys):
    """Runs a command on it: (exit code, standard output, standard error)."""

    def run(*arguments):
        code = cli.main([*arguments, "--db", stored[0]])
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
        ("runs",),
        ("diff", "-o", "name"),
        ("diff", "-o", "csv"),
    ],
)
def test_nothing_that_a_node_says_reaches_the_terminal_as_a_command(command, argv):
    _, out, errors = command(*argv)
    assert "\x1b" not in out + errors and "\u202e" not in out + errors


def test_other_formats_say_the_same(command):
    rows = json.loads(command("diff", "-o", "json")[1])
    assert [json.loads(line) for line in command("diff", "-o", "jsonl")[1].splitlines()] == rows
    assert {row["change"] for row in rows} == {"new", "resolved", "fact"}
    table = list(csv.DictReader(io.StringIO(command("diff", "-o", "csv")[1])))
    assert [row["change"] for row in table] == [row["change"] for row in rows]
    assert next(row for row in table if row["now"] == "580")["hosts"] == "gpu1 gpu2"
    assert set(command("diff", "-o", "name")[1].split()) == {"gpu1", "gpu2", "n\\x1b[2J\\u202ee"}
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
    row = RunRow(1, "r", "", "2026-11-20T00:00:00Z", None, None, "2026-11-20", None, 0, 0, 0, 0, 2)
    lines = render_changes(row, row, Changes((), (*changed, *facts), (), ()), "unhang", 200)
    assert lines[2:] == [
        "FACT        a,b (2 nodes): driver.loaded.version: 535 -> 580",
        "FACT        a,b (2 nodes): kernel.modules[x]: (none) -> {name: x}",
        "FACT        a,b (2 nodes): first values of kernel.lockdown, node.arrays; -o json has them",
        "FACT        a: node.cdi: (none) -> (empty)",
    ]


def test_a_run_with_a_limit_says_which_nodes_it_left_out(tmp_path, capsys):
    fleet = Fleet(tmp_path)
    for seen in ({"gpu1": facts(), "gpu2": facts()}, {"gpu1": facts()}):
        folder = fleet.run(seen, [finding("bad", "gpu2")] if "gpu2" in seen else [])
        document = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(
            json.dumps({**document, "limit": None if "gpu2" in seen else "gpu1"})
        )
        record(folder, tmp_path / "history.db")
    assert cli.main(["diff", "--db", str(tmp_path / "history.db")]) == 0
    out = capsys.readouterr().out
    assert (
        "NOT ASKED   gpu2 in the later run (limit gpu1): what holds there now is not known" in out
    )
    assert "nothing changed" not in out


def test_without_names_the_last_two_runs_of_one_inventory_are_compared(tmp_path, capsys):
    """By the time they began: a run that was stored late is not the last one."""
    fleet, db = Fleet(tmp_path), tmp_path / "history.db"
    before = fleet.run({"gpu1": facts()}, [], inventory="mine")
    fleet.run({"localhost": facts()}, [], inventory="local")
    now = fleet.run({"gpu1": facts("580")}, [], inventory="mine")
    alone = fleet.run({"cloud1": facts()}, [], inventory="cloud", day=19)
    for run in sorted((tmp_path / "runs").iterdir()):
        if run != alone:
            record(run, db)
    record(alone, db)
    cli.main(["diff", "--db", str(db)])
    out = " ".join(capsys.readouterr().out.split())
    assert before.name in out and now.name in out
    assert "FACT gpu1: driver.loaded.version: 535.154.05 -> 580" in out
    assert "localhost" not in out and "cloud1" not in out


def test_a_first_run_of_an_inventory_is_not_compared_with_another_one(tmp_path, capsys):
    fleet, db = Fleet(tmp_path), tmp_path / "history.db"
    first = fleet.run({"gpu1": facts()}, [], inventory="mine")
    second = fleet.run({"localhost": facts()}, [], inventory="local")
    for run in (first, second):
        record(run, db)
    assert cli.main(["diff", "--db", str(db)]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert f"expected two runs of local in the history, found {second.name} alone" in errors
    assert f"unhang diff {first.name} latest" in errors
    assert cli.main(["diff", first.name, "latest", "-q", "--db", str(db)]) in (0, 1)


def test_runs_of_another_checkout_show_their_path(command, stored, monkeypatch):
    folder = Path(stored[0]).parent / "runs"
    for named in (command("runs"), command("diff")):
        assert str(folder / stored[1]) in "".join(named[1].split())
    monkeypatch.setenv("UNHANG_RUNS", str(folder))
    for named in (command("runs"), command("diff")):
        assert str(folder) not in "".join(named[1].split()) and stored[1] in named[1]


@pytest.mark.parametrize("which", ["later", "earlier"])
def test_every_node_that_only_one_of_the_runs_asked_is_named(tmp_path, capsys, which):
    fleet = Fleet(tmp_path)
    names = [
        f"{kind}{number}"
        for kind in ("alpha", "beta", "gamma", "delta", "kappa", "omega", "sigma", "theta")
        for number in (1, 3)
    ]
    everyone, few = {host: facts() for host in ("zeta", *names)}, {"zeta": facts()}
    runs = (everyone, few) if which == "later" else (everyone, few, everyone)
    for seen in runs:
        folder = fleet.run(seen, [])
        document = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(
            json.dumps({**document, "limit": "zeta" if seen is few else None})
        )
        record(folder, tmp_path / "history.db")
    cli.main(["diff", "--db", str(tmp_path / "history.db")])
    out = capsys.readouterr().out
    label = "NOT ASKED" if which == "later" else "ASKED"
    named = (
        " ".join(out.partition(f"\n{label} ")[2].split())
        .partition(" (16 nodes) in the later run")[0]
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
        "with it changed driver.loaded.version: 535.154.05 -> 580 (on 1 of 1 node, and on 1 node"
        " without the finding)" in " ".join(out.split())
    )


def test_a_node_says_what_happened_to_it(command):
    text = " ".join(command("history", "gpu2")[1].split())
    assert (
        "fact: driver.loaded.version: 535.154.05 -> 580" in text
        and "new: error: What worse says [worse]" in text
        and "gpu2: 1 finding now" in text
    )
    assert {row["kind"] for row in json.loads(command("history", "gpu2", "-o", "json")[1])} == {
        "event",
        "holds",
    }


def test_runs_are_listed_with_their_counts(command, stored, monkeypatch):
    monkeypatch.setenv("UNHANG_RUNS", str(Path(stored[0]).parent / "runs"))
    assert command("runs", "-o", "name")[1].split() == list(stored[1:])
    assert command("runs", "-n", "1", "-o", "name")[1].split() == [stored[2]]
    assert command("runs")[1].splitlines()[1].split()[:4] == [stored[1], "2026-11-20", "00:01", "3"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["/srv/unhang/inventory/mycluster/"], "inventory/mycluster"),
        ("hosts.yml", "hosts.yml"),
        (["a/b/c", "d"], "b/c, d"),
        (None, ""),
    ],
)
def test_runs_of_two_inventories_can_be_told_apart(tmp_path, capsys, given, shown):
    folder = Fleet(tmp_path).run({"a": facts()}, [], limit="gpu001")
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(document | {"inventory": given}))
    record(folder, tmp_path / "history.db")
    assert cli.main(["runs", "--db", str(tmp_path / "history.db")]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert line[head.index("INVENTORY") : head.index("LIMIT")].strip() == shown
    assert line.endswith("gpu001")


@pytest.mark.parametrize(
    ("argv", "reported"),
    [(("history", "gpu3"), "did you mean gpu"), (("diff", "nonsense"),
    "list them with: unhang runs"),
     (("diff", "--since", "soon"), "--since: expected yesterday"),
     (("diff", "a", "b", "c"), "expected two runs, found 3"),
     (("diff", "latest", "latest"), "there is nothing yet to compare it with"),
     (("runs", "--apply"), "expected --prune beside --apply"),
     (("runs", "--prune"), "found neither"),
     (("diff", "--severity", "bad"), "--severity: expected one of")],
)  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_to_do(command, argv, reported):
    code, out, errors = command(*argv)
    assert (code, out, errors.count("\n")) == (2, "", 1) and reported in errors


def test_without_a_history_the_next_step_is_named(tmp_path, capsys):
    assert cli.main(["diff", "--db", str(tmp_path / "none.db")]) == 2
    assert "expected the history at" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


def test_a_history_that_is_off_is_said(monkeypatch, capsys):
    monkeypatch.setenv("UNHANG_HISTORY", "off")
    assert cli.main(["runs"]) == 2
    assert "found UNHANG_HISTORY=off" in capsys.readouterr().err


def test_a_run_folder_can_be_added(tmp_path, capsys):
    run = Fleet(tmp_path).run({"a": facts()})
    argv = ["runs", "--db", str(tmp_path / "h.db"), "-o", "name", "--add", str(run)]
    assert [cli.main(argv), capsys.readouterr()] == [
        0,
        (f"{run.name}\n", f"unhang: {run.name}: stored\n"),
    ]
    assert [cli.main(argv), capsys.readouterr().err] == [
        0,
        f"unhang: {run.name}: the history has it already\n",
    ]


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
    argv = ["runs", "--prune", "--keep", "0", "--older-than", "2026-11-05"]
    assert cli.main(argv) == 0
    shown, reported = capsys.readouterr()
    assert (
        shown.split() == [str(runs[2]), str(runs[3])]
        and "2 run folders would be removed" in reported
    )
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


def test_what_a_rule_holds_against_many_things_of_a_node_is_one_line(tmp_path, capsys):
    fleet = Fleet(tmp_path)
    gpus = [finding("bad", "gpu1", where={"index": gpu}) for gpu in range(8)]
    record(
        fleet.run({"gpu1": facts()}, [*gpus, finding("worse", "gpu1", severity="critical")]),
        tmp_path / "history.db",
    )
    assert cli.main(["history", "gpu1", "--db", str(tmp_path / "history.db")]) == 0
    shown = capsys.readouterr().out
    assert "nothing has changed since the history first saw it" in shown
    assert [line[18:] for line in shown.splitlines() if line.startswith("since")] == [
        "critical: What worse says [worse]",
        "error: What bad says: GPU 0-7 [bad]",
    ]


def test_localhost_is_the_machine_that_was_met_last_and_the_others_are_named(tmp_path, capsys):
    fleet, db = Fleet(tmp_path), tmp_path / "history.db"
    for name in ("first", "second"):
        node = {"probe": {"status": "ok"}, "hostname": name, "machine_id": None}
        record(
            fleet.run(
                {"localhost": facts(node=node)},
                [finding("bad" if name == "first" else "worse", "localhost")],
            ),
            db,
        )
    assert cli.main(["history", "localhost", "--db", str(db)]) == 0
    answer = capsys.readouterr()
    assert (
        "localhost@second: 1 finding now" in answer.out
        and "[worse]" in answer.out
        and "[bad]" not in answer.out
    )
    assert (
        answer.err
        == "unhang: 2 machines are called localhost; this is localhost@second, met last; the"
        " others: localhost@first\n"
    )
    assert cli.main(["history", "localhost@first", "--db", str(db)]) == 0
    answer = capsys.readouterr()
    assert "[bad]" in answer.out and answer.err == ""
    assert cli.main(["diff", "--host", "localhost", "-q", "--db", str(db)]) == 1
    assert cli.main(["diff", "--host", "other", "-q", "--db", str(db)]) == 0


def test_a_card_that_the_last_run_read_and_this_one_does_not_is_named(tmp_path, capsys):
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
        record(fleet.run({"gpu1": sections}, []), tmp_path / "history.db")
    cli.main(["diff", "-o", "json", "--db", str(tmp_path / "history.db")])
    gone = {
        row["fact"]: row["before"]["pci_address"]
        for row in json.loads(capsys.readouterr().out)
        if row["now"] is None
    }
    assert gone == {"gpus.devices[7]": "0000:17:00.0", "network.rdma[mlx5_3]": "0000:40:00.0"}
