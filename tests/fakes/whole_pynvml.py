"""The collector as a command with nvidia-ml-py whole, as it is installed; to compare with the part of it that unhang-collect.pyz carries."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "module_utils"))

from unhang_node.command import main

sys.exit(main(sys.argv[1:]))
