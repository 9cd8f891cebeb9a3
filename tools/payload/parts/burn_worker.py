"""The burn-in's worker: one process for each GPU."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from .burn_collectives import Collectives
from .burn_memory import PATTERNS, Memory
from .burn_products import KINDS, Product, is_fault, make_product
from .context import begin_context
from .events import emit

MOST_RESULTS = 16  # of products that wait for their check, so that a wrong one still exists and can be examined
BATCH_S = 0.5  # how long the products of one batch take before they are checked; a signal is handled after that
SIZES = {"cuda": (8192, 16384, 2**30, 2**26), "small": (4096, 8192, 2**28, 2**24), "cpu": (64, 64, 2**18, 2**12)}  # rows, inner, block bytes, summed elements
SMALL_BYTES = 36 * 2**30  # a GPU with less memory uses the small sizes: inputs, results and sums of the others need 12 GiB
DRILL_PLACE, DRILL_BIT = 77, 5
MEMORY, COLLECTIVE = "memory", "collective"
MOST_REPORTED = 20  # wrong results that are reported one by one; all of them are counted


class Stop(Exception):
    """A signal requested the end."""


class Worker:
    """plan: of the burn-in; number: of the GPU among those under test. done: work done so far, by type."""

    def __init__(self, plan: dict[str, Any], number: int, descriptor: int) -> None:
        self.plan, self.number, self.descriptor = plan, number, descriptor
        self.done: dict[str, dict[str, Any]] = {}
        self.round, self.reported, self.stopped = 0, 0, False
        drill = plan.get("drill") or {}
        self.drill = str(drill["where"]) if drill.get("gpu") == number else None
        import torch

        self.torch: Any = torch
        torch.set_num_threads(1 if plan["device"] == "cpu" else 4)
        self.device = torch.device("cuda", number) if plan["device"] == "cuda" else torch.device("cpu")
        size = self.device.type
        if size == "cuda" and torch.cuda.get_device_properties(self.device).total_memory < SMALL_BYTES:
            size = "small"
        self.rows, self.inner, self.block_bytes, self.count = SIZES[size]

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this GPU."""
        emit(self.descriptor, kind, gpu=self.number, round=self.round, **fields)

    def prepare(self) -> None:
        """Prepares device, types, process group and memory in this order: the memory patterns use all memory that is free then."""
        torch = self.torch
        about: dict[str, Any] = {"torch": torch.__version__, "uuid": None, "model": "cpu"}
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            known = torch.cuda.get_device_properties(self.device)
            about.update(uuid="GPU-%s" % getattr(known, "uuid", "unknown"), model=known.name, cuda=torch.version.cuda)
            # Partial sums of split products must be added in float32 too: in the type of the result they would be rounded.
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self.event("device", pid=os.getpid(), **about)
        self.products: list[tuple[Product, float]] = []
        for name in self.plan.get("types") or KINDS:
            self.check_signal()
            product, report = make_product(torch, self.device, name, self.rows, self.inner)
            self.event("type", **report)
            if product:
                self.products.append((product, report["one_s"]))
        self.group = Collectives(torch, self.device, (self.number, self.plan["nproc"]), self.plan["meeting"], self.count)
        if self.device.type == "cuda":
            self.make_room()
        self.memory = Memory(torch, self.device, self.block_bytes, self.plan.get("memory_bytes"))
        self.event("ready", memory_bytes=self.memory.size, types=[product.name for product, _ in self.products], collectives=self.group.world > 1)

    def make_room(self) -> None:
        """Makes torch allocate what results and comparisons need, before the patterns use the rest."""
        for product, _ in self.products:
            results = [product.run() for _ in range(MOST_RESULTS)]
            product.wrong_places(results[0])
            del results
        self.torch.cuda.synchronize()

    def check_signal(self) -> None:
        """Raises Stop."""
        if self.stopped:
            raise Stop

    def burn(self) -> None:
        """Repeats rounds until the time of one of the workers is over: writes a pattern, runs products, reads the pattern back, forms sums."""
        self.until = time.monotonic() + self.plan["duration_s"]
        ended = False
        while not ended:
            pattern_name = PATTERNS[self.round % len(PATTERNS)]
            self.keep_pattern(pattern_name, False)
            shares = sum(product.kind.share for product, _ in self.products)
            for product, one_s in self.products:
                self.work(product, one_s, self.plan["round_s"] * product.kind.share / shares)
            self.read_pattern()
            self.keep_pattern(pattern_name, True)
            self.read_pattern()
            self.sum_up()
            self.round += 1
            ended = self.group.agree(time.monotonic() >= self.until)
        self.event("worked")

    def work(self, product: Product, one_s: float, seconds: float) -> None:
        """Runs products of one type for this long, and checks them batch by batch."""
        self.event("phase", phase=product.name)
        began = now = time.monotonic()
        until = min(began + seconds, self.until)
        batch, count, wrong = max(1, min(MOST_RESULTS, int(BATCH_S / max(one_s, 1e-9)))), 0, 0
        while True:
            results = [product.run() for _ in range(batch)]
            if self.drill == product.name:
                product.flip(results[-1], DRILL_PLACE, DRILL_BIT)
                self.drill = None
            wrong += self.check(product, results)
            count += batch
            now = time.monotonic()
            self.check_signal()
            if now >= until:
                break
        self.note(product.name, count, now - began, count * product.flops, wrong)

    def check(self, product: Product, results: list[Any]) -> int:
        """Compares results: each by the sum of its bits, the last by all of its elements. Returns how many are wrong."""
        totals = self.torch.stack([product.total_of(result) for result in results]).tolist()
        wrong = 0
        for number, (result, total) in enumerate(zip(results, totals)):
            if total == product.total and number + 1 < len(results):
                continue
            elements, places = product.wrong_places(result)
            if elements or total != product.total:
                wrong += 1
                why = None if elements else "its elements are right when read again, the sum of its bits was not"
                self.report_wrong(product.name, elements, places, why)
        return wrong

    def report_wrong(self, name: str, elements: int, places: list[dict[str, Any]], why: str | None = None) -> None:
        """Reports a wrong result, up to the limit."""
        self.reported += 1
        if self.reported <= MOST_REPORTED:
            self.event("wrong", what=name, elements=elements, places=places, why=why)

    def note(self, name: str, count: int, seconds: float, work: float, wrong: int) -> None:
        """Adds to the work done and reports it. work: floating point operations, or bytes. slowest, fastest: rates of a phase, per second."""
        known = self.done.setdefault(name, {"count": 0, "seconds": 0.0, "work": 0.0, "wrong": 0, "slowest": None, "fastest": None})
        rate = work / max(seconds, 1e-9)
        for key, more in (("count", count), ("seconds", seconds), ("work", work), ("wrong", wrong)):
            known[key] += more
        known["slowest"] = min(rate, known["slowest"] or rate)
        known["fastest"] = max(rate, known["fastest"] or rate)
        self.event("work", what=name, **known)

    def keep_pattern(self, name: str, complement: bool) -> None:
        """Writes a pattern, which stays in memory."""
        self.event("phase", phase=MEMORY)
        self.memory.fill(name, complement)
        if self.drill == MEMORY and self.memory.blocks:
            self.memory.flip(DRILL_PLACE, DRILL_BIT)
            self.drill = None

    def read_pattern(self) -> None:
        """Reads the pattern back."""
        self.event("phase", phase=MEMORY)
        began = time.monotonic()
        elements, places = self.memory.wrong_places()
        if elements:
            self.report_wrong(MEMORY, elements, places, None if places else "right when read again: wrong on the way, not in the cell")
        self.note(MEMORY, 1, time.monotonic() - began, self.memory.size, int(elements > 0))
        self.check_signal()

    def sum_up(self) -> None:
        """Forms sums over all GPUs."""
        if self.group.world == 1:
            return
        self.event("phase", phase=COLLECTIVE)
        began = time.monotonic()
        self.group.sum_up()
        if self.drill == COLLECTIVE:
            self.group.flip(DRILL_PLACE, DRILL_BIT)
            self.drill = None
        elements, places = self.group.wrong_places()
        if elements:
            self.report_wrong(COLLECTIVE, elements, places)
        self.note(COLLECTIVE, 1, time.monotonic() - began, 4.0 * self.count * len(self.group.buffers), int(elements > 0))
        self.check_signal()


def run_worker(plan: dict[str, Any], number: int, descriptor: int) -> int:
    """0 when it worked to the end of its time or was asked to end, 1 when something failed. Wrong results are reported as events."""
    if plan["device"] == "cuda":
        begin_context(number)
    worker = Worker(plan, number, descriptor)
    signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stopped", True))
    try:
        worker.prepare()
        worker.burn()
        return 0
    except Stop:
        worker.event("stopped")
        return 0
    except Exception as problem:  # torch raises different errors for a GPU that fell off the bus, an uncorrectable error, and a peer that is gone
        worker.event("failed", message="%s: %s" % (type(problem).__name__, " ".join(str(problem).split())[:500]), fault=is_fault(problem))
        return 1
