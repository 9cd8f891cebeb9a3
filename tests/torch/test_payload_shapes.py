"""Each element counts: a single wrong element in a layer's gather and reduction is found, with any
number of ranks."""

from __future__ import annotations

import pytest
from smoke_runs import PATIENT, load_payload, smoke

from unhang.smoke.node_plans import PHASES

torch = pytest.importorskip("torch")
payload = load_payload()


class Wire:
    """The result of torch.distributed for one rank of many, computed here; `spoil` changes it on
    the way."""

    def __init__(self, run, spoil):
        self.run, self.spoil = run, spoil

    def all_gather_into_tensor(self, whole, part):
        share = part.numel()
        for source in range(self.run.world):
            place = torch.arange(share, dtype=torch.int32)
            whole[source * share : (source + 1) * share] = (place + source * 37 & 127).to(
                whole.dtype
            )
        self.spoil("all_gather", whole)

    def reduce_scatter_tensor(self, part, whole):
        place = torch.arange(whole.numel(), dtype=torch.int32)
        total = sum((place + source & 1) for source in range(self.run.world)).to(part.dtype)
        assert torch.equal(whole, (place + self.run.rank & 1).to(whole.dtype)), (
            "what this rank puts in"
        )
        part.copy_(total[part.numel() * self.run.rank :][: part.numel()])
        self.spoil("reduce_scatter", part)


class Rank:
    """A rank without real processes around it."""

    device = torch.device("cpu")
    torch = torch

    def __init__(self, rank, world, spoil=lambda name, came: None):
        self.rank, self.world, self.dist = rank, world, Wire(self, spoil)

    def step(self, name, limit_s=None):
        pass

    def collective(self, name, call, size_bytes=0):
        return call()


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 7, 8, 64, 255])
@pytest.mark.parametrize("share", [1, 2, 513])
def test_a_layer_that_arrives_whole_has_nothing_wrong(world, share):
    for rank in {0, world // 2, world - 1}:
        assert payload.gather_and_scatter(Rank(rank, world), "layer", share * world) == 0


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("place", [0, 1, 4095, -1])
def test_one_wrong_element_is_found(operation, place):
    def spoil(name, came):
        if name == operation:
            came[place] += 1

    assert payload.gather_and_scatter(Rank(1, 4, spoil), "layer", 4 * 4096) == 1


def test_two_elements_that_changed_places_are_found():
    def spoil(name, came):
        if name == "all_gather":
            came[10], came[11] = came[11].clone(), came[10].clone()

    assert payload.gather_and_scatter(Rank(1, 4, spoil), "layer", 4 * 4096) == 2


def test_pieces_are_compared_with_their_own_place():
    count = payload.CHUNK + 5
    held = torch.empty(count, dtype=torch.bfloat16)
    payload.fill(torch, held, lambda place: place & 127)
    assert payload.differing(torch, held, lambda place: place & 127) == 0
    held[payload.CHUNK + 2] = -1
    assert payload.differing(torch, held, lambda place: place & 127) == 1


@pytest.mark.parametrize("nproc", [1, 5, 8])
def test_any_number_of_ranks_goes_through_every_phase(nproc):
    # All phases but the comparison of paces, because with more ranks than cores paces differ. Eight
    # ranks skip the training, whose imports take longest.
    left_out = ("pace", *(("ddp", "fsdp") if nproc == 8 else ()))
    phases = ",".join(name for name in PHASES if name not in left_out)
    done = smoke(
        "--nproc", nproc, "--max-size", "16K", "--sizes", "16K", *PATIENT, "--phases", phases
    )
    assert done.code == 0, done.stdout[-3000:]
    assert {row["status"] for row in done.result["phases"]} == {"ok"}
    assert done.result["world_size"] == nproc
    assert all(row["wrong"] in (0, None) for row in done.result["collectives"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("world", [2, 8])
def test_one_element_that_the_drill_corrupts_always_differs(dtype, world):
    held = payload.pattern(torch, torch.device("cpu"), 100_000, 0, 7, 256, dtype)
    assert int(((1 - held) == held).sum()) == 0


def test_losses_that_differ_between_ddp_and_fsdp_are_reported():
    run = Rank(0, 2)
    run.losses = (1.0, 0.9, 0.8)
    payload.check_losses(run, [1.0, 0.9001, 0.8])
    with pytest.raises(payload.Failed, match=r"gives 0\.950000 in place of 0\.900000 at step 2"):
        payload.check_losses(run, [1.0, 0.95, 0.8])
