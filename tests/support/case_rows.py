"""The cases of a test file that are rows of the YAML file beside it: those of test_NAME.py are in
NAME.yml, each family under the name of its test or constant."""

from __future__ import annotations

from pathlib import Path

import yaml


def case_rows(test_file):
    path = Path(test_file)
    beside = path.with_name(path.stem.removeprefix("test_") + ".yml")
    return yaml.safe_load(beside.read_text(encoding="utf-8"))
