"""Who acts on a rule or a cause."""

from __future__ import annotations

OWNERS = ("user", "sre", "facility", "vendor")  # of the job, the system, the room, the hardware
DEFAULT_OWNER = "sre"  # of a row that names none
