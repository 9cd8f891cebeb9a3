"""Settings in scripts: found with their line in each kind of file, and judged by the catalogue's
tables."""

from __future__ import annotations

import json

import pytest

from unhang import cli
from unhang.core.catalogue.own_tables import table
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import lint, lint_text, render_table
from unhang.jobs.lint.settings import find_settings, kind_of


def rules_of(text, kind="shell", **context):
    return {(one.line, one.rule) for one in lint_text(text, kind, Context(**context))}


def names_of(text, kind):
    return [(one.name, one.value, one.line) for one in find_settings(text, kind) if not one.unset]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("train.sh", "#!/bin/bash\n", "shell"),
        ("job", "#!/bin/bash\n#SBATCH -N 2\n", "slurm"),
        ("x.sbatch", "", "slurm"),
        ("Dockerfile.gpu", "", "docker"),
        ("image", "FROM ubuntu:24.04\n", "docker"),
        ("pod.yaml", "", "kubernetes"),
        ("/etc/nccl.conf", "", "nccl_conf"),
        (".nccl.conf", "", "nccl_conf"),
        ("train.service", "", "systemd"),
        ("10-nccl.conf", "[Service]\nEnvironment=A=1\n", "systemd"),
        ("train.py", "", "python"),
    ],
)
def test_kind_of_a_file_is_told_by_name_and_content(name, text, kind):
    if name == "10-nccl.conf":
        assert kind_of("override.conf", text) == kind
    else:
        assert kind_of(name, text) == kind


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (
            "shell",
            "export NCCL_DEBUG=INFO NCCL_NET='IB' # NCCL_X=1\n",
            [("NCCL_DEBUG", "INFO", 1), ("NCCL_NET", "IB", 1)],
        ),
        ("shell", "# export NCCL_DEBUG=INFO\n", []),
        ("shell", "mpirun -np 8 -x NCCL_DEBUG=INFO -x PATH ./a\n", [("NCCL_DEBUG", "INFO", 1)]),
        (
            "shell",
            "docker run -e NCCL_P2P_LEVEL=NVL --env NCCL_NET=IB img\n",
            [("NCCL_P2P_LEVEL", "NVL", 1), ("NCCL_NET", "IB", 1)],
        ),
        (
            "shell",
            "export NCCL_DEBUG=${NCCL_DEBUG:-WARN}\nexport NCCL_NET=$NET\n",
            [("NCCL_DEBUG", "WARN", 1), ("NCCL_NET", None, 2)],
        ),
        (
            "slurm",
            "#SBATCH --export=ALL,NCCL_DEBUG=INFO,NCCL_NET=IB\n",
            [("NCCL_DEBUG", "INFO", 1), ("NCCL_NET", "IB", 1)],
        ),
        ("slurm", "srun --export=ALL,NCCL_DEBUG=INFO ./a\n", [("NCCL_DEBUG", "INFO", 1)]),
        (
            "docker",
            "FROM x\nENV NCCL_DEBUG=INFO NCCL_NET=IB\nENV NCCL_ALGO Ring\n",
            [("NCCL_DEBUG", "INFO", 2), ("NCCL_NET", "IB", 2), ("NCCL_ALGO", "Ring", 3)],
        ),
        ("docker", 'RUN echo "NCCL_NET=IB" >> /etc/nccl.conf\n', [("NCCL_NET", "IB", 1)]),
        (
            "kubernetes",
            'env:\n- name: NCCL_DEBUG\n  value: "INFO"\n- name: A\n  value: b\n',
            [("NCCL_DEBUG", "INFO", 2)],
        ),
        ("kubernetes", "- {name: NCCL_NET, value: IB}\n", [("NCCL_NET", "IB", 1)]),
        ("kubernetes", 'data:\n  NCCL_NET: "IB"\n', [("NCCL_NET", "IB", 2)]),
        ("kubernetes", "environment:\n  - NCCL_NET=IB\n", [("NCCL_NET", "IB", 2)]),
        (
            "kubernetes",
            'command: ["bash", "-c", "export NCCL_NET=IB; python a.py"]\n',
            [("NCCL_NET", "IB", 1)],
        ),
        (
            "kubernetes",
            "- name: NCCL_NET\n  valueFrom:\n    configMapKeyRef: {name: c, key: n}\n",
            [("NCCL_NET", None, 1)],
        ),
        (
            "systemd",
            '[Service]\nEnvironment="NCCL_NET=IB" NCCL_DEBUG=WARN\n',
            [("NCCL_NET", "IB", 2), ("NCCL_DEBUG", "WARN", 2)],
        ),
        (
            "nccl_conf",
            "NCCL_SOCKET_IFNAME==eno1\n#NCCL_NET=IB\n",
            [("NCCL_SOCKET_IFNAME", "=eno1", 1)],
        ),
        (
            "python",
            'os.environ["NCCL_NET"] = "IB"\nos.environ.setdefault("NCCL_DEBUG", "INFO")\n',
            [("NCCL_NET", "IB", 1), ("NCCL_DEBUG", "INFO", 2)],
        ),
    ],
)
def test_settings_are_found_in_each_kind_of_file(kind, text, found):
    assert names_of(text, kind) == found


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("export NCCL_TIMEOUT=1200000", "name-not-real"),
        ("export NCCL_SOCKET_TIMEOUT=600", "name-not-real"),
        ("export nccl_p2p_disable=1", "name-not-real"),
        ("export nccl_debug=INFO", "wrong-case"),
        ("export NCCL_BLOCKING_WAIT=1", "renamed"),
        ("export NCCL_ASYNC_ERROR_HANDLING=1", "renamed"),
        ("export ENABLE_NCCL_HEALTH_CHECK=1", "renamed"),
        ("export TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "renamed"),
        ("export NCCL_P2P_LEVL=NVL", "unknown-name"),
        ("export TORCH_NCCL_BLOKING_WAIT=1", "unknown-name"),
        ("export NCCL_TREE_THRESHOLD=0", "removed"),
        ("export NCCL_IB_CUDA_SUPPORT=1", "removed"),
        ("export NCCL_MIN_NCHANNELS=4", "deprecated"),
        ("export NCCL_DEBUG=verbose", "wrong-value"),
        ("export NCCL_IB_DISABLE=true", "wrong-value"),
        ("export NCCL_ALGO=Tre", "wrong-value"),
        ("export NCCL_PROTO=LL64", "wrong-value"),
        ("export NCCL_P2P_DISABLE=1", "hides-fault"),
        ("export NCCL_IB_DISABLE=1", "hides-fault"),
        ("export NCCL_SHM_DISABLE=1", "hides-fault"),
        ("export TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "hides-fault"),
        ("export NCCL_BUFFSIZE=8388608", "debug-only"),
        ("export NCCL_PROTO=LL128", "debug-only"),
        ("export NCCL_CHUNK_SIZE=8", "undocumented"),
        ("export NCCL_MNNVL_ENABLE=0", "needs-newer"),
        ("export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=86400", "timeout-hours"),
        ("torchrun a.py --ddp_timeout 72000", "timeout-hours"),
        ("python p.py --distributed-timeout-minutes 600", "timeout-hours"),
        ("apt-get install -y linux-generic-5.5", "no-such-package"),
        ("export NCCL_SOCKET_IFNAME=eth0", "interface-guessed"),
        ("export NCCL_IB_HCA=mlx5_1", "prefix-match"),
    ],
)
def test_fault_is_found_with_line_reason_replacement_and_source(line, rule):
    found = [
        one for one in lint_text(f"#!/bin/bash\n{line}\n", "shell", Context()) if one.rule == rule
    ]
    assert len(found) == 1 and found[0].line == 2
    assert len(found[0].why) > 15 and found[0].instead and found[0].source.startswith("https://")


