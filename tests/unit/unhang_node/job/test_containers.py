"""What container engines print, and which names are asked for."""

from __future__ import annotations

import pytest

from unhang_node.job.container_engines import parse_pid, pid_of_enroot, pid_of_instance
from unhang_node.job.containers import check_name
from unhang_node.job.views import inside_uid

INSTANCES = (
    '{"instances": [{"instance": "train", "pid": 4711, "img": "/images/torch.sif", "ip": "",'
    ' "logErrPath": "/e", "logOutPath": "/o"}]}'
)
ENROOT = """NAME           PID    COMM    STATE  STARTED  TIME   MNTNS       USERNS      COMMAND
pyxis_1234.0   4711   python  Sl     10:11    00:02  4026532001  4026532000  python train.py
pyxis_1234.0   4712   python  Sl     10:11    00:02  4026532001  4026532000  python train.py
saved
"""


def test_an_instance_of_apptainer_is_known_by_its_name():
    assert pid_of_instance(INSTANCES, "train") == 4711
    assert pid_of_instance(None, "train") is None
    with pytest.raises(ValueError, match="no instance of that name"):
        pid_of_instance(INSTANCES, "other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"instances": 7}',
        '{"instances": [7]}',
        '{"instances": [{"instance": "train", "pid": "rm -rf"}]}',
    ],
)
def test_an_answer_that_is_none_is_refused(text):
    with pytest.raises(ValueError):
        pid_of_instance(text, "train")


def test_a_container_of_enroot_is_known_by_its_first_process():
    assert pid_of_enroot(ENROOT, "pyxis_1234.0") == 4711
    assert pid_of_enroot(None, "train") is None
    for name in ("saved", "pyxis", "NAME"):
        with pytest.raises(ValueError):
            pid_of_enroot(ENROOT, name)


@pytest.mark.parametrize("text", ["", "-1", "<no value>", "1 2", "99999999999999"])
def test_what_is_no_process_id_is_refused(text):
    with pytest.raises(ValueError):
        parse_pid(text)


@pytest.mark.parametrize(
    "name",
    [
        "train",
        "k8s_trainer.1",
        "0123456789ab",
        "pid:[4026532649]",
        "mnt:[4026532649]",
        "4026532649",
    ],
)
def test_names_ids_and_namespaces_are_taken(name):
    check_name(name)


@pytest.mark.parametrize("name", ["--help", "", "a/b", "a b", "net:[4026532649]", "x" * 129, 7])
def test_other_words_are_refused(name):
    with pytest.raises(ValueError, match="must be the name or ID"):
        check_name(name)


def test_a_uid_of_the_node_is_another_one_inside_a_user_namespace():
    rootless = "         0       1000          1\n         1     100000      65536\n"
    assert [inside_uid(rootless, uid) for uid in (1000, 100000, 165535, 165536, 0)] == [
        0,
        1,
        65536,
        None,
        None,
    ]
    assert inside_uid("0 0 4294967295\n", 1000) == 1000
    assert inside_uid("nonsense", 0) is None
