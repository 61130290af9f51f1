"""One rank of a program of PyTorch whose checkpoints go through the burst buffer.

    ranks.py SCENARIO [ARGUMENT]  # RANK, WORLD_SIZE, RENDEZVOUS, TMPFS, NODE, ENTRESOL_BURST_COORDINATOR, ENTRESOL_BURST_PFS, ENTRESOL_BURST_JOB

It prints `at STEP` where the test that has started it has something to do, and goes on after a line of input.
"""

import os
import shutil
import sys
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from entresol_burst import BurstError, Client
from entresol_burst.dcp import BurstReader, BurstWriter

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
JOB = int(os.environ["ENTRESOL_BURST_JOB"])
MIB = 1 << 20


def at(step):
    print("at", step, flush=True)
    if not sys.stdin.readline():
        sys.exit("the test has ended")


def client():
    return Client(os.environ["ENTRESOL_BURST_COORDINATOR"], os.environ["ENTRESOL_BURST_PFS"], node=int(os.environ["NODE"]))


def save(state, checkpoint, levels=("replicated",), **options):
    writer = BurstWriter(client(), JOB)
    checkpoints.save(state, checkpoint_id=str(checkpoint), storage_writer=writer, **options)
    assert writer.acknowledgement.level in levels, writer.acknowledgement
    return writer


def load(state, checkpoint=None, **options):
    checkpoints.load(state, storage_reader=BurstReader(client(), JOB, checkpoint), **options)


def bits(tensor):
    """The bytes of a tensor: patterns of no number compare too."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)


class States:
    """States that a seed decides, with shards over all ranks."""

    def __init__(self):
        self.line = init_device_mesh("cpu", (WORLD,))
        self.square = init_device_mesh("cpu", (2, WORLD // 2))

    def make(self, seed):
        draw = torch.Generator().manual_seed(seed)

        def noise(*shape, dtype=torch.float32):
            width = torch.empty(0, dtype=dtype).element_size()
            count = max(torch.Size(shape).numel() * width, 1)
            raw = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=draw)
            return raw[: torch.Size(shape).numel() * width].view(dtype).reshape(shape)

        sharded = {
            "uneven rows": (noise(1031, 257), self.line, [Shard(0)]),
            "fewer rows than ranks": (noise(3, 5, dtype=torch.int16), self.line, [Shard(0)]),
            "long rows": (noise(6, 600_000), self.line, [Shard(1)]),
            "short rows": (noise(4096, 34, dtype=torch.bfloat16), self.line, [Shard(1)]),
            "boxes": (noise(90, 70, 11, dtype=torch.float64), self.square, [Shard(0), Shard(1)]),
            "replicated": (noise(300, 40), self.line, [Replicate()]),
        }
        # Every rank has made the whole tensor, and takes its shard.
        state = {name: distribute_tensor(tensor, mesh, how, src_data_rank=None) for name, (tensor, mesh, how) in sharded.items()}
        plain = {
            "scalar": noise(dtype=torch.int64),
            "empty": noise(0, 5),
            "flags": torch.randint(0, 2, (77,), generator=draw) > 0,
            "transposed": noise(700, 900, dtype=torch.float64).t(),
            "gaps in long rows": noise(3, 800_000)[:, ::2],
            "small floats": noise(1000, dtype=torch.float8_e4m3fn),
        }
        lazy = {
            "conjugated": noise(100, 3, dtype=torch.complex64).conj(),
            "negated": noise(100, 3, dtype=torch.complex64).conj().imag,
        }
        # All ranks have the tensors that are not sharded; one of them writes each.
        return {"sharded": state, "plain": plain, "lazy": lazy, "step": seed, "names": ["a", ("b", 2.5)], f"of rank {RANK}": {"seed": seed * 10 + RANK}}

    def check(self, seed, checkpoint=None, without=()):
        """Loads a state, over another one, and compares it bit by bit."""
        expected, state = self.make(seed), self.make(seed + 1000)
        for key in without:
            del expected[key], state[key]
        own = f"of rank {RANK}" in expected
        load(state, checkpoint)
        assert state["step"] == seed and state["names"] == expected["names"], state
        assert not own or state[f"of rank {RANK}"] == {"seed": seed * 10 + RANK}, state
        for part in expected.keys() & {"sharded", "plain", "lazy"}:
            for name, tensor in expected[part].items():
                found = state[part][name]
                if isinstance(tensor, DTensor):
                    tensor, found = tensor.to_local(), found.to_local()
                assert found.shape == tensor.shape and torch.equal(bits(found), bits(tensor)), f"seed {seed}: {name}"


def refuses(why, act, *arguments, **options):
    try:
        act(*arguments, **options)
    except (ValueError, BurstError, CheckpointException) as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"not refused: {why}")


def saves():
    """Every form of a save and what is refused; the newest checkpoint is loaded after each."""
    states = States()
    refuses("has no complete checkpoint", load, states.make(1))
    save(states.make(1), 1)
    states.check(1)

    # Changes of the state after `async_save` returned are not part of the checkpoint. PyTorch's own copy forgets that a tensor is to be conjugated
    # or negated.
    for number, form in [(2, AsyncCheckpointerType.THREAD), (3, AsyncCheckpointerType.PROCESS)]:
        state, writer = states.make(number), BurstWriter(client(), JOB)
        del state["lazy"]
        future = checkpoints.async_save(state, checkpoint_id=str(number), storage_writer=writer, async_checkpointer_type=form)
        state["plain"]["scalar"].fill_(0)
        state["sharded"]["uneven rows"].to_local().fill_(0)
        future.result()
        states.check(number, without=["lazy"])
    for number in [4, 5]:
        save(states.make(number), number, planner=DefaultSavePlanner(enable_plan_caching=True))
        states.check(number)

    refuses("a job numbers each checkpoint once", save, states.make(6), 3)
    refuses("'step-6' is no number", save, states.make(6), "step-6")
    refuses("stores dense tensors", save, {"sparse": torch.eye(3).to_sparse()}, 6)
    refuses("stores dense tensors", save, {"quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}, 6)
    writer = BurstWriter(client(), JOB, checkpoint_id=6)
    refuses("no rank knows when all have committed", checkpoints.save, {"x": 1}, storage_writer=writer, use_collectives=False)
    refuses("no checkpoint_id", checkpoints.save, {"x": 1}, storage_writer=BurstWriter(client(), JOB))
    two = [LoadPlan([], storage_data=number) for number in [4, 5]]
    refuses("ranks would load [4, 5]", BurstReader(client(), JOB).prepare_global_plan, two)
    dist.barrier()
    states.check(5)
    # A file of another save under the metadata of this one.
    if RANK == 0:
        with client().open(JOB, 5, None, "rank-0") as read, client().open(JOB, 4, WORLD + 1, "rank-0", "w", replace=True) as written:
            written.write(read.read())
    dist.barrier()
    refuses("rank-0 is of another save than .metadata", load, states.make(4), 4)
    states.check(2, checkpoint=2, without=["lazy"])


def reshards(seed):
    """Loads a state that other ranks have saved, and saves the next number."""
    states, number = States(), int(seed) + 1
    states.check(int(seed), without=[f"of rank {RANK}"])
    save(states.make(number), number)
    states.check(number)
    wide = {"sharded": {"short rows": torch.zeros(4096, 34, dtype=torch.float64)}}
    load(wide)
    original = states.make(number)["sharded"]["short rows"].full_tensor().to(torch.float64)
    assert torch.equal(bits(wide["sharded"]["short rows"]), bits(original)), "converted"


def survives_a_node():
    states = States()
    save(states.make(1), 1)
    at("saved")
    states.check(1)


class Struck(DefaultSavePlanner):
    """Waits at its third item."""

    items = 0

    def resolve_data(self, item):
        self.items += 1
        if self.items == 3:
            at("struck")
        return super().resolve_data(item)


def loses_a_node():
    """A node is killed while the last rank writes: a rank beside it goes to the PFS."""
    states = States()
    save(states.make(1), 1, levels=["replicated", "durable"], planner=Struck() if RANK == WORLD - 1 else None)
    at("saved")
    states.check(1)


def is_killed():
    """The last rank is killed while it writes: the others' saves fail."""
    states = States()
    save(states.make(1), 1)
    try:
        save(states.make(2), 2, planner=Struck() if RANK == WORLD - 1 else None)
    except Exception as error:
        print("failed:", type(error).__name__, flush=True)
        os._exit(7)


