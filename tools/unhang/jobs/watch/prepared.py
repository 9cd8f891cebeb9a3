"""What `unhang watch` sets for a job that it starts, so that a hang leaves more behind: torch's
flight recorder, and a private folder for its dumps.

None of it changes what the job computes. What the user has set stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

EVENTS = "2000"  # torch's own default, where it records by default
NEW_NAMES = (2, 8)  # the first release that reads TORCH_FR_BUFFER_SIZE; it warns of the older name
SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# launchers whose ranks are here; srun, mpirun and deepspeed may start them where the folder is not
ON_THIS_MACHINE = ("torchrun", "python", "accelerate")


def prepared_environment(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """The variables to add for this command. folder: a private one, for the dumps that torch writes
    when a collective times out."""
    if any(environment.get(name) == "0" for name in SIZES):
        return {}
    version = torch_of(command[0], environment.get("PATH"))
    named = slice(None) if version is None else slice(0, 1) if version >= NEW_NAMES else slice(1, 2)
    added = (
        {} if any(environment.get(name) for name in SIZES) else dict.fromkeys(SIZES[named], EVENTS)
    )
    if Path(command[0]).name.rstrip("0123456789.") in ON_THIS_MACHINE and not any(
        environment.get(name) for name in DUMPS
    ):
        added |= dict.fromkeys(DUMPS[named], str(folder / "dump_rank_"))
    return added


def torch_of(program: str, path: str | None = None) -> tuple[int, int] | None:
    """(major, minor) of the torch beside a launcher, by the folders of its environment; None if
    that shows none or several."""
    found = shutil.which(program, path=path)
    home = Path(found).parent.parent if found else None
    names = (
        [entry.name for entry in home.glob("lib/python3*/site-packages/torch-*.dist-info")]
        if home
        else []
    )
    parts = names[0].removeprefix("torch-").split(".")[:2] if len(names) == 1 else []
    return (
        (int(parts[0]), int(parts[1]))
        if len(parts) == 2 and all(part.isdigit() for part in parts)
        else None
    )
