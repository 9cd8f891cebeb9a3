"""`unhang history diff A B`: what differs between two sides, what does not count as a difference, and what
a side may be."""

from __future__ import annotations

import csv
import io
import json

import pytest
from run_folders import Fleet, facts

from unhang import cli
from unhang.audit.compare.flattening import flattened

OK = {"status": "ok"}


def node(
    driver="580.65.06", packages=(("libnccl2", "2.27.5"),), uuid="GPU-1", settings=None, **more
):
    """Sections of a node."""
    return facts(
        driver,
        packages={
            "probe": OK,
            "installed": [
                {"name": name, "version": version, "state": "installed"}
                for name, version in packages
            ],
        },
        gpus={
            "probe": OK,
            "count": 8,
            "devices": [
                {"uuid": uuid, "index": 0, "vbios": "96.00", "temperature_c": hash(uuid) % 90}
            ],
        },
        network={"probe": OK, "interfaces": [{"name": "eth0", "mtu": 9000, "addresses": [uuid]}]},
        nccl={"probe": OK, "settings": [], "effective": {"slurm": settings or {}, "login": {}}},
        **more,
    )


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Writes a run of two groups and compares: (development, production) -> a call that gives (exit
    code, rows or text, errors)."""
    monkeypatch.setenv("UNHANG_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)

    def with_nodes(development, production):
        groups = {"dev": development, "prod": production}
        nodes = {
            f"{name}{number}": one
            for name, among in groups.items()
            for number, one in enumerate(among, 1)
        }
        folder = Fleet(tmp_path).run(nodes)
        for path in (folder / "nodes").iterdir():
            document = json.loads(path.read_text())
            path.write_text(
                json.dumps(
                    {
                        **document,
                        "groups": ["development" if path.stem.startswith("dev") else "production"],
                    }
                )
            )
        (tmp_path / "runs" / "latest").symlink_to(folder)

        def call(*argv):
            code = cli.main(["history", "diff", "--run", "latest", *map(str, argv)])
            out, errors = capsys.readouterr()
            return code, json.loads(out) if "json" in argv else out, errors

        return call

    return with_nodes


def values(side):
    return {one["value"]: one["nodes"] for one in side}


def test_two_groups_differ_where_a_value_is_on_one_side_alone(compared):
    call = compared([node("535.154.05"), node("580.65.06")], [node(uuid="GPU-2")])
    code, rows, _ = call("development", "production", "-o", "json")
    assert code == 1
    assert [row["fact"] for row in rows] == ["driver.loaded.version"]
    assert (values(rows[0]["a"]), values(rows[0]["b"])) == (
        {"535.154.05": ["dev1"], "580.65.06": ["dev2"]},
        {"580.65.06": ["prod1"]},
    )


def test_what_names_a_node_or_moves_by_itself_is_no_difference(compared):
    call = compared([node(uuid="GPU-1")], [node(uuid="GPU-2"), node(uuid="GPU-3")])
    code, out, errors = call("development", "production")
    assert (code, errors) == (0, "")
    assert (
        "A  development: 1 node\nB  production: 2 nodes\n" in out and "compared: none differ" in out
    )


def test_a_package_that_one_side_lacks_is_one_difference_with_its_version(compared):
    call = compared([node()], [node(packages=(("libnccl2", "2.27.5"), ("nvidia-peermem", "1.2")))])
    _, rows, _ = call("development", "production", "-o", "json")
    assert [(row["fact"], list(values(row["a"])), list(values(row["b"]))) for row in rows] == [
        ("packages.installed[nvidia-peermem]", ["none"], ["1.2"])
    ]


@pytest.mark.parametrize(
    "probe",
    [
        {"status": "denied"},
        *(
            {**OK, "unread": [{"field": field, "status": "timeout"}]}
            for field in ("loaded.version", "loaded")
        ),
    ],
)
def test_what_a_side_could_not_read_is_counted_and_no_difference(compared, probe):
    other = node()
    other["driver"] = {"probe": probe, "loaded": None}
    code, out, _ = compared([node("535.154.05")], [other])("development", "production")
    assert code == 0
    assert "1 fact not compared: a side could not read them" in out


def test_nodes_that_were_not_read_are_said(compared):
    call = compared([node(), "unreachable"], [node()])
    assert "A  development: 1 node, and 1 node not read" in call("development", "production")[1]
    code, _, errors = call("dev2", "prod1")
    assert code == 2 and "no node of dev2 was read (dev2)" in errors


def test_nodes_runs_and_a_group_in_two_runs_are_sides(compared, tmp_path):
    call = compared([node("535.154.05")], [node(), node()])
    folder = (tmp_path / "runs" / "latest").resolve()
    for argv in (
        ("dev1", "prod[1-2]"),
        ("dev*", "prod*"),
        (f"{folder}:development", "latest:production"),
        (f"{folder.name[:12]}:dev1", "prod1"),
    ):
        assert [row["fact"] for row in call(*argv, "-o", "json")[1]] == ["driver.loaded.version"], (
            argv
        )
    assert call("latest", folder)[0] == 0


def test_only_the_requested_facts_are_compared_and_counted(compared):
    call = compared([node("535.154.05")], [node(packages=(("libnccl2", "2.28.3"),))])
    assert call("development", "production", "--fact", "driver")[1].endswith(
        "1 fact compared: 1 differs\n"
    )
    assert [
        row["fact"]
        for row in call("development", "production", "--fact", "packages.installed", "-o", "json")[
            1
        ]
    ] == ["packages.installed[libnccl2].version"]
    for known in (
        "packages.installed[nothing]",
        "nccl.effective.slurm.NCCL_ALGO",
        "fabric_manager.version",
        "kernel.mod*",
    ):
        assert call("development", "production", "--fact", known)[::2] == (0, ""), known


def test_a_fact_that_is_none_is_refused_with_the_nearest_name(compared):
    code, out, errors = compared([node("535.154.05")], [node()])(
        "development", "production", "--fact", "driver,drivr"
    )
    assert (code, out) == (2, "")
    assert (
        "--fact 'drivr' is not a fact that is compared (did you mean driver?); `unhang explain SECTION` lists"
        in errors
    )


def test_one_machine_is_a_side_as_unhang_collect_prints_it(compared, tmp_path):
    call = compared([node()], [node()])
    (tmp_path / "here.json").write_text(
        json.dumps({"schema": "unhang/node-facts/1", "sections": node("535.154.05")})
    )
    code, rows, _ = call("here.json", "production", "-o", "json")
    assert code == 1 and values(rows[0]["a"]) == {"535.154.05": ["here"]}


def test_a_jobs_environment_is_compared_with_what_the_node_sets(compared, tmp_path):
    call = compared(
        [node(settings={"NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0", "NCCL_DEBUG": None})],
        [node()],
    )
    given = {
        "NCCL_IB_HCA": "mlx5_0",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_DEBUG": "INFO",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "HOME": "/home/x",
    }
    for separator in ("\n", "\0"):
        (tmp_path / "job.env").write_text(
            "".join(f"{name}={value}{separator}" for name, value in given.items())
        )
        code, rows, _ = call("dev1", "job.env", "-o", "json")
        assert code == 1
        found = {row["fact"]: (list(values(row["a"])), list(values(row["b"]))) for row in rows}
        assert found == {
            "NCCL_P2P_DISABLE": (["1"], ["none"]),
            "NCCL_SOCKET_IFNAME": (["none"], ["eth0"]),
        }
    text = call("dev1", "job.env")[1]
    assert "1 fact not compared" in text  # NCCL_DEBUG: the node's files do not decide it
    assert "hunter2" not in text and "HOME" not in text
    assert call("dev1", "job.env", "--launch", "login")[1].count("none") > 2


def test_csv_and_a_part_of_the_facts(compared):
    call = compared([node("535.154.05", packages=())], [node()])
    rows = list(csv.DictReader(io.StringIO(call("development", "production", "-o", "csv")[1])))
    assert rows[0] == {"fact": "driver.loaded.version", "a": "535.154.05", "b": "580.65.06"}
    facts = ["driver.loaded.version", "packages.installed[libnccl2]"]
    assert [row["fact"] for row in rows] == facts
    packages = call("development", "production", "-o", "json", "--fact", "packages")[1]
    assert [row["fact"] for row in packages] == facts[1:]
    assert call("development", "production", "--fact", "kernel")[0] == 0
    assert call("development", "production", "-q")[:2] == (1, "")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("productoin", "did you mean production?"),
        ("prod[1-9]", "'prod2' is neither"),
        ("20990101T000000Z", "is not a run folder"),
    ],
)
def test_a_side_that_there_is_not_is_refused_by_name(compared, word, message):
    code, out, errors = compared([node()], [node()])("development", word)
    assert (code, out) == (2, "") and message in errors and errors.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["{", '{"schema": 1}', '{"sections": 3}', "no environment", "\x00\x01"]
)
def test_a_file_that_is_neither_is_refused(compared, tmp_path, text):
    (tmp_path / "file").write_text(text)
    code, _, errors = compared([node()], [node()])("development", "file")
    assert code == 2 and "a document of unhang collect" in errors and "Traceback" not in errors


def test_nothing_that_a_node_says_reaches_the_terminal_as_a_command(compared):
    nasty = "n\x1b[2J\u202ee"
    out = compared([node(nasty, packages=((nasty, nasty),))], [node()])(
        "development", "production"
    )[1]
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b" in out


def test_rows_without_a_name_are_one_and_their_values_a_set():
    found = flattened(
        "gpus",
        {
            "devices": [
                {"uuid": "a", "vbios": "96.01"},
                {"uuid": "b", "vbios": "96.00"},
                {"uuid": "c", "vbios": "96.01"},
            ]
        },
    )
    assert found == {"gpus.devices[*].vbios": "96.00, 96.01"}