@pytest.mark.parametrize(
    "line",
    [
        "export NCCL_DEBUG=WARN",
        "export NCCL_DEBUG=warn",
        "export NCCL_SOCKET_IFNAME==eno1",
        "export NCCL_IB_HCA==mlx5_0,mlx5_1",
        "export NCCL_NET=IB",
        "export NCCL_IB_TIMEOUT=22",
        "export NCCL_DEBUG=",
        'export NCCL_IB_DISABLE="" NCCL_PROTO=',
        "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "export TORCH_FR_BUFFER_SIZE=2000",
        "export NCCL_HOME=/opt/nccl",
        "export NCCL_FASTRAK_CTRL_DEV=eth0",
        "torchrun a.py --ddp_timeout 3600",
        "apt-get install -y linux-generic-hwe-22.04",
        "export NCCL_TIMEOUT=1 # unhang: ignore",
        "# never set NCCL_TIMEOUT=1",
    ],
)
def test_sound_line_is_left_alone(line):
    assert [(one.rule, one.found) for one in lint_text(line + "\n", "shell", Context())] == []


@pytest.mark.parametrize(
    ("value", "rule"),
    [("99", "wrong-value"), ("32", "wrong-value"), ("0", "timeout-hours"), ("24", "timeout-hours")],
)
def test_one_fault_of_a_timeout_is_one_finding(value, rule):
    assert rules_of(f"export NCCL_IB_TIMEOUT={value}\n") == {(1, rule)}


