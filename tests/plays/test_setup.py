"""The set-up of every make target: from a new checkout to a working .venv, and one line when
something is missing."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from local_fleet import PROJECT, run

BASE_LIMIT_BYTES = 120 * 1000 * 1000
NEEDED = (
    "Makefile",
    "README.md",
    "LICENSE",
    "pyproject.toml",
    "requirements.txt",
    "requirements-test.txt",
    "requirements-dev.txt",
    "requirements-torch.txt",
    "requirements-build.txt",
    "ansible.cfg",
)
FOLDERS = ("library", "module_utils", "playbooks", "plugins", "tools")
SET_UP = PROJECT / "tools" / "setup" / "venv.sh"


def environment(**more):
    """The caller's environment, without its virtual environment and make's own variables."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "VIRTUAL_ENV", "PYTHON", "ANSIBLE_", "UNHANG_"))
    }
    return {**mine, **more}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the files that git would check out, as far as the set-up needs them."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in NEEDED:
        shutil.copy(PROJECT / name, folder / name)
    for name in FOLDERS:
        shutil.copytree(
            PROJECT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    (folder / "tests").mkdir()
    shutil.copy(PROJECT / "tests" / "tests.mk", folder / "tests")
    return folder


def make(checkout, *arguments):
    """A finished make command."""
    return run(
        ["make", "--no-print-directory", f"PYTHON3={sys.executable}", *arguments],
        environment(),
        checkout,
    )


def size_bytes(folder):
    """A folder's size on disk, as du counts."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_blocks * 512
        for parent, _, names in os.walk(folder)
        for name in names
    )


@pytest.mark.timeout(600)
def test_a_bare_checkout_becomes_a_working_environment_under_120_mb(checkout):
    done = make(checkout, "setup")
    assert done.returncode == 0, done.stderr
    assert size_bytes(checkout / ".venv") < BASE_LIMIT_BYTES
    programs = checkout / ".venv" / "bin"
    assert run([programs / "unhang", "--version"], environment(), "/").stdout.startswith("unhang ")
    assert run([programs / "python", "-m", "pip", "--version"], environment(), "/").returncode == 0
    assert run([programs / "python", "-m", "pip", "check"], environment(), "/").returncode == 0
    assert (checkout / ".cache" / "module_utils" / "pynvml.py").resolve().name == "pynvml.py"

    again = make(checkout, "setup")
    assert "installing" not in again.stderr

    # Interrupted: pip is missing, and there is no stamp.
    (checkout / ".venv" / ".ready").unlink()
    shutil.rmtree(next((checkout / ".venv" / "lib").glob("python*/site-packages/pip")))
    recovered = make(checkout, "setup")
    assert recovered.returncode == 0, recovered.stderr
    assert (checkout / ".venv" / ".ready").exists()


def test_make_alone_says_what_can_be_made(checkout):
    done = make(checkout)
    for target in ("audit", "demo", "test", "check", "bench", "bench-gpu", "collector", "clean"):
        assert f"  make {target} " in done.stdout


def set_up_with(folder, script):
    """The set-up with a stand-in for python3."""
    python = folder / "python3"
    python.write_text("#!/bin/sh\n" + script)
    python.chmod(0o755)
    return run(
        ["sh", SET_UP, folder / "venv", folder / "stamp", "requirements.txt"],
        environment(PYTHON3=str(python)),
        folder,
    )


WITHOUT_VENV = f"""
case "$*" in *ensurepip*) exit 1 ;; esac
exec {sys.executable} "$@"
"""
TOO_OLD = f"""
case "$*" in *"%d.%d"*) echo 3.9; exit 0 ;; *version_info*) exit 1 ;; esac
exec {sys.executable} "$@"
"""
PEP_668 = f"""
case "$*" in *"-m venv"*) mkdir -p venv/bin && cat >venv/bin/python <<'END'
#!/bin/sh
case "$*" in *--version*) exit 0 ;; *install*) echo 'error: externally-managed-environment' >&2; exit 1 ;; esac
END
chmod +x venv/bin/python; exit 0 ;; esac
exec {sys.executable} "$@"
"""
NO_NETWORK = PEP_668.replace(
    "error: externally-managed-environment",
    "ERROR: No matching distribution found for rich==15.0.0",
)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (WITHOUT_VENV, f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv"),
        (TOO_OLD, "is 3.9; install"),
        (PEP_668, "PEP 668"),
        (NO_NETWORK, "No matching distribution found for rich==15.0.0"),
    ],
)
def test_what_is_missing_is_one_line_that_says_what_to_install(tmp_path, script, message):
    done = set_up_with(tmp_path, script)
    assert done.returncode == 2
    complaints = [
        line
        for line in done.stderr.splitlines()
        if not line.startswith(("unhang: making", "unhang: installing"))
    ]
    assert len(complaints) == 1
    assert message in complaints[0]
    assert not (tmp_path / "stamp").exists()


def test_no_python_at_all_is_one_line(tmp_path):
    done = run(
        ["sh", SET_UP, "venv", "stamp", "requirements.txt"],
        environment(PYTHON3="no-such-python3"),
        tmp_path,
    )
    assert done.returncode == 2
    assert (
        done.stderr
        == "unhang: python3 is not on PATH; install it: apt-get install python3 python3-venv\n"
    )


def test_no_file_names_a_package_registry():
    for name in (
        "requirements.txt",
        "requirements-test.txt",
        "requirements-dev.txt",
        "requirements-torch.txt",
        "requirements-build.txt",
        "tools/setup/requirements.sh",
        "pyproject.toml",
        "Makefile",
    ):
        assert "://" not in (PROJECT / name).read_text().replace("https://www.apache.org", ""), name
    assert "index-url" not in (PROJECT / "requirements.txt").read_text()
