"""Every file that sets variables for NCCL, torch and CUDA is read as the program that uses it reads
it."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang_node.base.parse.allowed_names import (
    allowed_assignments,
    allowed_value,
    is_allowed,
)
from unhang_node.base.parse.assignment import Assignment
from unhang_node.facts.parse.env_files import (
    container_prefixed,
    parse_containers_conf,
    parse_docker_container,
    parse_enroot_env,
    parse_environment,
    parse_pam_env_conf,
    parse_slurm_conf,
    parse_sshd_setenv,
)
from unhang_node.facts.parse.nccl_conf import parse_nccl_conf
from unhang_node.facts.parse.shell_env import parse_shell, parse_task_prolog
from unhang_node.facts.parse.systemd_env import parse_environment_file, parse_unit


def values(rows):
    return [(row.name, row.value, row.certain) for row in rows]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"NCCL_DEBUG=INFO\n", [("NCCL_DEBUG", "INFO", 1)]),
        (b"NCCL_DEBUG = WARN\n", [("NCCL_DEBUG ", " WARN", 1)]),
        (b'NCCL_SOCKET_IFNAME="eth0"\n', [("NCCL_SOCKET_IFNAME", '"eth0"', 1)]),
        (b"NCCL_SOCKET_IFNAME==eth0\n", [("NCCL_SOCKET_IFNAME", "=eth0", 1)]),
        (b"# a comment\n#NCCL_DEBUG=INFO\n", [("#NCCL_DEBUG", "INFO", 2)]),
        (b"  NCCL_DEBUG=INFO\r\n", [("  NCCL_DEBUG", "INFO\r", 1)]),
        (b"no equals\n=x\n\nNCCL_A=\n", [("NCCL_A", "", 4)]),
        (b"NCCL_A=1", [("NCCL_A", "1", 1)]),
        (b"NCCL_A=" + b"x" * 2000, [("NCCL_A", "x" * 1023, 1)]),
        (b"NCCL_A=1\0junk\n", [("NCCL_A", "1", 1)]),
    ],
)
def test_nccl_conf_is_taken_as_it_stands(content, expected):
    assert [(row.name, row.value, row.line) for row in parse_nccl_conf(content)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_A=1", [("NCCL_A", "1", True)]),
        ("NCCL_A='two words'; export NCCL_A", [("NCCL_A", "two words", True)]),
        ("NCCL_A=1", [("NCCL_A", "1", False)]),
        ("set -a\nNCCL_A=1", [("NCCL_A", "1", True)]),
        ("NCCL_A=1 some-command", []),
        ("declare -x NCCL_A=1 NCCL_B=2", [("NCCL_A", "1", True), ("NCCL_B", "2", True)]),
        ("export NCCL_A=$(hostname -s) # why", [("NCCL_A", "$(hostname -s)", False)]),
        ('export NCCL_A="x$HOME"', [("NCCL_A", "x$HOME", False)]),
        ("export NCCL_A='$HOME'", [("NCCL_A", "$HOME", True)]),
        ("export NCCL_A=${X:-1}", [("NCCL_A", "${X:-1}", False)]),
        ("export NCCL_A=`id`", [("NCCL_A", "`id`", False)]),
        ("export NCCL_A+=1", [("NCCL_A", "1", False)]),
        ("# export NCCL_A=1", []),
        ("echo export NCCL_A=1", []),
        (
            "if [ -d /x ]; then export NCCL_A=1; fi; export NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "[ -d /x ] && export NCCL_A=1\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "[ -d /x ] || export NCCL_A=1; export NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "case $- in\n *i*) export NCCL_A=1 ;;\nesac\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "for i in 1 2; do\nexport NCCL_A=1\ndone\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "f() {\n export NCCL_A=1\n return\n}\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "f()\n{\n export NCCL_A=1\n return\n}\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        (
            "function f {\n export NCCL_A=1\n return\n}\nexport NCCL_B=2",
            [("NCCL_A", "1", False), ("NCCL_B", "2", True)],
        ),
        ('[ -z "$PS1" ] && return\nexport NCCL_A=1', [("NCCL_A", "1", False)]),
        ("cat <<EOF\nexport NCCL_A=1\nEOF\nexport NCCL_B=2", [("NCCL_B", "2", True)]),
        ("grep x <<<word\nexport NCCL_B=2", [("NCCL_B", "2", True)]),
        ("export NCCL_A=\\\n1", [("NCCL_A", "1", True)]),
        ("unset NCCL_A", [("NCCL_A", None, True)]),
        ('export NCCL_A="cut', [("NCCL_A", "cut", False)]),
        ("export NCCL_A=a\\ b", [("NCCL_A", "a b", True)]),
        ("export NCCL_A=1 >/dev/null 2>&1", [("NCCL_A", "1", True)]),
    ],
)
def test_shell_file_is_read_without_running_it(text, expected):
    assert values(parse_shell(text)) == expected


def test_line_of_a_shell_setting_is_where_it_begins():
    assert [row.line for row in parse_shell("\n\nexport \\\n NCCL_A=1\nexport NCCL_B=1")] == [3, 5]


@given(st.text(alphabet="abN=CL_$(){}[];&|'\"\\`\n #<>!-ifthenesacdo", max_size=80))
def test_no_shell_text_is_an_exception(text):
    parse_shell(text)
    parse_task_prolog(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('echo "export NCCL_DEBUG=INFO"', [("NCCL_DEBUG", "INFO", True)]),
        ("echo export CUDA_VISIBLE_DEVICES=0", [("CUDA_VISIBLE_DEVICES", "0", True)]),
        ("echo export NCCL_A=$(x)", [("NCCL_A", "$(x)", False)]),
        ("echo unset NCCL_A", [("NCCL_A", None, True)]),
        ("export NCCL_A=1", []),
        ("echo hello", []),
        ('if x; then\necho "export NCCL_A=1"\nfi', [("NCCL_A", "1", False)]),
    ],
)
def test_task_prolog_speaks_by_what_it_prints(text, expected):
    assert values(parse_task_prolog(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Service]\nEnvironment=A=1 B=2\n", [("A", "1", True), ("B", "2", True)]),
        (
            '[Service]\nEnvironment="A=two words" B=2\n',
            [("A", "two words", True), ("B", "2", True)],
        ),
        ("[Service]\nEnvironment=A=%h B=100%%\n", [("A", "%h", False), ("B", "100%", True)]),
        (
            "[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n",
            [("A", "1", True), ("A", None, True), ("B", "2", True)],
        ),
        (
            "[Service]\nEnvironment=A=1 \\\n  # not a comment's end\n  B=2\n",
            [("A", "1", True), ("B", "2", True)],
        ),
        ("[Unit]\nEnvironment=A=1\n[Service]\n#Environment=B=2\n", []),
    ],
)
def test_unit_sets_what_systemd_reads(text, expected):
    assert values(parse_unit(text)[0]) == expected


def test_environment_files_of_a_unit_are_named():
    assert parse_unit("[Service]\nEnvironmentFile=/etc/a\nEnvironmentFile=-/etc/b\n")[1] == [
        "/etc/a",
        "/etc/b",
    ]
    assert parse_unit("[Service]\nEnvironmentFile=/etc/a\nEnvironmentFile=\n")[1] == []


def test_managers_default_environment_is_read():
    assert values(
        parse_unit('[Manager]\nDefaultEnvironment="NCCL_A=1"\n', "Manager", "DefaultEnvironment")[0]
    ) == [("NCCL_A", "1", True)]


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (
            parse_environment_file,
            "A=1\n# c\n; c\nB='two words'\nC=\"x\"\nD\n",
            [("A", "1", True), ("B", "two words", True), ("C", "x", True)],
        ),
        (
            parse_environment,
            'A=1 # c\nexport B=2\nC="x"\n#D=4\nE=$x\n',
            [("A", "1", True), ("B", "2", True), ("C", "x", True), ("E", "$x", True)],
        ),
        (
            parse_pam_env_conf,
            "# x\nA DEFAULT=1\nB DEFAULT=1 OVERRIDE=${HOME}\nC\n",
            [("A", "1", True), ("B", "${HOME}", False)],
        ),
        (
            parse_sshd_setenv,
            'SetEnv A=1 B="2"\nsetenv C=3\nMatch User x\n SetEnv D=4\n',
            [("A", "1", True), ("B", "2", True), ("C", "3", True), ("D", "4", False)],
        ),
        (
            parse_sshd_setenv,
            (
                "SetEnv\tA=1\nSetEnv=B=2\n setenv = \"C=two words\" D='3' # E=4\nMatch=all\nSetEnv"
                " F=5#6\nMatch\tUser x\nSetEnv G=7\n"
            ),
            [
                ("A", "1", True),
                ("B", "2", True),
                ("C", "two words", True),
                ("D", "3", True),
                ("F", "5#6", True),
                ("G", "7", False),
            ],
        ),
        (parse_enroot_env, "A=1\n#B=2\nC=${D}\n", [("A", "1", True), ("C", "${D}", False)]),
        (
            parse_containers_conf,
            (
                '[engine]\nenv = ["X=1"]\n[containers]\nenv = [\n "NCCL_A=1", # why\n'
                " 'NCCL_B=2',\n]\nother = [\"Y=1\"]\n"
            ),
            [("NCCL_A", "1", True), ("NCCL_B", "2", True)],
        ),
        (
            parse_containers_conf,
            (
                '[containers] # of all\nenv = [ # not ["X=1"]\n "A=1", # "X=2" ]\n # ]\n "B=#2]",'
                ' "C=3"\n] # "X=3"\nother = ["X=4"]\n[[b]]\nenv = ["X=5"]\n'
            ),
            [("A", "1", True), ("B", "#2]", True), ("C", "3", True)],
        ),
        (parse_containers_conf, '[containers]\nenv = ["A=1"]\nx = 1\n', [("A", "1", True)]),
    ],
)
def test_other_files_are_read_by_their_own_rules(parse, text, expected):
    assert values(parse(text)) == expected


def test_slurm_conf_names_the_task_prolog():
    text = (
        "ClusterName=x\nTaskProlog=/etc/slurm/task.sh # why\nNodeName=n"
        " TaskProlog=no\n#TaskProlog=/old\n"
    )
    assert parse_slurm_conf(text)["taskprolog"] == ("/etc/slurm/task.sh", 2)


def test_docker_container_tells_its_environment():
    text = json.dumps(
        {
            "Name": "/job",
            "State": {"Running": True},
            "Config": {"Env": ["NCCL_DEBUG=INFO", "TOKEN=x", 7, "odd"]},
        }
    )
    name, running, rows = parse_docker_container(text)
    assert (name, running, values(rows)) == (
        "job",
        True,
        [("NCCL_DEBUG", "INFO", True), ("TOKEN", "x", True)],
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"Config": []}', '{"State": 1, "Config": {"Env": "x"}}']
)
def test_odd_docker_container_is_a_value_error_or_empty(text):
    with contextlib.suppress(ValueError):
        assert parse_docker_container(text)[2] == []


def test_apptainers_prefix_sets_the_bare_name_inside():
    rows = container_prefixed(
        [Assignment("APPTAINERENV_NCCL_DEBUG", "INFO", 3), Assignment("NCCL_DEBUG", "WARN", 4)]
    )
    assert [(row.name, row.value, row.line) for row in rows] == [("NCCL_DEBUG", "INFO", 3)]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("NCCL_DEBUG", True),
        ("nccl_p2p_disable", True),
        ("#NCCL_DEBUG", True),
        ("export NCCL_DEBUG", True),
        ("export NCCL_API_KEY", False),
        ("export PATH", False),
        ("TORCH_NCCL_BLOCKING_WAIT", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("OMP_NUM_THREADS", True),
        ("LD_LIBRARY_PATH", True),
        ("HOME", False),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("WANDB_API_KEY", False),
        ("TORCH_HUB_TOKEN", False),
        ("NCCL_" + "X" * 300, False),
        ("PATH", False),
        ("NCCL_VERSION", False),
    ],
)
def test_only_named_variables_may_leave_the_node(name, allowed):
    assert is_allowed(name) is allowed


def test_of_a_path_list_only_our_libraries_are_reported():
    assert (
        allowed_value(
            "LD_LIBRARY_PATH", "/home/alice/secret/lib:/usr/local/cuda/lib64:/opt/nccl/lib"
        )
        == "/usr/local/cuda/lib64:/opt/nccl/lib"
    )
    assert allowed_assignments([Assignment("LD_LIBRARY_PATH", "/home/alice/lib", 1)]) == []
