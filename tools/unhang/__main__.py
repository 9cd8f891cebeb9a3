"""`python -m unhang`, and `python3 FOLDER/tools/unhang` where nothing of it is installed, as of a
collection."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    tools = Path(__file__).resolve().parents[1]
    sys.path[0] = str(tools)
    sys.path += [str(tools.parent / name) for name in ("module_utils", "plugins/module_utils")]

from unhang.cli import main

sys.exit(main())
