"""Reads logs of several kinds as `unhang diagnose` does and prints rows of docs/benchmarks.md:
megabytes a second of one core, peak memory.

    python tests/bench/bench_diagnose.py [--megabytes N]

The logs are made as they are read, so that no disk is measured; the CPU is that of the child that
reads, without the making of the log.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measured_child import measured

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "module_utils")]

from unhang.jobs.diagnose.log_facts import gather_facts  # noqa: E402
from unhang.jobs.diagnose.logs.reading import Input, read_blocks  # noqa: E402
from unhang.jobs.diagnose.matching.scanning import Sieve, scan_blocks  # noqa: E402
from unhang.jobs.diagnose.matching.signatures import load_causes, load_signatures  # noqa: E402
from unhang.jobs.diagnose.ranking import rank_causes  # noqa: E402

RANKS, PER_HOST, CHANNELS = 512, 8, 24
MADE = 8 * 1024 * 1024  # so much is made, and read over and over with other numbers in it


def nccl_log(noise: random.Random) -> Iterator[str]:
    """NCCL_DEBUG=INFO of 512 ranks, interleaved: about 200 lines a rank, as NCCL 2.21 prints
    them."""
    lines: list[str] = []
    for rank in range(RANKS):
        host, device = f"gpu{rank // PER_HOST:03d}", rank % PER_HOST
        head = f"{host}:{40000 + rank}:{41000 + rank} [{device}] NCCL INFO "
        named = (
            f"{head}ncclCommInitRank comm 0x{noise.getrandbits(46):x} rank {rank} nranks {RANKS}"
            f" cudaDev {device} nvmlDev {device}"
        )
        named += f" busId {device + 1}b000 commId 0x5a5b5c"
        lines += [
            f"{head}Bootstrap : Using bond0:10.0.{rank // PER_HOST}.9<0>",
            f"{head}NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
            f"{head}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB bond0:10.0.{rank // PER_HOST}.9<0>",
            f"{head}Using network IB", f"{head}NVLS multicast support is available on dev {device}",
            f"{head}P2P Chunksize set to 524288",
            f"{named} - Init START",
            f"{head}Trees " + " ".join(f"[{channel}] {rank + 1}/-1/-1->{rank}->{rank - 1}" for channel in range(16)), f"{head}Connected all rings",
        ]  # fmt: skip
        for channel in range(CHANNELS):
            lines += [
                f"{head}Channel {channel:02d}/0 : {rank}[{device}] ->"
                f" {(rank + step) % RANKS}[{(device + step) % 8}] via P2P/CUMEM"
                for step in range(1, 5)
            ]
            lines.append(
                f"{head}Channel {channel:02d}/0 : {rank}[{device}] ->"
                f" {(rank + 8) % RANKS}[{device}] [send] via NET/IB/{device % 4}/GDRDMA"
            )
            lines.append(
                f"{head}Channel {channel:02d}/0 : {(rank - 8) % RANKS}[{device}] ->"
                f" {rank}[{device}] [receive] via NET/IB/{device % 4}/GDRDMA"
            )
        lines.append(f"{named} - Init COMPLETE")
    noise.shuffle(lines)
    yield from lines


def collective_log(noise: random.Random) -> Iterator[str]:
    """NCCL_DEBUG_SUBSYS=COLL: a line for each call, full of addresses."""
    for number in range(60_000):
        rank = noise.randrange(RANKS)
        comm = 0x55D000000000 + rank * 4096
        send, receive = noise.getrandbits(47), noise.getrandbits(47)
        yield (
            f"gpu{rank // 8:03d}:{40000 + rank}:{41000 + rank} [{rank % 8}] NCCL INFO AllReduce:"
            f" opCount {number:x} sendbuff 0x{send:x} recvbuff 0x{receive:x} count"
            f" {noise.randrange(1 << 20)} datatype 7 op 0 root 0 comm 0x{comm:x} [nranks={RANKS}]"
            f" stream 0x{noise.getrandbits(46):x}"
        )


def training_log(noise: random.Random) -> Iterator[str]:
    """Steps, progress bars redrawn in place, and a watchdog at last."""
    for step in range(70_000):
        yield (
            f"{{'loss': {noise.random():.4f}, 'grad_norm': {noise.random() * 9:.3f},"
            f" 'learning_rate': 1e-06, 'epoch': {step / 900:.2f}}}"
        )
        if step % 5 == 0:
            yield "\r".join(
                f"Epoch 1:  {percent}%|{'█' * (percent // 5)}| {percent}/100"
                f" [00:{percent % 60:02d}<00:10, 3.1it/s]"
                for percent in range(0, 99, 9)
            )
    for rank in range(8):
        yield (
            f"[rank{rank}]:[E105 10:31:12.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
            " collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1,"
            " NumelOut=1, Timeout(ms)=600000) ran for 600079 milliseconds before timing out."
        )


def new_words(noise: random.Random) -> Iterator[str]:
    """The worst honest case: no line is like another."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    for _ in range(80_000):
        yield " ".join("".join(noise.choices(letters, k=noise.randint(2, 9))) for _ in range(16))


class Again(io.RawIOBase):
    """The same text, as many megabytes of it as asked for."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.left, self.at = data, size, 0

    def read(self, size: int = -1) -> bytes:
        size = min(size, self.left, len(self.data) - self.at)
        piece = self.data[self.at : self.at + size]
        self.at = (self.at + size) % len(self.data)
        self.left -= size
        return piece


def made(lines: Callable[[random.Random], Iterator[str]]) -> bytes:
    """Several megabytes of whole lines, none made twice."""
    noise, text, size = random.Random(1), [], 0
    while size < MADE:
        for line in lines(noise):
            text.append(line)
            size += len(line) + 1
    return ("\n".join(text) + "\n").encode()


def read(data: bytes, size: int) -> dict[str, float | str]:
    """Reads it: seconds of CPU without loading the catalogue, lines, events and the first cause."""
    sieve, causes = Sieve(load_signatures()), load_causes()
    before = time.process_time()
    about = Input("log")
    scan = scan_blocks(read_blocks(Again(data, size), about), "log", sieve)
    ranked = rank_causes(gather_facts([scan]), causes)
    return {
        "cpu_s": time.process_time() - before, "lines": about.lines, "events": len(scan.events),
        "cause": ranked[0].id if ranked else "none",
    }  # fmt: skip


def main() -> None:
    """Prints one row for each kind of log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args()
    sys.stdout.write(
        "| diagnose | MB | CPU s | MB/s of one core | peak MB | lines | events |\n| --- | --- | ---"
        " | --- | --- | --- | --- |\n"
    )
    for name, lines in (
        ("NCCL log of 512 ranks", nccl_log), ("NCCL log of every collective", collective_log),
        ("training log with redrawn progress", training_log),
        ("text without two lines alike", new_words),
    ):  # fmt: skip
        data = made(lines)
        row = measured(lambda data=data: read(data, options.megabytes * 1_000_000))
        sys.stdout.write(
            f"| {name} | {options.megabytes} | {row['cpu_s']:.2f} |"
            f" {options.megabytes / row['cpu_s']:.0f} | {row['peak_mb']:.0f} | {row['lines']:,} |"
            f" {row['events']:,} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
