"""--fix corrects only faults with one right answer: first as a diff, atomically, and a second run
changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from unhang import cli
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.fixing import fix_text
from unhang.jobs.lint.knowledge import load_knowledge
from unhang.jobs.lint.linting import lint_text
from unhang.jobs.lint.settings import KINDS

POD = (
    "env:\n- name: NCCL_SHM_DISABLE\n  value: {value} # of the guide\n- name: NCCL_DEBUG\n  value:"
    " INFO\n"
)


@pytest.mark.parametrize(("kind", "before", "after"), [
    ("shell", "export nccl_debug=INFO\r\n", "export NCCL_DEBUG=INFO\r\n"),
    ("shell", "export NCCL_P2P_LEVEL=sys\n", "export NCCL_P2P_LEVEL=SYS\n"),
    ("shell", "export NCCL_SOCKET_IFNMAE==eno1\n", "export NCCL_SOCKET_IFNAME==eno1\n"),
    ("shell", "mpirun -x NCCL_SHM_DISABLE='no' ./a # no\n",
    "mpirun -x NCCL_SHM_DISABLE='0' ./a # no\n"),
    ("slurm", "#SBATCH --export=ALL,NCCL_IB_DISABLE=false\n",
    "#SBATCH --export=ALL,NCCL_IB_DISABLE=0\n"),
    ("shell", "pip install torch==2.4.0\nexport NCCL_BLOCKING_WAIT=1\n",
    "pip install torch==2.4.0\nexport TORCH_NCCL_BLOCKING_WAIT=1\n"),
    ("shell", "pip install nvidia-nccl-cu12==2.21.5\nexport NCCL_MIN_NCHANNELS=4\n",
    "pip install nvidia-nccl-cu12==2.21.5\nexport NCCL_MIN_CTAS=4\n"),
    ("docker", "FROM x\nENV nccl_debug INFO\nENV NCCL_SHM_DISABLE=False\n",
    "FROM x\nENV NCCL_DEBUG INFO\nENV NCCL_SHM_DISABLE=0\n"),
    ("kubernetes", POD.format(value="false"), POD.format(value='"0"')),
    ("kubernetes", POD.format(value='"false"'), POD.format(value='"0"')),
    ("kubernetes", "- {name: NCCL_SHM_DISABLE, value: 'false'}\n",
    "- {name: NCCL_SHM_DISABLE, value: '0'}\n"),
    ("python", 'import os\nos.environ["NCCL_SHM_DISABLE"] = "False"\n',
    'import os\nos.environ["NCCL_SHM_DISABLE"] = "0"\n'),
    ("systemd", '[Service]\nEnvironment="NCCL_SHM_DISABLE=false" A=b\n',
    '[Service]\nEnvironment="NCCL_SHM_DISABLE=0" A=b\n'),
    ("nccl_conf", 'NCCL_DEBUG = WARN\nexport NCCL_NET="IB"\nNCCL_ALGO=Ring \n',
    "NCCL_DEBUG=WARN\nNCCL_NET=IB\nNCCL_ALGO=Ring\n"),
])  # fmt: skip
def test_what_has_one_right_answer_is_written_and_a_second_time_nothing(kind, before, after):
    fixed, fixes = fix_text(before, kind, Context())
    assert fixed == after and fixes
    assert fix_text(fixed, kind, Context()) == (after, [])


@pytest.mark.parametrize(("kind", "text"), [
    ("shell", "export NCCL_TIMEOUT=1200000\n"),
    ("shell", "export NCCL_P2P_DISABLE=1\n"),
    ("shell", "export NCCL_DEBUG=verbose\n"),
    ("shell", "export NCCL_SOCKET_IFNAME=docker0\n"),
    ("shell", "export NCCL_BLOCKING_WAIT=1\n"),
    ("shell", "export NCCL_MIN_NCHANNELS=4\n"),
    ("shell", "export nccl_debug=INFO # unhang: ignore\n"),
    ("nccl_conf", "NCCL_TOPO_FILE=~/topo.xml\n"),
    ("kubernetes", "      resources: {limits: {\n        nvidia.com/gpu: 8}}\n"),
])  # fmt: skip
def test_what_a_person_has_to_decide_is_left_alone(kind, text):
    assert fix_text(text, kind, Context()) == (text, [])


@pytest.mark.parametrize("text", [
    "export nccl_debug=INFO\necho $nccl_debug\n",
    "export nccl_debug=INFO\nexport NCCL_DEBUG=WARN\n",
    "export nccl_debug=INFO nccl_debug=WARN\n",
])  # fmt: skip
def test_variable_that_the_script_uses_elsewhere_keeps_its_name(text):
    assert fix_text(text, "shell", Context()) == (text, [])


@pytest.mark.parametrize("text", ["export NCCL_IB_DISABLE=true\n", "export NCCL_P2P_DSABLE=1\n"])
def test_repair_never_makes_a_setting_work_that_does_harm(text):
    assert fix_text(text, "shell", Context()) == (text, [])


def test_setting_is_named_right_also_where_its_value_stays_wrong():
    assert (
        fix_text("export nccl_ib_disable=true\n", "shell", Context())[0]
        == "export NCCL_IB_DISABLE=true\n"
    )


def test_only_the_rules_that_are_asked_for_are_repaired():
    text = "export nccl_debug=INFO\nexport NCCL_P2P_LEVEL=sys\n"
    assert (
        fix_text(text, "shell", Context(), lambda one: one.rule == "wrong-value")[0]
        == "export nccl_debug=INFO\nexport NCCL_P2P_LEVEL=SYS\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_repair_of_any_name_in_any_kind_of_file_adds_no_finding_and_is_done_once(kind):
    forms = {
        "docker": "ENV {}",
        "kubernetes": "- {}",
        "python": "os.environ['{}'] = '{}'",
        "nccl_conf": "{}",
        "systemd": "Environment={}",
    }
    names = list(load_knowledge().tables["nccl_variables"])[::9]
    for name in names:
        for spelt, value in ((name.lower(), "1"), (f"{name[:-2]}{name[-1]}", "1"), (name, "false")):
            form = forms.get(kind, "export {}")
            setting = (
                form.format(spelt, value) if kind == "python" else form.format(f"{spelt}={value}")
            )
            text = f"{'[Service]' if kind == 'systemd' else '# a'}\n{setting}\n"
            fixed, fixes = fix_text(text, kind, Context())
            assert len(fixed.splitlines()) == 2 and fix_text(fixed, kind, Context()) == (fixed, [])
            graver = [
                one
                for one in lint_text(fixed, kind, Context())
                if one.rule in ("hides-fault", "contradiction")
            ]
            assert not fixes or not graver


def run(capsys, *arguments):
    """(exit code, standard output)."""
    code = cli.main(["lint", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_diff_writes_nothing_and_fix_writes_what_it_shows(tmp_path, capsysbinary, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "job.sbatch"
    script.write_bytes("#!/bin/bash\nexport nccl_debug=INFO # äö\n".encode() + b"# \xff\n")
    script.chmod(0o750)
    before = script.read_bytes()
    code, shown = run(capsysbinary, "--diff", "job.sbatch")
    assert code == 0 and script.read_bytes() == before
    assert b"-export nccl_debug=INFO" in shown and b"+export NCCL_DEBUG=INFO" in shown
    code, written = run(capsysbinary, "--fix", "job.sbatch")
    assert code == 0 and b"+export NCCL_DEBUG=INFO" in written
    assert (
        script.read_bytes() == before.replace(b"nccl_debug", b"NCCL_DEBUG")
        and script.stat().st_mode & 0o777 == 0o750
    )
    assert run(capsysbinary, "--fix", "job.sbatch")[1].startswith(b"1 file: 0 errors")
    assert os.listdir(tmp_path) == ["job.sbatch"]


@pytest.mark.parametrize("option", ["--diff", "--fix"])
def test_findings_without_one_right_answer_are_reported_as_such(tmp_path, capsys, option):
    (tmp_path / "job.sh").write_text("export NCCL_P2P_DISABLE=1\n")
    assert (
        run(capsys, option, tmp_path / "job.sh")[1]
        .splitlines()[-1]
        .startswith("nothing to fix: no finding has one right answer")
    )
    (tmp_path / "job.sh").write_text("export NCCL_P2P_DISABLE=1 nccl_debug=INFO\n")
    assert "nothing to fix" not in run(capsys, option, tmp_path / "job.sh")[1]
    assert "nothing to fix" not in run(capsys, tmp_path / "job.sh")[1]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository, in whose folder jobs the test is."""
    (tmp_path / "repository/jobs").mkdir(parents=True)
    git(tmp_path / "repository", "init", "-q")
    monkeypatch.chdir(tmp_path / "repository/jobs")
    return tmp_path / "repository"


