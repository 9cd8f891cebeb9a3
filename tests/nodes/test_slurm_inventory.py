"""The inventory plugin on a real Slurm: how `ansible-inventory` shows its nodes."""

from __future__ import annotations

import json
import subprocess
import sys

import audits
import pytest
import slurm_here

pytestmark = pytest.mark.skipif(
    bool(slurm_here.missing()), reason=f"apt has no {', '.join(slurm_here.missing())} here"
)


def plain(value):
    """A value without ansible-inventory's mark for texts that are no templates."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"]
            if set(value) == {"__ansible_unsafe"}
            else {key: plain(inner) for key, inner in value.items()}
        )
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The cluster for all tests of this file."""
    yield from slurm_here.booted(tmp_path_factory.mktemp("slurm"))


def inventory(slurm, folder, *arguments, text="plugin: unhang_slurm\n"):
    """(code, standard output, standard error) of ansible-inventory, started outside the project's
    folder."""
    path = folder / "cluster.unhang_slurm.yml"
    path.write_text(text)
    argv = slurm.bed.inside(
        [str(audits.PROGRAMS / "ansible-inventory"), "-i", str(path), *arguments], folder
    )
    done = subprocess.run(
        argv,
        env=slurm.environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=audits.DEADLINE_S,
    )
    sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")
    return done.returncode, done.stdout, done.stderr


def test_partitions_features_gres_and_switches_are_groups(slurm, tmp_path):
    code, output, _errors = inventory(slurm, tmp_path, "--list")
    found = json.loads(output)
    assert code == 0
    everyone, gpus = (
        ["cpu01", "gpu001", "gpu002", "gpu003", "gpu004"],
        ["gpu001", "gpu002", "gpu003", "gpu004"],
    )
    groups = {name: sorted(row["hosts"]) for name, row in found.items() if "hosts" in row}
    assert groups == {
        "slurm": everyone,
        "slurm_partition_all": everyone,
        "slurm_partition_train": gpus[:3],
        "slurm_feature_h200": gpus,
        "slurm_feature_ib": gpus,
        "slurm_gres_gpu": gpus,
        "slurm_gres_gpu_h200": gpus,
        "slurm_switch_leaf1": gpus[:2],
        "slurm_switch_leaf2": ["cpu01", *gpus[2:]],
    }
    assert sorted(found["slurm_switch_spine"]["children"]) == [
        "slurm_switch_leaf1",
        "slurm_switch_leaf2",
    ]
    assert plain(found["_meta"]["hostvars"]["gpu003"]) == {
        "ansible_local": {},
        "ansible_host": "10.213.7.1",
        "slurm_state": ["IDLE"],
        "slurm_reason": "",
        "slurm_reason_by": "",
        "slurm_partitions": ["all", "train"],
        "slurm_features": ["h200", "ib"],
        "slurm_gres": [{"name": "gpu", "type": "h200", "count": "2"}],
        "unhang_switch": "leaf2",
    }


def test_the_smoke_test_knows_the_switches(slurm, tmp_path):
    inventory(slurm, tmp_path, "--graph")
    code = (
        "from unhang.smoke.switches import read_switches;"
        f" print(sorted(read_switches({str(tmp_path / 'cluster.unhang_slurm.yml')!r}).items()))"
    )
    output = slurm.bed.run([sys.executable, "-P", "-c", code], env=slurm.environment).stdout
    assert output.strip() == str(
        [
            ("cpu01", "leaf2"),
            ("gpu001", "leaf1"),
            ("gpu002", "leaf1"),
            ("gpu003", "leaf2"),
            ("gpu004", "leaf2"),
        ]
    )


def test_the_graph_that_the_page_shows_is_what_ansible_prints(slurm, tmp_path):
    _code, graph, _errors = inventory(slurm, tmp_path, "--graph")
    # as docs/operations.md has it
    assert (
        graph.strip()
        == (audits.PROJECT / "tests" / "fixtures" / "slurm_graph.txt").read_text().strip()
    )


def test_a_reason_is_a_value_and_never_a_template(slurm, tmp_path):
    mark = tmp_path / "mark"
    slurm.run(
        "scontrol",
        "update",
        "nodename=gpu002",
        "state=drain",
        f"reason={{{{ lookup('pipe', 'touch {mark}') }}}}",
    )
    try:
        text = "plugin: unhang_slurm\ngroups: {drained: \"'DRAIN' in slurm_state\"}\n"
        code, output, _errors = inventory(slurm, tmp_path, "--list", text=text)
        found = json.loads(output)
        assert (code, found["drained"]["hosts"]) == (0, ["gpu002"])
        playbook = tmp_path / "show.yml"
        playbook.write_text(
            json.dumps(
                [
                    {
                        "hosts": "gpu002",
                        "gather_facts": False,
                        "tasks": [{"ansible.builtin.debug": {"msg": "it says {{ slurm_reason }}"}}],
                    }
                ]
            )
        )
        argv = slurm.bed.inside(
            [
                str(audits.PROGRAMS / "ansible-playbook"),
                "-i",
                str(tmp_path / "cluster.unhang_slurm.yml"),
                str(playbook),
            ],
            tmp_path,
        )
        done = subprocess.run(
            argv,
            env={**slurm.environment, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"},
            capture_output=True,
            text=True,
        )
        assert "it says {{ lookup(" in done.stdout, done.stdout + done.stderr
        assert not mark.exists()
    finally:
        slurm.run("scontrol", "update", "nodename=gpu002", "state=resume")


def test_unhang_audits_the_nodes_of_slurm_from_any_folder(slurm, tmp_path):
    (tmp_path / "cluster.unhang_slurm.yml").write_text(
        "plugin: unhang_slurm\ncompose: {ansible_connection: \"'local'\"}\n"
    )
    arguments = [
        "audit",
        "-i",
        str(tmp_path / "cluster.unhang_slurm.yml"),
        "--limit",
        "slurm_switch_leaf1",
        "--out",
        str(tmp_path / "runs"),
        "--format",
        "json",
    ]
    argv = slurm.bed.inside([sys.executable, "-P", "-m", "unhang", *arguments], tmp_path)
    done = subprocess.run(
        argv,
        env=slurm.environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=audits.DEADLINE_S,
    )
    assert done.returncode in (0, 1), done.stderr
    assert sorted(
        path.stem for path in (tmp_path / "runs" / "latest" / "nodes").glob("*.json")
    ) == ["gpu001", "gpu002"]


def test_a_slurmctld_that_is_away_is_reported_in_a_line(slurm, tmp_path):
    slurm.stop_controller()
    try:
        _code, output, errors = inventory(slurm, tmp_path, "--list")
    finally:
        slurm.start_controller()
    assert "Unable to contact slurm controller" in errors
    assert "Traceback" not in errors
    assert "gpu001" not in output
