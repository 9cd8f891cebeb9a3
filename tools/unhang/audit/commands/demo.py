"""`unhang demo`: audits the recorded fleet, without GPU, ssh or compiler. A wheel carries the fleet
as an archive."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path

from unhang.audit.commands import audit
from unhang.core import project
from unhang.core.ansible import ansible_env, packed_pynvml
from unhang.core.commands.common_options import add_examples
from unhang.core.errors import UserError
from unhang.core.run.handed_over import HandedOver

EXAMPLES = """\
  unhang demo                      the first screen of 23 recorded nodes; nothing of this machine is read
  unhang demo --host gpu007 -v     every finding of one of them; the options are those of unhang audit"""  # noqa: E501
ARCHIVE = "demo.tar.gz"  # tools/setup/packed_project.py writes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    audit.add_arguments(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace, given: HandedOver) -> int:
    """As of `unhang audit`. Raises UserError."""
    if arguments.inventory:
        raise UserError(
            "the demo takes no --inventory: it is a recorded fleet; unhang audit reads yours"
        )
    if arguments.via == "auto":
        arguments.via = "ansible"  # there is nothing to choose, and no line about it
    arguments.inventory = [str(recorded_fleet(project.find_project()))]
    return audit.run(arguments, given)


def recorded_fleet(home: Path) -> Path:
    """The inventory of the recorded fleet: of a checkout, else unpacked once from the wheel's
    archive. Raises UserError."""
    inventory = home / "inventory" / "demo"
    if inventory.is_dir():
        return inventory
    archive = home / ARCHIVE
    if not archive.is_file():
        raise UserError(f"the recorded fleet is not at {archive}; next: {project.install_line()}")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    target = packed_pynvml.own_folder(ansible_env.links_folder(home).parent) / f"demo-{digest}"
    if not target.is_dir():
        unpacked = Path(tempfile.mkdtemp(prefix=".demo-", dir=target.parent))
        with tarfile.open(archive) as packed:
            # Its links lead nowhere on purpose: they are a node's own. Python before 3.11.4 has no
            # filters.
            packed.extraction_filter = getattr(tarfile, "tar_filter", None)
            packed.extractall(unpacked)  # noqa: S202 -- an archive of the wheel
        try:
            unpacked.replace(target)
        except OSError:  # another process was first
            shutil.rmtree(unpacked)
    return target / "inventory" / "demo"
