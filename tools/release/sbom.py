"""Writes the bill of materials of an installed unhang (CycloneDX 1.6, JSON): each package with
version, licence and dependencies.

    python -P tools/release/sbom.py PYTHON TARGET

PYTHON: the interpreter of an environment into which the wheel was installed. The same environment
gives the same bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from unhang import __version__

PROJECT = Path(__file__).resolve().parents[2]
VERSION = "1.6"  # of CycloneDX
# of packages whose metadata has it in words that are no SPDX expression
UNSAID = {"ahocorasick_rs": [{"license": {"id": "Apache-2.0"}}]}


def write_sbom(python: Path, target: Path) -> Path:
    """Writes the document, checked against CycloneDX's own schema. Raises SystemExit when there is
    none to write."""
    tool = [
        sys.executable,
        "-P",
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        str(PROJECT / "pyproject.toml"),
        "--mc-type",
        "application",
    ]
    done = subprocess.run(
        [*tool, "--spec-version", VERSION, "--of", "JSON", "--output-reproducible", str(python)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(
            f"cyclonedx-py could not read the environment of {python}: {done.stderr.strip()[-300:]}"
        )
    document = json.loads(done.stdout)
    for one in document["components"]:
        one.setdefault("licenses", UNSAID.get(one["name"], []))
    # pyproject.toml has only the place of the version
    document["metadata"]["component"]["version"] = __version__
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if faults := schema_faults(text):
        raise SystemExit(f"the document is not CycloneDX {VERSION}: {faults}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def schema_faults(text: str) -> str:
    """Where a document violates CycloneDX's schema; "" where it does not."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return str(JsonStrictValidator(SchemaVersion.from_version(VERSION)).validate_str(text) or "")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: sbom.py PYTHON TARGET")
    sys.stdout.write(f"{write_sbom(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
