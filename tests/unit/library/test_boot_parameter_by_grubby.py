"""Parameters of the kernel's command line are added and removed with grubby; with a fake grubby
that behaves as on RHEL 9."""

from __future__ import annotations

import pytest
from fakes.node_tree import plant

from unhang_node.base import process
from unhang_node.change.boot import parameters as run
from unhang_node.change.journal.running_values import read_running, value_before
from unhang_node.change.journal.saved_states import begin_state
from unhang_node.change.rollback.restore import apply_restore, plan_restore
from unhang_node.change.rollback.running_values import kinds_of

GRUBBY = """#!/usr/bin/env python3
import pathlib, sys
kernels = [value for name, _, value in (argument.partition("=") for argument in sys.argv[1:]) if name == "--update-kernel"]
def named(number):
    return kernels == ["ALL"] or kernels == ["/boot/vmlinuz-5.14.0-%d.el9.x86_64" % number]
entries = pathlib.Path({folder!r}) / "entries"
rows = [line.split() for line in entries.read_text().splitlines()]
def without(row, words):  # "If an argument already exists the new value replaces the old values": grubby(8)
    keys = [word.partition("=")[0] for word in words if "=" in word]
    return [word for word in row if word in words or word.partition("=")[0] not in keys]
for argument in sys.argv[1:]:
    name, _, value = argument.partition("=")
    if name == "--args":
        rows = [without(row, value.split()) if named(number) else row for number, row in enumerate(rows)]
        rows = [row + [word for word in value.split() if word not in row and named(number)] for number, row in enumerate(rows)]
    if name == "--remove-args":
        rows = [[word for word in row if word not in value.split() or not named(number)] for number, row in enumerate(rows)]
    if argument == "--info=ALL":
        for number, row in enumerate(rows):
            print(f'index={{number}}\\nkernel="/boot/vmlinuz-5.14.0-{{number}}.el9.x86_64"\\nargs="{{" ".join(row)}}"\\nroot="UUID=1"\\ninitrd="/boot/x"\\n')
coming = pathlib.Path({folder!r}) / "coming"
if kernels == ["ALL"] and coming.exists():  # what entries of kernels to come take
    row = coming.read_text().split()
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        row = without(row, value.split()) + [value] if name == "--args" else [word for word in row if word != value] if name == "--remove-args" else row
    coming.write_text(" ".join(row) + "\\n")
if {works}:
    entries.write_text("".join(" ".join(row) + "\\n" for row in rows))
"""


@pytest.fixture
def entries(tmp_path, monkeypatch):
    """The file of boot entries that grubby changes: two kernels, one of which has the word
    already."""

    def put(works=True):
        program = tmp_path / "bin" / "grubby"
        program.parent.mkdir(exist_ok=True)
        program.write_text(GRUBBY.format(folder=str(tmp_path), works=works))
        program.chmod(0o755)

    put()
    monkeypatch.setitem(
        process.ENVIRONMENT, "PATH", f"{tmp_path / 'bin'}:{process.ENVIRONMENT['PATH']}"
    )
    place = tmp_path / "entries"
    place.write_text("ro quiet iommu=pt\nro quiet\n")
    return place, put


def test_each_entry_gets_the_words_and_loses_exactly_those_that_were_given(entries, tmp_path):
    place, _put = entries
    root = str(tmp_path / "node")
    assert run.missing_in_grubby(["iommu=pt", "quiet"]) == ["iommu=pt"]
    run.add_by_grubby(root, "iommu", ["iommu=pt"], "")
    assert place.read_text() == "ro quiet iommu=pt\nro quiet iommu=pt\n"
    assert run.missing_in_grubby(["iommu=pt"]) == []
    assert run.given_to_grubby(root, "iommu") == ["iommu=pt"]
    run.remove_by_grubby(root, "iommu", ["iommu=pt"], "")
    assert place.read_text() == "ro quiet\nro quiet\n"
    assert run.given_to_grubby(root, "iommu") == []