def test_misspelt_name_without_a_value_is_still_misspelt():
    assert rules_of("export NCCL_DEBG=\nexport NCCL_TIMEOUT=\n") == {
        (1, "unknown-name"),
        (2, "name-not-real"),
    }


def test_folk_timeout_is_answered_with_the_way_of_each_framework():
    found = lint_text("export NCCL_TIMEOUT=1800\n", "shell", Context())[0]
    for word in (
        "init_process_group",
        "DDPStrategy",
        "ddp_timeout",
        "InitProcessGroupKwargs",
        "init_distributed",
        "--distributed-timeout-minutes",
    ):
        assert word in found.instead


def test_experiment_on_one_command_is_a_remark_and_a_lasting_setting_a_warning():
    text = "NCCL_P2P_DISABLE=1 ./all_reduce_perf\nexport NCCL_P2P_DISABLE=1\n"
    assert [
        (one.line, one.severity)
        for one in lint_text(text, "shell", Context())
        if one.rule == "hides-fault"
    ] == [(1, "info"), (2, "warning")]


def test_settings_that_contradict_each_other_are_reported_once_with_the_other_line():
    found = [
        one
        for one in lint_text("export NCCL_IB_DISABLE=1\nexport NCCL_NET=IB\n", "shell", Context())
        if one.rule == "contradiction"
    ]
    assert [(one.line, "line 1" in one.why) for one in found] == [(2, True)]


def test_setting_that_is_taken_back_contradicts_nothing():
    assert "contradiction" not in {
        rule
        for _, rule in rules_of(
            "export NCCL_IB_DISABLE=1\nunset NCCL_IB_DISABLE\nexport NCCL_NET=IB\n"
        )
    }


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("export NCCL_MNNVL_ENABLE=0\n", {"nccl": "2.18.1"}, True),
        ("export NCCL_MNNVL_ENABLE=0\n", {"nccl": "2.27.3"}, False),
        ("pip install torch==2.1.0\nexport NCCL_MNNVL_ENABLE=0\n", {}, True),
        ("pip install nvidia-nccl-cu12==2.19.3\nexport NCCL_MNNVL_ENABLE=0\n", {}, True),
        ("export TORCH_NCCL_PROPAGATE_ERROR=1\n", {"torch": "2.4.0"}, True),
        ("export TORCH_NCCL_PROPAGATE_ERROR=1\n", {"torch": "2.8.0"}, False),
    ],
)
def test_variable_that_is_newer_than_what_the_job_runs_is_an_error(text, version, expected):
    found = [
        one
        for one in lint_text(text, "shell", Context(**version))
        if one.rule == "needs-newer" and one.severity == "error"
    ]
    assert bool(found) == expected


def test_old_name_is_the_right_one_under_an_old_torch():
    assert not any(
        one.severity != "info"
        for one in lint_text("export NCCL_BLOCKING_WAIT=1\n", "shell", Context(torch="2.1.2"))
    )


def test_what_the_image_of_a_cloud_sets_is_not_remarked_there():
    assert (1, "debug-only") in rules_of("export NCCL_BUFFSIZE=8388608\n")
    assert rules_of("export NCCL_BUFFSIZE=8388608\n", platform="amazon") == set()


@pytest.mark.parametrize(
    "line",
    ["export NCCL_IB_DISABLE=0", "export NCCL_P2P_DISABLE=0", "export TORCH_DISTRIBUTED_DEBUG=OFF"],
)
def test_a_default_that_is_written_out_is_not_remarked(line):
    assert rules_of(f"{line}\n") == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('echo "NCCL_P2P_DISABLE=1 is bad"', set()),
        ('if true; then printf "NCCL_IB_DISABLE=%s NCCL_P2P_DISABLE=1" x; fi', set()),
        ('echo "NCCL_P2P_DISABLE=1 is <bad> here"', set()),
        ("echo start; export NCCL_P2P_DISABLE=1", {(1, "hides-fault")}),
        ("echo NCCL_P2P_DISABLE=1 >>/etc/nccl.conf", {(1, "hides-fault")}),
    ],
)
def test_a_setting_that_a_script_only_prints_is_none(line, expected):
    assert rules_of(f"{line}\n") == expected


def test_an_adapters_name_is_a_prefix_of_those_that_exist():
    assert rules_of("export NCCL_IB_HCA=mlx5_0,mlx5_1\n") == set()
    assert rules_of("export NCCL_IB_HCA=mlx5_1:1\n") == {(1, "prefix-match")}


