"""Sends the payload to a node inside one command line, so that nothing must be copied first and
nothing remains."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from unhang.smoke.node_plans import NodePlan
from unhang.smoke.programs import packed

# Writes the payload to a new folder and executes it. The payload removes the folder at its end.
# -I is for the loader alone: it keeps away a base64.py of the current folder, and the payload needs
# the user's PYTHONPATH.
LOADER = (
    "import base64,os,sys,tempfile,zlib\n"
    "p=os.path.join(tempfile.mkdtemp(prefix='unhang-smoke-'),'unhang_smoke.pyz')\n"
    "open(p,'wb').write(zlib.decompress(base64.b64decode(sys.argv[1])))\n"
    "os.execv(sys.executable,[sys.executable,p]+sys.argv[2:])\n"
)


def carried(program: Sequence[str], payload: bytes, *arguments: str) -> list[str]:
    """argv that runs the payload with these arguments. program: the node's interpreter, or a
    container's command that ends in one."""
    return [*program, "-I", "-c", LOADER, packed(payload), *arguments]


def node_arguments(plan: NodePlan) -> tuple[str, ...]:
    """The payload's arguments for one node."""
    return (
        "node",
        "--plan",
        json.dumps(
            {**plan.document, "remove_self": True, "watch_stdin": True},
            separators=(",", ":"),
        ),
    )


def shell_line(argv: Sequence[str]) -> str:
    """For a remote shell."""
    return shlex.join(argv)
