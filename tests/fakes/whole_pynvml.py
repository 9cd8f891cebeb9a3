"""The collector as a command with the complete, installed nvidia-ml-py, for comparison with the
part of it in unhang-collect.pyz."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "module_utils"))

from unhang_node.facts.command import main

sys.exit(main(sys.argv[1:]))
