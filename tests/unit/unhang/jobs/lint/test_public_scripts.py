"""What a reading of public scripts taught: names and values that are no fault there, and faults
that were missed."""

from __future__ import annotations

import pytest

from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.linting import find_files, lint_text

TESTS_OF_NCCL = """\
mpirun -np 16 \\
  -x NCCL_CUMEM_ENABLE=0 \\
  -x LD_LIBRARY_PATH=/opt/nccl/build/lib:$LD_LIBRARY_PATH \\
  /opt/nccl-tests/build/all_reduce_perf -b 8
"""
PYTHON = """\
env_vars = {
    "NCCL_NVLS_ENABLE": "0",  # to save memory
    "NCCL_IB_TIMEOUT": 99,
    "NCCL_DEBUG": "how much NCCL prints",
    "NCCL_NET": str,
}
"""


def graver(text, kind="shell"):
    """(line, rule) of what is a warning or an error."""
    return {
        (one.line, one.rule) for one in lint_text(text, kind, Context()) if one.severity != "info"
    }


@pytest.mark.parametrize("value", ["null", "~", "Null"])
def test_null_in_yaml_sets_nothing(value):
    assert (
        graver(
            f"env_vars:\n  NCCL_DEBUG: {value} # INFO to debug\n  NCCL_IB_TIMEOUT: {value}\n",
            "kubernetes",
        )
        == set()
    )
    assert graver("env_vars:\n  NCCL_DEBUG: 'null'\n", "kubernetes") == {(2, "wrong-value")}


def test_variable_of_the_script_itself_is_no_misspelling():
    assert graver('NCCL_DEBUG_FLAG="-x NCCL_DEBUG=INFO"\nmpirun ${NCCL_DEBUG_FLAG} ./a\n') == set()
    assert graver("NCCL_DEBUG_FLAG=1\n./a\n") == {(1, "unknown-name")}
    assert graver("export NCCL_DEBUG_FLAG=1\necho $NCCL_DEBUG_FLAG\n") == {(1, "unknown-name")}
    assert graver("NCCL_DEBUG_FLAG=1\nexport NCCL_DEBUG_FLAG\necho $NCCL_DEBUG_FLAG\n") == {
        (1, "unknown-name")
    }


@pytest.mark.parametrize(
    "line",
    [
        "nccl_exit=0",
        "nccl_output=$(run)",
        "export nccl_script=x.sh",
        "NCCL_version=2.21.5",
        "local nccl_run_count=1",
    ],
)
def test_lower_case_name_that_is_no_variable_of_nccl_is_the_scripts_own(line):
    assert lint_text(f"{line}\n", "shell", Context()) == []


def test_name_that_nccl_does_not_read_is_no_fault_where_the_script_itself_reads_it():
    assert graver('NCCL_TIMEOUT="${NCCL_TIMEOUT:-1800}"\ntimeout $NCCL_TIMEOUT ./a\n') == set()
    assert graver("nccl_timeout=1800\ntrain --timeout $nccl_timeout\n") == set()
    assert graver("export NCCL_TIMEOUT=1800\n") == {(1, "name-not-real")}
    assert graver("export nccl_debug=INFO\n") == {(1, "wrong-case")}


def test_name_like_no_variable_of_nccl_is_a_remark():
    found = lint_text("export NCCL_MY_OWN_WORDS=1\n", "shell", Context())
    assert [(one.rule, one.severity) for one in found] == [("unknown-name", "info")]


@pytest.mark.parametrize(
    "name", ["NCCL_IBEXT_DISABLE", "NCCL_SHARP_MAX_COMMS", "NCCL_PLUGIN_PATH", "NCCL_INIT_SCRIPT"]
)
def test_names_of_plug_ins_and_of_recipes_are_known(name):
    assert lint_text(f"export {name}=1\n", "shell", Context()) == []


def test_settings_of_one_test_of_nccl_are_an_experiment():
    assert graver(TESTS_OF_NCCL) == set()
    trains = TESTS_OF_NCCL.replace("nccl-tests/build/all_reduce_perf", "train.py")
    assert (2, "hides-fault") in graver(trains)
    assert graver("export NCCL_CUMEM_ENABLE=0\n" + TESTS_OF_NCCL) == {(1, "hides-fault")}
    named = "exe=all_reduce_perf\nmpirun -x NCCL_IB_DISABLE=1 build/$exe\n"
    assert graver(named) == set()
    assert graver(named + "torchrun train.py\n") == {(2, "hides-fault")}


