"""What is kept of the catalogue is what reading and compiling it gives; nothing stale, damaged or
of another user's is ever taken."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.core import kept_files
from unhang.core.catalogue.kept_yaml import read_yaml
from unhang.core.catalogue.rule_files import own_folders
from unhang.core.strict_yaml import load_yaml

HOME = Path(__file__).resolve().parents[2]
RULE = """
tables:
  limits:
    title: limits
    key: name
    as_of: 2026-01-01
    confidence: documented
    sources: [{url: "https://example.org/limits", says: limits}]
    rows: [{name: threads, most: 100}]
rules:
  - id: too-many-threads
    title: Too many threads
    severity: info
    scope: node
    applies: node.uptime_s is known
    when: limits.swap_total_bytes > tables.limits.threads.most
    expected: no more than 100
    found: "swap_total_bytes is {{ limits.swap_total_bytes }}"
    remedy: {person: Look at it.}
    sources: [{url: "https://example.org/threads", says: no more}]
    confidence: documented
    examples:
      match: [{node: {uptime_s: 5}, limits: {swap_total_bytes: 101}}]
      near_miss: [{node: {uptime_s: 5}, limits: {swap_total_bytes: 100}}]
"""
PROGRAM = """
import json, sys
from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, verdict_of
from unhang.core.run.documents import to_fragment
found = load_catalogue()
fragment = {"node": {"uptime_s": 5}, "limits": {"swap_total_bytes": 101}}
view = catalogue_view(found.tables)
rules = [[one.id, one.row["found"], verdict_of(one, fragment, view)] for one in found.rules]
print(json.dumps([rules, {name: dict(rows) for name, rows in found.tables.items()}, list(found.faults), dict(found.tables.get("limits", {}))]))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one rule and one table."""
    top = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HOME / "tools" / "unhang", top / "tools" / "unhang", ignore=ignored)
    shutil.copytree(HOME / "module_utils", top / "module_utils", ignore=ignored)
    for data in (top / "tools" / "unhang").glob("*/catalogue/*/"):
        if data.is_dir():
            shutil.rmtree(data)
    (top / "playbooks").mkdir()
    (top / "playbooks" / "audit.yml").write_text("[]\n")
    (top / "tools" / "unhang" / "audit" / "catalogue" / "rules").mkdir()
    rules_of(top).write_text(RULE)
    return top


def rules_of(top: Path) -> Path:
    return top / "tools" / "unhang" / "audit" / "catalogue" / "rules" / "own.yml"


def kept_of(top: Path) -> Path:
    (found,) = (top / ".cache" / "kept").iterdir()
    return found


def started(top: Path, **environment: str) -> subprocess.Popen:
    path = f"{top / 'tools'}{os.pathsep}{top / 'module_utils'}"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip


def read(top: Path, **environment: str) -> list:
    """What a start of the program makes of the catalogue."""
    with started(top, **environment) as program:
        answer = program.communicate()[0]
    assert program.returncode == 0
    return json.loads(answer)


def poison(
    path: Path, old: bytes = b"swap_total_bytes is", new: bytes = b"swap_total_bytes WAS"
) -> None:
    """Another content under the same key, with the digest that belongs to it: who can write this
    file can do so."""
    data = path.read_bytes()
    head = len(kept_files.MAGIC) + kept_files.KEY_BYTES
    content = data[head + kept_files.KEY_BYTES :].replace(old, new)
    assert content != data[head + kept_files.KEY_BYTES :]
    path.write_bytes(data[:head] + hashlib.sha256(content).digest() + content)


def test_values_and_places_of_a_kept_file_are_those_of_the_file():
    path = own_folders()[0] / "nccl" / "settings.yml"
    read_yaml(path)
    content, places = load_yaml(path)
    again = read_yaml(path)
    assert again.content == content
    deep = next(one for one in places if len(one) > 4)
    assert [again.places[one] for one in ((), ("rules", 1), deep)] == [
        places[one] for one in ((), ("rules", 1), deep)
    ]
    assert deep in again.places
    assert ("rules", 1, "no-such-key") not in again.places
    assert dict(again.places) == dict(places)


def test_the_second_start_takes_what_the_first_has_kept(checkout):
    first = read(checkout)
    assert first[0] == [
        ["too-many-threads", "swap_total_bytes is {{ limits.swap_total_bytes }}", "fail"]
    ]
    before = kept_of(checkout).stat().st_ino
    assert read(checkout) == first
    assert kept_of(checkout).stat().st_ino == before, "nothing is written again"
    poison(kept_of(checkout))
    assert read(checkout)[0][0][1] == "swap_total_bytes WAS {{ limits.swap_total_bytes }}", (
        "else this test would not see what the others refuse"
    )


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            "swap_total_bytes is",
            "swap_total_bytes has",
            ["too-many-threads", "swap_total_bytes has {{ limits.swap_total_bytes }}", "fail"],
        ),
        (
            "most: 100}",
            "most: 500}",
            ["too-many-threads", "swap_total_bytes is {{ limits.swap_total_bytes }}", "pass"],
        ),
        (
            "limits.swap_total_bytes > tables",
            "limits.swap_total_bytes < tables",
            ["too-many-threads", "swap_total_bytes is {{ limits.swap_total_bytes }}", "pass"],
        ),
    ],
)
def test_a_changed_file_is_read_anew(checkout, old, new, found):
    read(checkout)
    text = rules_of(checkout).read_text()
    state = rules_of(checkout).stat()
    rules_of(checkout).write_text(text.replace(old, new))
    # no date tells of the change
    os.utime(rules_of(checkout), ns=(state.st_atime_ns, state.st_mtime_ns))
    assert read(checkout)[0] == [found]
    assert read(checkout)[0] == [found]


@pytest.mark.parametrize(
    "name",
    [
        "__init__.py",
        "core/strict_yaml.py",
        "core/strict_json.py",
        "core/kept_files.py",
    ],
)
def test_other_code_takes_nothing_that_was_kept(checkout, name):
    first = read(checkout)
    poison(kept_of(checkout), b"limits", b"limitS")
    changed = checkout / "tools" / "unhang" / name
    text = changed.read_text()
    changed.write_text(text.replace("0.2.0", "0.2.1") if name == "__init__.py" else text + "\n")
    assert read(checkout) == first


def test_a_damaged_file_is_made_again(checkout):
    first = read(checkout)
    whole = kept_of(checkout).read_bytes()
    for place in (
        0,
        len(kept_files.MAGIC) + 3,
        len(kept_files.MAGIC) + kept_files.KEY_BYTES + 3,
        len(whole) // 2,
        len(whole) - 1,
    ):
        kept_of(checkout).write_bytes(
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        )
        assert read(checkout) == first
        assert kept_of(checkout).read_bytes() == whole
    for damaged in (b"", whole[:40], whole[:-1], whole + b" "):
        kept_of(checkout).write_bytes(damaged)
        assert read(checkout) == first
        assert kept_of(checkout).read_bytes() == whole


def readable_by_others(path: Path) -> None:
    path.chmod(0o640)


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, -1)


def a_link(path: Path) -> None:
    elsewhere = path.parents[2] / path.name
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("change", [readable_by_others, of_another_user, a_link])
def test_a_file_that_another_user_may_have_written_is_not_taken(checkout, change):
    first = read(checkout)
    poison(kept_of(checkout), b"limits", b"limitS")
    change(kept_of(checkout))
    assert read(checkout) == first
    path = kept_of(checkout)
    assert (path.lstat().st_mode, path.stat().st_uid) == (0o100600, os.geteuid()), (
        "one of the user's own has taken its place"
    )


@pytest.mark.parametrize("change", [readable_by_others, of_another_user])
def test_a_folder_that_another_user_may_write_to_is_not_used(checkout, change):
    first = read(checkout)
    poison(kept_of(checkout), b"limits", b"limitS")
    path = kept_of(checkout)
    before = path.read_bytes()
    change(checkout / ".cache" / "kept")
    assert read(checkout) == first
    assert path.read_bytes() == before, "nothing is written there either"


def test_without_a_folder_to_write_to_nothing_is_kept(checkout, tmp_path):
    (checkout / ".cache").write_text("no folder\n")
    first = read(checkout)
    assert first[0][0][2] == "fail"
    (checkout / ".cache").unlink()
    assert read(checkout) == first


def test_an_installed_package_keeps_below_the_users_own_caches(checkout, tmp_path):
    (checkout / "playbooks" / "audit.yml").unlink()
    first = read(checkout, XDG_CACHE_HOME=str(tmp_path / "caches"))
    (folder,) = (tmp_path / "caches" / "unhang").iterdir()
    assert folder.name.startswith("kept-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [one.is_file() for one in folder.iterdir()] == [True]
    assert not (checkout / ".cache").exists()
    (tmp_path / "no-folder").write_text("")
    assert read(checkout, XDG_CACHE_HOME=str(tmp_path / "no-folder")) == first


def test_starts_at_the_same_time_do_not_disturb_each_other(checkout):
    programs = [started(checkout) for _ in range(4)]
    answers = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * 4
    assert len(set(answers)) == 1
    assert kept_of(checkout).is_file()
    assert json.dumps(read(checkout)) == answers[0].strip()


def test_a_catalogue_at_fault_is_not_kept(checkout):
    rules_of(checkout).write_text(
        RULE.replace("limits.swap_total_bytes > tables", "limits.swap_totals > tables")
    )
    first = read(checkout)
    assert "swap_totals" in first[2][0]
    assert [path.name.partition("-")[0] for path in (checkout / ".cache" / "kept").iterdir()] == [
        "audit"
    ]
    assert read(checkout) == first


def test_a_users_rules_are_judged_beside_kept_ones(tmp_path):
    load_catalogue()
    (tmp_path / "more.yml").write_text(RULE)
    mine = load_catalogue([tmp_path])
    assert mine.faults == ()
    assert mine.rules[-1].id == "too-many-threads"
    (tmp_path / "more.yml").write_text(
        RULE.partition("rules:")[0].replace("limits:\n    title", "xids:\n    title")
        + "rules: []\n"
    )
    assert "more.yml:3: the table xids is already there at " in load_catalogue([tmp_path]).faults[0]
