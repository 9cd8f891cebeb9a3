"""Runs the phases of one rank."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from .board import Board
from .events import emit
from .limits import GRACE_S
from .operations import OPERATIONS
from .phases import PHASE_LIMIT_S, PHASES, phase_limit_s, phases_of
from .recording import read_encoded, read_tail, recording_path, write_flight_recording
from .run import Failed, Run


def run_rank(
    plan: dict[str, Any], place: tuple[int, int, int, int], descriptor: int, folder: str
) -> int:
    """Runs the phases; the exit code: 0 all well, 1 a phase failed, 3 stalled."""
    run = Run(plan, place, descriptor, folder)
    run.phases = tuple(phases_of(plan))
    with contextlib.suppress(OSError, AttributeError):
        # PR_SET_PTRACER, any process of this user: py-spy is not an ancestor of the ranks
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))
    faulthandler.enable(file=run.stacks)
    faulthandler.register(signal.SIGUSR1, file=run.stacks, all_threads=True)
    threading.Thread(target=keep_watch, args=(run,), daemon=True).start()
    for name in run.phases:
        # A wrong result does not end the run before all operations were tried, because only all
        # results together show whose data is wrong.
        if not run_phase(run, name) and (name not in OPERATIONS or run.last_status != "fail"):
            leave(run)
            return 1
    run.phase, run.phase_until = "end", time.monotonic() + 30
    run.step("leave the group")
    if run.dist.is_initialized():
        run.dist.destroy_process_group()
    leave(run)
    faulthandler.cancel_dump_traceback_later()
    run.event("rank_end")
    return 0


def leave(run: Run) -> None:
    """Rank 0 serves the store, so it leaves last; but it does not wait long for ranks that never
    leave."""
    if run.store is None:
        return
    with contextlib.suppress(RuntimeError):  # the store's server is gone, so no rank can read it
        run.store.add("left", 1)
        until = time.monotonic() + GRACE_S
        while run.rank == 0 and run.store.add("left", 0) < run.world and time.monotonic() < until:
            time.sleep(0.02)


def run_phase(run: Run, name: str) -> bool:
    """Announces a phase, runs it, and reports its result. False if the phase failed."""
    limit_s = phase_limit_s(run.plan, name)
    run.phase, run.phase_until = name, time.monotonic() + limit_s
    run.step("begin", limit_s if name in PHASE_LIMIT_S else None)
    run.event("phase_begin", limit_s=limit_s)
    began = time.monotonic()
    run.longest_steps()
    try:
        result = PHASES[name](run) or {}
    except Failed as problem:
        run.last_status = "fail"
        run.event(
            "phase_end",
            status="fail",
            duration_s=round(time.monotonic() - began, 3),
            message=str(problem),
            result=problem.more,
        )
        return False
    except Exception as problem:
        # An error of torch is a result about the machine here: it becomes an event that begins with
        # the error's type.
        run.last_status = "error"
        message = "%s: %s" % (type(problem).__name__, " ".join(str(problem).split())[:600])
        run.event(
            "phase_end",
            status="error",
            duration_s=round(time.monotonic() - began, 3),
            message=message,
            result={},
            seq=run.board.entered,
        )
        return False
    status = "skip" if "skip" in result else "ok"
    run.event("phase_end", status=status, duration_s=round(time.monotonic() - began, 3), message=result.get("skip"), result=result,  # noqa: E501
              steps=run.longest_steps())  # fmt: skip
    return True


def keep_watch(run: Run) -> None:
    """Answers the agent's request for a dump; without an agent, reports a stall itself and ends the
    rank."""
    while True:
        time.sleep(0.2)
        if run.board.flag(Board.ASKED) and not run.board.flag(Board.ANSWERED):
            # the signal stays pending while the main thread hangs in the kernel
            if os.fstat(run.stacks.fileno()).st_size == 0:
                faulthandler.dump_traceback(file=run.stacks, all_threads=True)
            write_flight_recording(run)
            run.board.flag(Board.ANSWERED, 1)
        state = run.board.read()
        if (
            not run.plan.get("watched")
            and time.monotonic() > min(state["until"], state["phase_until"]) > 0
        ):
            write_flight_recording(run)
            faulthandler.dump_traceback(file=run.stacks, all_threads=True)
            emit(run.descriptor, "stall", host=run.host, **own_evidence(run, state))
            shutil.rmtree(run.folder, ignore_errors=True)
            os._exit(3)


def own_evidence(run: Run, state: dict[str, Any]) -> dict[str, Any]:
    """A rank's report of its own stall, without an agent."""
    return {"rank": run.rank, "phase": state["phase"], "step": state["step"], "seq": state["seq"], "done": state["done"], "reason": "deadline",  # noqa: E501
            "state": "S", "stack": read_tail(run.stacks.name),
            "flight_recorder": read_encoded(recording_path(run.folder, run.rank))}  # fmt: skip


def leading_number(text: str) -> int:
    """8 of "8" and of Slurm's "8(x2)". Raises ValueError."""
    found = re.match(r"\d+", text)
    return int(found.group() if found else text)


def rank_place(environment: Mapping[str, str]) -> tuple[int, int, int, int]:
    """(rank, world, local rank, local world) as torchrun, srun or a person set them. Raises
    Failed."""
    for names in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ):
        if names[0] in environment and names[1] in environment:
            try:
                rank, world, local_rank, local_world = (
                    leading_number(environment.get(name, default))
                    for name, default in zip(names, ("0", "1", "0", "1"))
                )
                return rank, world, local_rank, local_world
            except ValueError:
                raise Failed(
                    "%s must be whole numbers, and are %s"
                    % (", ".join(names), [environment.get(name) for name in names])
                ) from None
    raise Failed("RANK and WORLD_SIZE are not set; start it with torchrun, srun or unhang smoke")
