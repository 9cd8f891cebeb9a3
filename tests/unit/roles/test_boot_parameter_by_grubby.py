"""Words of the kernel's command line given and taken through grubby, which a program in its place plays; its answers are as RHEL 9's."""

from __future__ import annotations

import pytest

from unhang_node.change.boot import parameter_run as run
from unhang_node.change.host import command as host_command

GRUBBY = """#!/usr/bin/env python3
import pathlib, sys
entries = pathlib.Path({folder!r}) / "entries"
rows = [line.split() for line in entries.read_text().splitlines()]
for argument in sys.argv[1:]:
    name, _, value = argument.partition("=")
    if name == "--args":
        rows = [row + [word for word in value.split() if word not in row] for row in rows]
    if name == "--remove-args":
        rows = [[word for word in row if word not in value.split()] for row in rows]
    if argument == "--info=ALL":
        for number, row in enumerate(rows):
            print(f'index={{number}}\\nkernel="/boot/vmlinuz-5.14.0-{{number}}.el9.x86_64"\\nargs="{{" ".join(row)}}"\\nroot="UUID=1"\\ninitrd="/boot/x"\\n')
if {works}:
    entries.write_text("".join(" ".join(row) + "\\n" for row in rows))
"""


@pytest.fixture
def entries(tmp_path, monkeypatch):
    """The file of boot entries that grubby changes: two kernels, one of which has the word already."""

    def put(works=True):
        program = tmp_path / "bin" / "grubby"
        program.parent.mkdir(exist_ok=True)
        program.write_text(GRUBBY.format(folder=str(tmp_path), works=works))
        program.chmod(0o755)

    put()
    monkeypatch.setitem(host_command.ENVIRONMENT, "PATH", f"{tmp_path / 'bin'}:{host_command.ENVIRONMENT['PATH']}")
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


def test_a_grubby_that_changes_nothing_is_not_believed(entries, tmp_path):
    _place, put = entries
    put(works=False)
    with pytest.raises(ValueError, match="expected iommu=pt on every boot entry"):
        run.add_by_grubby(str(tmp_path / "node"), "iommu", ["iommu=pt"], "")