@pytest.mark.slow
def test_a_value_that_ours_replaces_comes_back_with_the_rollback_and_when_ours_is_taken_away(
    entries, tmp_path, monkeypatch
):
    place, _put = entries
    before = "ro quiet\nro iommu=soft\n"
    root = str(tmp_path / "node")
    plant(root, {"/etc/default/grub": "", "/proc/sys/kernel/random/boot_id": "b\n"})
    monkeypatch.setattr(run, "GRUBBY", ("/bin/sh",))  # there is a grubby, in another place
    for way in ("rollback", "absent"):
        place.write_text(before)
        state_id = begin_state(root, "host_tuning", way, [])[0]["id"]
        run.add_by_grubby(root, "iommu", ["iommu=pt"], state_id)
        assert place.read_text() == "ro quiet iommu=pt\nro iommu=pt\n"
        if way == "absent":
            run.remove_by_grubby(root, "iommu", ["iommu=pt"], state_id)
        else:
            for record in read_running(root, state_id):
                run.write_parameter(
                    record["name"], value_before(run.read_parameter(record["name"]), [record])
                )
        assert place.read_text() == before


def test_a_grubby_that_changes_nothing_is_not_believed(entries, tmp_path):
    _place, put = entries
    put(works=False)
    with pytest.raises(ValueError, match="a boot entry without iommu=pt"):
        run.add_by_grubby(str(tmp_path / "node"), "iommu", ["iommu=pt"], "")


def test_a_rollback_takes_the_words_from_the_entries_that_had_them_not_and_puts_the_files_back(
    entries, tmp_path, monkeypatch
):
    place, _put = entries
    root = str(tmp_path / "node")
    plant(
        root,
        {
            "/etc/default/grub": "GRUB_CMDLINE_LINUX=quiet\n",
            "/proc/sys/kernel/random/boot_id": "b\n",
        },
    )
    state_id = begin_state(root, "host_tuning", "run-1", [])[0]["id"]
    run.add_by_grubby(root, "iommu", ["iommu=pt"], state_id)
    # as grubby does on RHEL 9
    (tmp_path / "node/etc/default/grub").write_text("GRUB_CMDLINE_LINUX=quiet iommu=pt\n")
    [record] = read_running(root, state_id)
    zero, one = (f"/boot/vmlinuz-5.14.0-{number}.el9.x86_64" for number in (0, 1))
    assert (record["kind"], record["name"], record["value"], record["set"]) == (
        "boot_parameter",
        "iommu=pt",
        [zero],
        [[zero, one]],
    )
    monkeypatch.setattr(run, "GRUBBY", ("/bin/sh",))  # there is a grubby, in another place
    assert value_before(run.read_parameter("iommu=pt"), [record]) == [zero]
    run.write_parameter("iommu=pt", record["value"])
    assert place.read_text() == "ro quiet iommu=pt\nro quiet\n"
    assert run.read_parameter("iommu=pt") == [zero]
    assert "boot_parameter" in kinds_of(root)
    plan = plan_restore(root, state_id, lambda: None)
    assert "/etc/default/grub" in plan.files


def test_what_new_kernels_would_get_is_taken_away_with_the_rollback_too(
    entries, tmp_path, monkeypatch
):
    place, _put = entries
    root, coming = str(tmp_path / "node"), tmp_path / "coming"
    place.write_text("ro quiet\nro quiet\n")
    coming.write_text("ro quiet\n")
    plant(root, {"/etc/default/grub": "", "/proc/sys/kernel/random/boot_id": "b\n"})
    monkeypatch.setattr(run, "GRUBBY", ("/bin/sh",))  # there is a grubby, in another place
    state_id = begin_state(root, "host_tuning", "run-1", [])[0]["id"]
    run.add_by_grubby(root, "iommu", ["iommu=pt"], state_id)
    assert coming.read_text() == "ro quiet iommu=pt\n"
    plant(root, {"/etc/kernel/cmdline": "ro quiet iommu=pt\n"})  # made by grubby, which found none
    plan = plan_restore(root, state_id)
    assert plan.files["/etc/kernel/cmdline"][1] is None
    run.write_parameter("iommu=pt", read_running(root, state_id)[0]["value"])
    apply_restore(root, plan, 1)
    assert place.read_text() == "ro quiet\nro quiet\n"
    assert coming.read_text() == "ro quiet\n"
    assert not (tmp_path / "node/etc/kernel").exists()


def test_a_grubby_that_takes_nothing_away_is_not_believed(entries):
    _place, put = entries
    put(works=False)
    with pytest.raises(ValueError, match=r"grubby shows iommu=pt on /boot/vmlinuz-5\.14\.0-0"):
        run.write_parameter("iommu=pt", [])