def test_library_path_of_a_file_with_a_framework_is_checked_also_beside_nccl_tests():
    assert graver(TESTS_OF_NCCL + "torchrun train.py\n") == {(3, "foreign-libnccl")}


def test_ranges_and_releases_of_nccl_do_not_hold_for_rccl():
    text = "ENV NCCL_MIN_NCHANNELS=112\nENV NCCL_DEBUG=verbose\n"
    assert graver(f"FROM rocm/pytorch:latest\n{text}", "docker") == {(3, "wrong-value")}
    assert graver(f"FROM ubuntu:24.04\n{text}", "docker") == {
        (2, "wrong-value"),
        (2, "deprecated"),
        (3, "wrong-value"),
    }


def test_dictionary_of_python_that_a_launcher_hands_on_is_read():
    assert graver(PYTHON, "python") == {(2, "hides-fault"), (3, "wrong-value")}


@pytest.mark.parametrize(
    "line",
    ['env["NCCL_TIMEOUT"] = str(1)', "current_env['NCCL_TIMEOUT'] = '1'"],
)
def test_environment_that_python_makes_for_a_child_is_read(line):
    assert graver(f"{line}\n", "python") == {(1, "name-not-real")}
    assert graver(f"if {line.partition(' =')[0]} == '1':\n    pass\n", "python") == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCC_DEBUG", "NCCL_DEBUG"),
        ("NCLL_IB_HCA", "NCCL_IB_HCA"),
        ("NNCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    ],
)
def test_misspelt_prefix_is_found_where_the_rest_is_a_variable(name, meant):
    assert [
        (one.rule, one.severity, one.instead)
        for one in lint_text(f"export {name}=INFO\n", "shell", Context())
    ] == [("unknown-name", "warning", meant)]


def test_prefix_of_another_program_is_no_misspelling():
    assert lint_text("export NCL_ROOT=/opt/ncl NCC_HOME=/x\n", "shell", Context()) == []


def test_gpudirect_that_is_never_used_hides_a_fault():
    assert graver("export NCCL_NET_GDR_LEVEL=LOC\n") == {(1, "hides-fault")}
    assert graver("export NCCL_NET_GDR_LEVEL=PIX\n") == set()


def test_folder_reads_recipes_of_images_with_any_ending(tmp_path):
    for name in ("Dockerfile.base", "Containerfile.rocm-6", "notes.md"):
        (tmp_path / name).write_text("FROM x\n")
    assert sorted(path.name for path in find_files([str(tmp_path)])) == [
        "Containerfile.rocm-6",
        "Dockerfile.base",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#!/bin/bash\nNCCL_DEBUG=INFO\nsrun train\n", {(2, "not-exported")}),
        (
            "#!/bin/bash\n#SBATCH -N 2\nNCCL_SOCKET_IFNAME=ib0 # fabric\nsrun train\n",
            {(3, "not-exported")},
        ),
        ("NCCL_DEBUG=INFO\n", set()),  # a file that is sourced, or read as an environment
        ("#!/bin/bash\nNCCL_DEBUG=INFO\nexport NCCL_DEBUG\n", set()),
        ("#!/bin/bash\nset -a\nNCCL_DEBUG=INFO\n", set()),
        ("#!/bin/bash\nset -ea\nNCCL_DEBUG=INFO\n", set()),
        ("#!/bin/bash\nNCCL_DEBUG=INFO\nmpirun -x NCCL_DEBUG=$NCCL_DEBUG train\n", set()),
        ("#!/bin/bash\nexport A=1 \\\n  NCCL_DEBUG=INFO\n", set()),
        ("#!/bin/bash\nNCCL_DEBUG=INFO train\n", set()),
        ("#!/bin/bash\nNCCL_DEBUG=INFO \\\n  train\n", set()),
        ("#!/bin/bash\ncat > /etc/nccl.conf <<EOF\nNCCL_DEBUG=INFO\nEOF\n", set()),
        ("#!/bin/bash\nMY_OWN=INFO\n", set()),
    ],
)
def test_setting_that_a_script_keeps_to_itself_is_found(text, found):
    assert {one for one in graver(text) if one[1] == "not-exported"} == found