def git(folder, *arguments, patch=""):
    subprocess.run(
        ["git", *arguments],
        cwd=folder,
        input=patch.encode(),
        check=True,
        capture_output=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "text",
    [
        "set -e\nexport nccl_debug=INFO\npython a.py\n",
        "set -e\r\nexport nccl_debug=INFO\r\npython a.py\r\n", "set -e\r\nexport nccl_debug=INFO\n",
        "if true; then\n\texport nccl_debug=INFO # 1\xa0s\nfi\n", "set -e\nexport nccl_debug=INFO",
        "export nccl_debug=INFO\r\npython a.py",
        f"export nccl_debug=INFO\necho {'long ' * 1000}\n",
    ],
    ids=["plain", "CRLF", "both line ends", "tab and fixed blank", "no line end",
    "CRLF but no last one", "long line"],
)  # fmt: skip
def test_diff_is_one_that_git_applies(repository, capsys, monkeypatch, text):
    monkeypatch.chdir(repository)
    script = repository / "jobs/a.sh"
    script.write_bytes(text.encode())
    git(repository, "apply", patch=run(capsys, "--diff", "jobs/a.sh")[1])
    assert script.read_bytes() == text.replace("nccl_debug", "NCCL_DEBUG").encode()


@pytest.mark.parametrize("name", ["{0}/jobs/a b.sh", "../jobs/a b.sh", "./a b.sh", "link.sh"])
def test_diff_names_the_file_itself_below_the_working_directory(repository, capsys, name):
    script = repository / "jobs/a b.sh"
    script.write_text("export nccl_debug=INFO\n")
    (repository / "jobs/link.sh").symlink_to(script)
    shown = run(capsys, "--diff", name.format(repository))[1]
    assert shown.startswith("--- a/a b.sh\n+++ b/a b.sh\n")
    git(repository / "jobs", "apply", patch=shown)
    assert script.read_text() == "export NCCL_DEBUG=INFO\n"


