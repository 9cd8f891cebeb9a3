"""An installation of the wheel: each command runs in an empty folder, without any
checkout, and the installation is only read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from importlib import metadata

import pytest
from documented_command import as_typed
from installed_collection import build as build_collection
from installed_collection import required
from installed_wheel import PROJECT, build, contents, finished, install
from local_fleet import Fleet, envelope
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from unhang import __version__
from unhang.commands import COMMANDS

INVENTORY = """
all:
  hosts:
    here: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  vars:
    unhang_policy: {host: {remove_ipc: false}}
"""
LOG = PROJECT / "tests" / "fixtures" / "diagnose" / "acs_iommu" / "acsctl-and-hang.log"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unhang(wheel, tmp_path_factory):
    """The installed program, with an inventory of this machine in its current folder."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "hosts.yml").write_text(INVENTORY)
    return install(wheel, folder)


@pytest.fixture(scope="module")
def audited(unhang):
    """An audit of this machine: what it printed, as JSON."""
    before = written(unhang)
    done = unhang("audit", "-i", "hosts.yml", "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    assert written(unhang) == before
    return json.loads(done.stdout)


def written(unhang):
    """The files of the installation, except those that Python compiles; an audit adds none."""
    return {path for path in unhang.home.parent.rglob("*") if "__pycache__" not in path.parts}


def test_a_wheel_that_is_built_from_the_source_archive_is_the_same(wheel, tmp_path):
    archive = build("sdist", PROJECT, tmp_path / "sdist")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(tmp_path)
    (tree,) = tmp_path.glob("unhang-*")
    assert contents(build("wheel", tree, tmp_path / "again")) == contents(wheel)


def test_the_wheel_holds_no_file_of_tests_of_the_demo_or_of_builds(wheel):
    names = list(contents(wheel))
    assert not [
        name
        for name in names
        if name.endswith((".pyc", ".pyz")) or "/tests/" in name or "inventory/demo" in name
    ]
    assert {
        "unhang/home/ansible.cfg",
        "unhang/smoke/payload/__main__.py",
        "unhang/home/playbooks/tasks/rollout_begin.yml",
    } <= set(names)


def test_what_pip_installs_to_look_at_jobs_is_small(wheel):
    """In bytes, without what Python compiles."""
    packed = contents(wheel)
    about = packed[f"unhang-{__version__}.dist-info/METADATA"].decode()
    packages = required(re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra)", about, re.M))
    files = [file for name in packages for file in metadata.files(name)]
    others = sum(file.size or 0 for file in files if file.suffix != ".pyc")
    assert sum(map(len, packed.values())) + others < 29_000_000, packages


HANGS = """
import sys, time


def waits_for_a_dead_server():
    while True:
        time.sleep(0.2)


sys.stdout.write("ready\\n")
sys.stdout.flush()
waits_for_a_dead_server()
"""


def test_a_job_that_hangs_is_looked_at_with_stacks_by_what_pip_installs(unhang):
    """py-spy is found, although no folder of PATH has it."""
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with subprocess.Popen([sys.executable, "-c", HANGS], env=ranks, stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout.readline() == b"ready\n"
            done = unhang("inspect", "--pid", str(job.pid), "-o", "json")
        finally:
            job.kill()
    assert done.returncode in (0, 1, 3), done.stderr
    assert "waits_for_a_dead_server" in done.stdout, done.stdout


def test_an_audit_lies_in_the_folder_in_which_it_was_started(unhang, audited):
    assert audited["host_count"] == 1
    node = json.loads((unhang.folder / "runs" / "latest" / "nodes" / "here.json").read_text())
    assert node["status"] == "ok"
    # The installed nvidia-ml-py asks the driver's library: without a driver the answer is "absent",
    # without the package it would be an error.
    assert node["facts"]["sections"]["gpus"]["probe"]["status"] in ("ok", "absent")


def test_what_was_found_is_judged_reported_and_kept(unhang, audited):
    for argv in (
        ("judge", "runs/latest"),
        ("report", "runs/latest"),
        ("report", "runs/latest", "-o", "html"),
    ):
        assert unhang(*argv).returncode in (0, 1), argv
    assert "unhang" in (unhang.folder / "runs" / "latest" / "report.html").read_text()
    assert audited["run"]["id"] in unhang("history").stdout
    compared = unhang("history", "diff", "--run", "latest", "here", audited["run"]["id"])
    assert (compared.returncode, "none differ" in compared.stdout) == (0, True), compared.stderr
    assert unhang("history", "--prune", "--keep", "9").returncode == 0


def test_a_second_audit_is_compared_with_the_first(unhang, audited):
    again = unhang("audit", "-i", "hosts.yml", "-o", "json")
    assert again.returncode in (0, 1), again.stderr
    compared = unhang(
        "history", "diff", audited["run"]["id"], json.loads(again.stdout)["run"]["id"]
    )
    assert compared.returncode == 0, compared.stderr
    assert audited["run"]["id"] in compared.stdout


def test_a_plan_is_made_and_previewed(unhang, audited):
    planned = unhang("plan", "runs/latest")
    assert planned.returncode == 0, planned.stderr
    previewed = unhang(*as_typed("unhang remediate runs/latest")[1:])
    # the wheel brings no torch to the machine; the words are folded where the path is long
    words = " ".join(previewed.stdout.split())
    assert "the node does not have torch in " in words, previewed.stdout + previewed.stderr
    previewed = unhang("remediate", "runs/latest", "--no-smoke")
    assert "previewed" in previewed.stdout, previewed.stdout + previewed.stderr
    assert not (unhang.folder / "runs" / "latest" / "journal.jsonl").exists()


def test_a_role_is_previewed_by_the_collection_beside_it_as_the_page_says(unhang, tmp_path):
    archive, places = build_collection(tmp_path), {"gpu001": "here", "ROLE": "host_tuning"}
    collections = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    for typed in (
        ["ansible-galaxy", "collection", "install", "--offline", archive],
        as_typed(
            "ansible-playbook unhang.ops.remediate -i hosts.yml --limit gpu001 -e"
            " unhang_roles=ROLE",
            places,
        ),
    ):
        done = finished(
            [unhang.program.with_name(typed[0]), *typed[1:]],
            env={**unhang.environment(), **collections},
            cwd=unhang.folder,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert (
        "Set whether logind removes the shared memory of logged-out users" in done.stdout
        and "+RemoveIPC=no" in done.stdout
    )


def test_the_configuration_makes_no_variables_of_facts(unhang):
    shown = subprocess.run(
        [unhang.program.with_name("ansible-config"), "dump", "--only-changed"],
        env={**unhang.environment(), "ANSIBLE_CONFIG": str(unhang.home / "ansible.cfg")},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert re.search(r"^INJECT_FACTS_AS_VARS\(.*\) = False$", shown.stdout, re.MULTILINE)


def test_one_machine_is_read_and_judged_without_ansible(unhang, audited):
    collected = unhang("collect")
    assert collected.returncode == 0, collected.stderr
    (unhang.folder / "node.json").write_text(collected.stdout)
    assert unhang("judge", "node.json").returncode in (0, 1)
    assert "unhang_policy:" in unhang("policy", "--from", "runs/latest").stdout


def test_what_reads_files_and_the_catalogue_needs_no_more(unhang):
    assert unhang("diagnose", LOG).returncode == 1
    (unhang.folder / "job.sh").write_text("export NCCL_P2P_DISABLE=1\n")
    assert "NCCL_P2P_DISABLE" in unhang("lint", "job.sh").stdout
    assert "off the bus" in unhang("explain", "xid", "79").stdout
    assert "xid-fatal" in unhang("catalogue").stdout
    refused = unhang("preprovision", "--verify", "no-such-record", "--key", "no-such-key")
    assert refused.returncode == 2 and "no-such-key" in refused.stderr


def test_the_smoke_test_takes_the_torch_that_it_is_given(unhang):
    done = unhang(
        "smoke",
        "--local",
        "--python",
        sys.executable,
        "--nproc",
        "2",
        "--backend",
        "gloo",
        "--phases",
        "environment,rendezvous",
        "--format",
        "json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"


def test_the_gate_audits_tests_and_decides_of_a_node_that_proves_nothing(unhang, tmp_path):
    fleet = Fleet(tmp_path)
    fleet.answering("gpu001", envelope())
    before = written(unhang)
    done = unhang(
        "preprovision", "-l", "gpu001", "-i", fleet.inventory, "--out", fleet.runs, "-o", "json"
    )
    assert done.returncode == 3, done.stderr[-3000:]
    steps = [line for line in done.stderr.splitlines() if line.startswith("unhang: ")]
    assert steps == [
        "unhang: audit",
        "unhang: judge the facts of the audit",
        "unhang: smoke test, each node alone",
        "unhang: smoke test, together",
        "unhang: decide",
    ]
    (node,) = json.loads(done.stdout)["nodes"]
    assert (node["host"], node["outcome"]) == ("gpu001", "not proved")
    kept = json.loads((fleet.runs / "latest" / "gate.json").read_text())
    assert [(row["host"], row["outcome"]) for row in kept["nodes"]] == [("gpu001", "not proved")]
    # results of smoke tests are written beside the run, not into the installation
    assert written(unhang) == before
    assert list((fleet.runs / "smoke").rglob("gpu001"))


def test_the_bill_of_materials_has_each_package_that_is_installed(unhang, tmp_path):
    target = tmp_path / "unhang.cdx.json"
    done = finished(
        [
            sys.executable,
            "-P",
            PROJECT / "tools" / "release" / "sbom.py",
            unhang.program.with_name("python"),
            target,
        ]
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text())
    assert (
        document["metadata"]["component"]["name"],
        document["metadata"]["component"]["version"],
    ) == ("unhang", __version__)
    lines = (
        line.removesuffix("\\").partition(";")
        for line in (PROJECT / "requirements.txt").read_text().splitlines()
        if line[:1].isalpha()
    )
    wanted = {
        tuple(pin.strip().split("=="))
        for pin, _, marker in lines
        if not marker or Marker(marker).evaluate()
    }
    assert {
        (canonicalize_name(one["name"]), one["version"]) for one in document["components"]
    } == wanted
    assert [one["name"] for one in document["components"] if not one.get("licenses")] == []


# Each command in a fork of its own: {name: [exit code, output]} on standard output.
HELPS = """
import json, os, sys, tempfile
from unhang.cli import main
found = {}
for name in sys.argv[1:]:
    with tempfile.TemporaryFile() as written:
        if not (child := os.fork()):
            code = 70
            try:
                os.dup2(written.fileno(), 1)
                code = main([*name.split(), "--help"])
            except SystemExit as ended:
                code = ended.code or 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        written.seek(0)
        found[name] = [code, written.read().decode()]
print(json.dumps(found))
"""


def test_each_command_can_say_what_it_takes(unhang):
    words = [unhang.program.with_name("python"), "-P", "-c", HELPS, *sorted(COMMANDS)]
    done = finished(words, env=unhang.environment(), cwd=unhang.folder)
    assert (done.returncode, done.stderr) == (0, "")
    helps = json.loads(done.stdout)
    assert {
        name: (code, text.startswith(f"usage: unhang {name}"))
        for name, (code, text) in helps.items()
    } == dict.fromkeys(COMMANDS, (0, True))
    whole = unhang("audit", "--help")
    assert [whole.returncode, whole.stdout, whole.stderr] == [*helps["audit"], ""]
