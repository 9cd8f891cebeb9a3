"""The one-file collector: the same bytes each time, needs only Python 3.8, and reports it when
Python is older."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X2, H200X8, LONG_ENOUGH_S, collect_in_process, schema_faults

from unhang_node.facts.collect import SECTIONS

PROJECT = Path(__file__).resolve().parents[2]
BUILD = [sys.executable, str(PROJECT / "tools" / "collector" / "build.py")]
BESIDE = (
    "__init__",
    "base/__init__",
    "facts/__init__",
    "facts/collect",
    "facts/command",
    "facts/merging",
    "facts/runtime_versions",
)
BESIDE += tuple(
    f"base/{name}"
    for name in (
        "context",
        "document",
        "links",
        "mount_table",
        "named_tuple",
        "probe",
        "probe_child",
        "process",
        "program",
        "root",
        "section",
    )
)
BESIDE += (
    "base/untrusted_files",
    "base/version",
    "base/versions/__init__",
    "base/versions/packages",
)
STARTED_BY = {"__main__.py", "unhang_entry.py"}  # of any Python
PATIENT = ["--silence-s", "120", "--deadline-s", "120"]


def build(target):
    done = subprocess.run(
        [*BUILD, str(target)], capture_output=True, text=True, timeout=LONG_ENOUGH_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    return build(tmp_path_factory.mktemp("pyz") / "unhang-collect.pyz")


def run(*argv):
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=LONG_ENOUGH_S, check=False, cwd="/"
    )


def test_the_same_sources_give_the_same_bytes(pyz, tmp_path):
    assert build(tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()


def test_it_holds_what_reads_a_node_and_nothing_that_changes_one(pyz):
    with zipfile.ZipFile(pyz) as archive:
        names = {name for name in archive.namelist() if not name.startswith("code-")}
        compiled = {
            name.split("/", 1)[1] for name in archive.namelist() if name.startswith("code-")
        }
    package = PROJECT / "module_utils" / "unhang_node"
    folders = ("facts/sources", "facts/sections", "facts/parse", "base/nvml", "base/parse")
    reading = {
        path.relative_to(package.parent).as_posix()
        for folder in folders
        for path in (package / folder).glob("*.py")
    }
    # used to drain a node, and on the controller
    reading -= {"unhang_node/base/parse/plain_pickle.py", "unhang_node/base/parse/slurm.py"}
    assert not [name for name in names if "change" in name.split("/")]
    assert reading <= names
    assert names - reading == {f"unhang_node/{name}.py" for name in BESIDE} | {
        *STARTED_BY,
        "pynvml.py",
    }
    assert compiled == {name + "c" for name in names - STARTED_BY}


def test_reading_a_node_imports_nothing_that_changes_one():
    look = (
        "import sys; from unhang_node.facts import command; from unhang_node.facts.sources import"
        " {}; "
    )
    look += "print([name for name in sys.modules if '.change' in name])"
    sources = ", ".join(
        sorted(
            path.stem
            for path in (PROJECT / "module_utils/unhang_node/facts/sources").glob("[a-z]*.py")
        )
    )
    assert (
        run(
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, {!r}); ".format(str(PROJECT / "module_utils"))
            + look.format(sources),
        ).stdout
        == "[]\n"
    )


@pytest.mark.parametrize("flags", [[], ["-I", "-S"]], ids=["plain", "isolated"])
def test_it_reads_this_machine_without_any_package(pyz, flags):
    done = run(sys.executable, *flags, str(pyz), *PATIENT)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert schema_faults(document) == []
    assert list(document["sections"]) == list(SECTIONS)
    assert document["collector"]["collected_via"] == "file"


def test_without_options_it_needs_no_argument_parser_and_still_reads_everything(pyz):
    document = json.loads(run(sys.executable, "-I", "-S", str(pyz)).stdout)
    assert list(document["sections"]) == list(SECTIONS)


def test_a_python_that_has_no_compiled_code_in_it_takes_the_sources(pyz, tmp_path):
    bare = tmp_path / "bare.pyz"
    with zipfile.ZipFile(pyz) as archive, zipfile.ZipFile(bare, "w") as copy:
        for name in archive.namelist():
            if not name.startswith("code-"):
                copy.writestr(name, archive.read(name))
    document = json.loads(
        run(sys.executable, "-I", "-S", str(bare), "--gather-subset", "!all", *PATIENT).stdout
    )
    assert document["sections"]["node"]["probe"]["status"] == "ok"


def test_its_nvml_is_enough_for_every_call(pyz, tmp_path):
    build_fake_nvml(str(tmp_path))
    for recording in (H200X8, H200X2):
        profile = write_profile(str(recording), str(tmp_path / "profile"))
        env = {
            "LD_LIBRARY_PATH": str(tmp_path),
            "UNHANG_FAKE_NVML_PROFILE": profile,
            "PYTHONPATH": "",
        }
        arguments = ["--gather-subset", "!all,gpus,interconnect", "--p2p-matrix", "full", *PATIENT]
        trimmed = collect_in_process(
            *arguments, env=env, command=[sys.executable, "-I", "-S", str(pyz)]
        )["sections"]
        whole = collect_in_process(
            *arguments,
            env=env,
            command=[sys.executable, str(PROJECT / "tests" / "fakes" / "whole_pynvml.py")],
        )["sections"]
        for name in ("gpus", "interconnect"):
            for section in (trimmed[name], whole[name]):
                section.pop("first_handle_ms", None)
                section["probe"].pop("duration_ms")
            assert trimmed[name] == whole[name]
            assert trimmed[name]["probe"]["status"] == "ok"


def test_it_keeps_the_licence_of_what_it_carries(pyz):
    with zipfile.ZipFile(pyz) as archive:
        carried = archive.read("pynvml.py").decode("utf-8")
    assert "NVIDIA Corporation" in carried
    assert "Redistribution and use in source and binary forms" in carried


def test_an_old_python_gets_one_clear_line(pyz, tmp_path):
    with zipfile.ZipFile(pyz) as archive:
        for name in STARTED_BY:
            tree = ast.parse(archive.read(name).decode("utf-8"), feature_version=(3, 4))
            assert not any(isinstance(node, ast.JoinedStr) for node in ast.walk(tree)), name
    pretend = (
        "import sys, runpy; sys.version_info = (3, 6, 9, 'final', 0); sys.argv = sys.argv[1:];"
        " runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = run(sys.executable, "-c", pretend, str(pyz))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unhang-collect needs Python 3.8 or newer, and this is 3.6 (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--gather-subset", "gpu"],
            "unhang collect: gather_subset has 'gpu'; allowed are all, min, node,",
        ),
        (
            ["--silence-s", "0"],
            "unhang collect: silence_s must be a number of seconds above 0",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(pyz, argv, message):
    done = run(sys.executable, str(pyz), *argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_full_disk_is_one_line_and_exit_code_2(pyz):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, str(pyz), "--gather-subset", "!all", *PATIENT],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LONG_ENOUGH_S,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "unhang collect: could not write the document: No space left on device\n"


@pytest.mark.parametrize("made", ["/dev/zero", "pipe", "folder"])
def test_a_recording_that_never_ends_is_refused_by_name_and_costs_no_other_section(
    pyz, tmp_path, made
):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    recording = str(tmp_path / made)
    options = [
        "--rootfs",
        str(PROJECT / "tests" / "fixtures" / "roots" / "h200x8"),
        "--nvml-recording",
        recording,
        "--gather-subset",
        "!all,gpus,kernel",
    ]
    limited = f'ulimit -v {2 << 20}; exec "$@"'  # KiB: a process that reads without end fails here
    done = run("sh", "-c", limited, "sh", sys.executable, "-I", "-S", str(pyz), *options, *PATIENT)
    assert (done.returncode, done.stderr) == (0, "")
    sections = json.loads(done.stdout)["sections"]
    assert (sections["gpus"]["probe"]["status"], sections["kernel"]["probe"]["status"]) == (
        "error",
        "ok",
    )
    assert (
        sections["gpus"]["probe"]["error"]
        == f"ValueError: {recording}: this is a device, a FIFO or a folder, not a regular file"
    )


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 2>&-"])
def test_standard_descriptors_that_the_caller_closed_cost_no_section(pyz, closed):
    fixtures = PROJECT / "tests" / "fixtures"
    options = [
        "--rootfs",
        str(fixtures / "roots" / "h200x8"),
        "--nvml-recording",
        str(H200X8),
        "--gather-subset",
        "!all,gpus,interconnect",
        *PATIENT,
    ]
    done = run(
        "sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-I", "-S", str(pyz), *options
    )
    assert (done.returncode, done.stderr) == (0, "")
    sections = json.loads(done.stdout)["sections"]
    assert {
        name: section["probe"]["status"] for name, section in sections.items()
    } == dict.fromkeys(("node", "kernel", "gpus", "interconnect"), "ok")


@pytest.mark.parametrize(
    ("closed", "message"),
    [
        ("1>&-", "unhang collect: could not write the document: standard output is closed\n"),
        ("0<&- 1>&- 2>&-", ""),
    ],
)
def test_a_closed_standard_output_is_one_line_and_exit_code_2(pyz, closed, message):
    done = run(
        "sh",
        "-c",
        f'exec "$@" {closed}',
        "sh",
        sys.executable,
        "-I",
        "-S",
        str(pyz),
        "--gather-subset",
        "!all",
        *PATIENT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LANG": "xx_YY.UTF-8"},
        {"LC_ALL": "nonsense"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["C", "not installed", "no locale", "ASCII alone"],
)
def test_a_locale_that_the_node_lacks_changes_no_answer(pyz, tmp_path, locale):
    root = tmp_path / "nœud-é"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "os-release").write_bytes(
        'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Débian"\n'.encode()
    )
    (root / "boot").mkdir()
    (root / "boot" / "vmlinuz-6.1.0-é").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-S", str(pyz), "--rootfs", str(root), "--gather-subset",
        "!all,node,kernel", *PATIENT],
        capture_output=True, timeout=LONG_ENOUGH_S, check=False,
        env={"PATH": "/usr/bin:/bin", **locale},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    document = json.loads(done.stdout)
    assert document["sections"]["node"]["os"]["pretty_name"] == "Débian"
    assert document["sections"]["kernel"]["probe"]["status"] == "ok"
    assert schema_faults(document) == []