def test_diff_of_a_file_elsewhere_is_for_the_root(repository, tmp_path, capsys):
    (tmp_path / "a.sh").write_text("export nccl_debug=INFO\n")
    shown = run(capsys, "--diff", tmp_path / "a.sh")[1]
    assert shown.startswith(f"--- a{tmp_path}/a.sh\n+++ b{tmp_path}/a.sh\n")
    git("/", "apply", patch=shown)
    assert (tmp_path / "a.sh").read_text() == "export NCCL_DEBUG=INFO\n"


def test_diff_shows_a_terminal_nothing_that_it_acts_upon(repository, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    (repository / "jobs/a\nb.sh").write_bytes(b"# \x1b[31mred\rover it\nexport nccl_debug=INFO\n")
    head, shown = run(capsys, "--diff", "a\nb.sh")[1].split("@@", 1)
    assert head == "--- a/a\\nb.sh\n+++ b/a\\nb.sh\n"
    assert "\x1b" not in shown and "\r" not in shown and " # \\x1b[31mred\\rover it\n" in shown


def test_only_findings_that_the_diff_leaves_are_printed_below_it(tmp_path, capsys):
    script = tmp_path / "a.sh"
    script.write_text("export nccl_debug=INFO\nexport NCCL_P2P_DISABLE=1\n")
    code, shown = run(capsys, "--diff", script)
    below = shown.partition(":2: ")[2].splitlines()
    assert (
        code == 1
        and "[wrong-case]" not in shown
        and below[0] == "warning: NCCL_P2P_DISABLE=1 [hides-fault]"
    )
    assert below[-2:] == [
        "1 file: 0 errors, 1 warning, 0 remarks",
        "the diff repairs 1 more finding",
    ]
    assert "[wrong-case]" in run(capsys, script)[1]
    assert run(capsys, "--fix", script)[1].endswith("1 file: 0 errors, 1 warning, 0 remarks\n")


def test_findings_and_exit_code_of_a_diff_are_those_after_its_repair(tmp_path, capsys):
    script = tmp_path / "a.sh"
    script.write_text("export nccl_nvls_enable=1\n")
    code, shown = run(capsys, "--diff", "-o", "json", script)
    assert code == 0 and [one["rule"] for one in json.loads(shown)["findings"]] == ["debug-only"]
    assert "[debug-only]" in run(capsys, "--diff", script)[1]
    assert (
        "wrong-case"
        not in run(capsys, "--diff", "-o", "csv", script)[1]
        + run(capsys, "--diff", "-o", "sarif", script)[1]
    )
    assert script.read_text() == "export nccl_nvls_enable=1\n"


@pytest.mark.parametrize(
    "text",
    [b"\xef\xbb\xbfexport nccl_debug=INFO\n", b"# \xff \x1b[31m\ra\nexport nccl_debug=INFO\n"],
    ids=["mark", "bytes"],
)
def test_diff_of_a_file_that_is_no_plain_text_is_one_that_git_applies(repository, text):
    script = repository / "jobs/a.sh"
    script.write_bytes(text)
    printed = subprocess.run(
        [sys.executable, "-m", "unhang", "lint", "--diff", "a.sh"],
        check=False,
        capture_output=True,
        timeout=120,
    )
    subprocess.run(["git", "apply"], input=printed.stdout, check=True, timeout=120)
    assert printed.returncode == 0 and script.read_bytes() == text.replace(
        b"nccl_debug", b"NCCL_DEBUG"
    )


def test_byte_order_mark_and_a_link_to_the_file_stay(tmp_path, capsys):
    (tmp_path / "real.sh").write_bytes(b"\xef\xbb\xbfexport nccl_debug=INFO\n")
    (tmp_path / "link.sh").symlink_to("real.sh")
    run(capsys, "--fix", tmp_path / "link.sh")
    assert (tmp_path / "link.sh").is_symlink() and (
        tmp_path / "real.sh"
    ).read_bytes() == b"\xef\xbb\xbfexport NCCL_DEBUG=INFO\n"


def test_json_says_what_was_written_and_what_could_be(tmp_path, capsys):
    script = tmp_path / "a.sh"
    script.write_text("export nccl_debug=INFO\n")
    row = {
        "file": str(script),
        "line": 1,
        "rule": "wrong-case",
        "found": "nccl_debug=INFO",
        "now": "NCCL_DEBUG",
    }
    assert json.loads(run(capsys, "--diff", "-o", "json", script)[1])["fixable"] == [row]
    answer = json.loads(run(capsys, "--fix", "-o", "json", script)[1])
    assert answer["fixed"] == [row] and answer["findings"] == []


def test_both_options_at_once_are_refused_and_nothing_is_written(tmp_path, capsys):
    script = tmp_path / "a.sh"
    script.write_text("export nccl_debug=INFO\n")
    assert (
        run(capsys, "--fix", "--diff", script)[0] == 2
        and script.read_text() == "export nccl_debug=INFO\n"
    )
