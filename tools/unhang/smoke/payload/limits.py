"""Times and sizes that more than one part needs."""

from __future__ import annotations

VERSION = 1
# a step (one collective) that takes longer has stalled; collecting evidence included, the verdict
# exists within 20 s
STEP_S = 10.0
GRACE_S = 3.0  # for the peers of a dead rank to notice its end
# the bandwidth that a large message needs at least, even on the slowest network that is used for
# training
SLOW_BYTES_S = 0.5e9
START_S = 30.0  # for an interpreter to start and read this file, until its first event
EVIDENCE_S = 4.0  # for ranks to answer with stacks and recordings
# a rank that nothing has ended by then ends itself, from a thread that needs no interpreter
SELF_END_S = 20.0
STOPPED_S = 3.0  # how long a process may be in state T before it counts as stalled
POLL_S = 0.1
LINE_BYTES = 256 * 1024
MOST_READS = 10_000  # of pipes, before the loop that reads them ends
