"""The smoke test's payload: proves on the machines themselves, under the torch that users train with, that a group of ranks can train together.

    python3 unhang_smoke.py node --plan JSON     starts this node's ranks, watches them from outside, ends them whatever happens
    python3 unhang_smoke.py survey               what this node is: addresses, routes, GPUs, a free port
    torchrun ... unhang_smoke.py                 one rank (also under srun, or by hand with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)

One file, torch and the standard library alone, Python >= 3.8, so that it can be copied, read and piped anywhere. It measures and never judges: what happened
leaves as lines of JSON, each with `e` (what kind); `unhang smoke` makes the verdict of them.
"""
