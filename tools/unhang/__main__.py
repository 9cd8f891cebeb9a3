"""`python -m unhang`."""

from __future__ import annotations

import sys

from unhang.cli import main

sys.exit(main())