def test_the_interface_of_a_pods_own_network_is_eth0():
    pod = "kind: Pod\nspec:\n  containers:\n  - env: [{name: NCCL_SOCKET_IFNAME, value: eth0}]\n"
    assert rules_of(pod, "kubernetes") == set()
    assert rules_of(f"{pod}  hostNetwork: true\n", "kubernetes") == {(4, "interface-guessed")}


def test_the_new_name_alone_is_not_advised_where_the_job_may_not_read_it():
    def advice(torch):
        return lint_text(
            "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000\n", "shell", Context(torch=torch)
        )[0].instead

    assert "both until it has it" in advice(None) and "both" not in advice("2.9.0")


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_DEBUG = WARN",
        'NCCL_IB_HCA="mlx5"',
        "export NCCL_NET=IB",
        "NCCL_NET=IB ",
        "NCCL_TOPO_FILE=~/topo.xml",
    ],
)
def test_line_of_nccl_conf_that_nccl_reads_otherwise_is_an_error(line):
    assert (1, "conf-syntax") in rules_of(line + "\n", "nccl_conf")


def test_every_name_of_the_tables_is_known_to_lint():
    assert len(table("nccl_variables")) >= 266
    for name in table("nccl_variables"):
        assert not {"unknown-name", "wrong-case"} & {
            one.rule for one in lint_text(f"export {name}=1\n", "shell", Context())
        }
    for name in table("not_real_settings"):
        assert {one.rule for one in lint_text(f"export {name}=1\n", "shell", Context())} == {
            "name-not-real"
        }


def test_command_reads_folders_and_exits_by_severity(tmp_path, capsys):
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\nexport NCCL_TIMEOUT=1\n")
    (tmp_path / "fine.sh").write_text("export NCCL_DEBUG=WARN\n")
    (tmp_path / "image.bin").write_bytes(b"\0\1")
    assert cli.main(["lint", "--format", "json", str(tmp_path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "unhang/lint/1" and document["totals"] == {
        "error": 1,
        "warning": 0,
        "info": 0,
    }
    assert set(document["findings"][0]) == {
        "file",
        "line",
        "rule",
        "severity",
        "found",
        "why",
        "instead",
        "source",
    }
    assert cli.main(["lint", str(tmp_path / "fine.sh")]) == 0
    assert cli.main(["lint", str(tmp_path / "none.sh")]) == 2
    assert cli.main(["lint", "--nccl", "newest", str(tmp_path / "fine.sh")]) == 2
    shown = capsys.readouterr()
    assert "0 errors" in shown.out and len(shown.err.splitlines()) == 2


def test_hostile_text_reaches_no_terminal(tmp_path, capsys):
    (tmp_path / "x.sh").write_text("export NCCL_DEBUG=\x1b[31mred\u202e\n")
    cli.main(["lint", str(tmp_path / "x.sh")])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\u202e" not in out


@pytest.mark.parametrize(
    "value",
    [
        "LOC",
        "NVL",
        "NVB",
        "C2C",
        "PIX",
        "PXB",
        "P2C",
        "PXN",
        "PHB",
        "SYS",
        "0",
        "4",
        "5",
        "12",
        "3x",
    ],
)
@pytest.mark.parametrize("name", ["NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"])
def test_level_that_the_parser_of_nccl_takes_is_no_error(name, value):
    assert (1, "wrong-value") not in rules_of(f"export {name}={value}\n")


@pytest.mark.parametrize("value", ["sys", "PCI", "NET", "DIS", "on", "-1"])
@pytest.mark.parametrize("name", ["NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"])
def test_level_that_the_parser_of_nccl_passes_over_is_an_error(name, value):
    assert (1, "wrong-value") in rules_of(f"export {name}={value}\n")


def test_level_is_an_error_under_a_release_that_does_not_know_it_yet():
    assert (1, "wrong-value") in rules_of("export NCCL_NET_GDR_LEVEL=P2C\n", nccl="2.26.2")
    assert (1, "wrong-value") not in rules_of("export NCCL_NET_GDR_LEVEL=P2C\n", nccl="2.27.3")


def test_advice_of_one_cause_is_given_once_in_a_file(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("export NCCL_TIMEOUT=1800\npython a.py\nexport NCCL_TIMEOUT=3600\n")
    document = lint([str(script)], Context())
    shown = render_table(document)
    assert (
        document["totals"]["error"] == 2 and shown.count("no release of NCCL reads this name") == 1
    )
    assert "train.sh:3: error: NCCL_TIMEOUT=3600 [name-not-real], as in line 1" in shown
