"""`unhang history diff A B` for two sides that are no runs: where the configuration of two groups,
nodes, machines or environments differs."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.audit.compare.comparing import compare
from unhang.audit.compare.rendering import (
    COLUMNS,
    render_comparison,
    rows_of,
    without_secrets_in,
)
from unhang.audit.compare.sides import read_side
from unhang.core.commands.common_options import (
    add_repeatable,
    add_value,
)
from unhang.core.commands.options import Options
from unhang.core.commands.row_output import show_rows
from unhang.core.errors import UserError

LAUNCHES = ("login", "ssh", "systemd", "slurm", "container")


def add_side_arguments(parser: argparse.ArgumentParser) -> None:
    sides = parser.add_argument_group(
        "two groups, nodes, files or environments instead of two runs"
    )
    add_value(sides, "--run", "RUN", "the run that contains the groups and nodes (default: latest)")
    add_repeatable(sides, "--fact", "FACT", "only these: driver, 'nccl.settings*'; repeatable")
    launch = f"how the job of the environment file starts: {', '.join(LAUNCHES)} (default: slurm)"
    sides.add_argument("--launch", choices=LAUNCHES, metavar="HOW", help=launch)


class SideOptions(Options, frozen=True):
    """sides: as they were typed; run, fact, launch: of add_side_arguments."""

    sides: list[str]
    run: str | None
    fact: list[str]
    launch: str | None
    format: str
    quiet: bool

    @property
    def are_asked_for(self) -> bool:
        """Whether what is compared are two sides, and not two runs."""
        return bool(self.run or self.fact or self.launch) or (
            len(self.sides) == 2 and not all(map(_is_run, self.sides))
        )


def _is_run(named: str) -> bool:
    path = Path(named)
    return (
        not path.is_file()
        and ":" not in named
        and (named == "latest" or named[:8].isdigit() or (path / "run.json").is_file())
    )


def show_sides(options: SideOptions) -> int:
    """0 nothing differs, 1 something does. Raises UserError."""
    if len(options.sides) != 2:
        raise UserError(f"two groups, nodes, files or runs are compared, not {len(options.sides)}")
    run = options.run or "latest"
    first, second = (read_side(one, run) for one in options.sides)
    facts = [one.strip() for given in options.fact for one in given.split(",") if one.strip()]
    found = compare(first, second, options.launch or "slurm", facts)
    shown = without_secrets_in(found)
    rows = rows_of(shown, options.format == "csv")
    show_rows(
        options.format, options.quiet, lambda width: render_comparison(shown, width), rows, COLUMNS
    )
    return int(bool(found.differences))
