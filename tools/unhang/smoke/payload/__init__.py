"""The smoke test's payload: proves on the machines themselves, under the torch that users train
with, that a group of ranks can train together.

    python3 unhang_smoke.pyz node --plan JSON     starts this node's ranks, monitors them from
    outside, and ends them in every case
    python3 unhang_smoke.pyz survey               describes this node: addresses, routes, GPUs, a
    free port
    torchrun ... unhang_smoke.pyz                 one rank (also under srun, or by hand with RANK,
    WORLD_SIZE, MASTER_ADDR, MASTER_PORT)

It needs only torch and the standard library, Python >= 3.8, and is sent as one zip file
(payload_zip.py). Between these modules imports are relative; torch is imported inside functions, so
that the agent starts without it. It measures and never judges: it prints events as lines of JSON,
each with `e` (the kind of event); `unhang smoke` makes the verdict from them.
"""