def goes_on():
    """The older checkpoint is loaded, and the number of the one that failed is saved again."""
    states = States()
    states.check(1)
    save(states.make(3), 2)
    states.check(3)


def is_measured(mebibytes):
    """A save of a state of this length, with nothing else between the two steps."""
    count = int(mebibytes) * MIB // 8

    def parts():
        draw = torch.Generator().manual_seed(RANK)
        return ((f"{part} of rank {RANK}", torch.randint(0, 2**62, (count // 8,), generator=draw)) for part in range(8))

    state, seconds = dict(parts()), {}

    def measure(name, act, *arguments, **options):
        dist.barrier()
        begin = time.monotonic()
        act(*arguments, **options)
        dist.barrier()
        seconds[name] = time.monotonic() - begin

    # For comparison, to a file system in memory that has the space.
    path = f"{os.environ['TMPFS']}/{RANK}"
    if shutil.disk_usage(os.environ["TMPFS"]).free > 2 * WORLD * int(mebibytes) * MIB:
        measure("torch.save to tmpfs", torch.save, state, path)
        measure("torch.load of it", torch.load, path, mmap=False)
        os.remove(path)
    # Everything that is loaded and made once is there afterwards.
    save({"small": torch.zeros(WORLD)}, 1)
    dist.barrier()
    at("before")
    measure("save", save, state, 2)
    at("after")
    for part in state.values():
        part.zero_()
    measure("load", load, state)
    assert all(torch.equal(state[name], part) for name, part in parts())
    if RANK == 0:
        for name, took in seconds.items():
            print(f"{name}: {WORLD} ranks of {mebibytes} MiB in {took:.2f} s, {WORLD * int(mebibytes) / took:.0f} MiB/s", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    rendezvous = f"file://{os.environ['RENDEZVOUS']}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=RANK, world_size=WORLD, timeout=timedelta(seconds=120))
    scenario, *arguments = sys.argv[1:]
    globals()[scenario](*arguments)
    dist.destroy_process_group()
    print("ended", flush=True)
