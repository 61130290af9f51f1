"""Distributed checkpoints of PyTorch in the burst buffer: a writer and a reader for `torch.distributed.checkpoint`.

    from torch.distributed.checkpoint import load, save

    save(state, checkpoint_id=5, storage_writer=BurstWriter(client, job=17))
    load(state, storage_reader=BurstReader(client, job=17))  # the newest complete one

A checkpoint of N ranks has N + 1 files: `rank-R`, and `.metadata`, which the coordinating rank writes last. `save` returns when all are committed.
A rank writes the memory of its tensors as it is, one after the other; it copies at most 1 MiB at once of those that are on another device or have gaps.
`load` may have any number of ranks.

Whoever can write to the burst buffer can have a reader run code: as in PyTorch's own reader, metadata and objects that are no tensors are pickles.
"""

import ctypes
import dataclasses
import io
import math
import os
import pickle
import secrets
from typing import Optional

try:
    import torch
    from torch.distributed.checkpoint import StorageReader, StorageWriter
    from torch.distributed.checkpoint.metadata import StorageMeta
    from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
except ImportError as why:
    raise ImportError(f"entresol_burst.dcp needs PyTorch with torch.distributed.checkpoint: {why}") from why

from . import BurstError

__all__ = ["BurstReader", "BurstWriter", "StoredItem"]

_METADATA = ".metadata"
_MAGIC = b"entresol-burst-dcp 1\n"
_TAG_BYTES = 16
# Bytes that are copied at once. The burst buffer reads no less.
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class StoredItem:
    """The bytes of an item of a checkpoint. It is pickled within the metadata."""

    file: str
    tag: bytes
    """The file begins with it, so that the file of another save is not taken for this one."""
    offset: int
    bytes: int
    shape: Optional[tuple] = None
    """Lengths of the dimensions; None for an object that is no tensor."""
    dtype: Optional[torch.dtype] = None


@dataclasses.dataclass(frozen=True)
class _Share:
    """The file of a rank, and the number of files of the checkpoint."""

    file: str
    files: int


def _number(checkpoint_id):
    """The number of a checkpoint."""
    text = os.fspath(checkpoint_id) if isinstance(checkpoint_id, os.PathLike) else str(checkpoint_id)
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"checkpoint_id {text!r} is no number: the burst buffer numbers the checkpoints of a job")
    return int(text)


def _is_number(checkpoint_id):
    try:
        _number(checkpoint_id)
    except ValueError:
        return False
    return True


def _done(value):
    future = Future()
    future.set_result(value)
    return future


def _memory(tensor):
    """The memory of a contiguous tensor, as long as the tensor is there."""
    return (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr()) if tensor.nbytes else b""


def _is_plain(tensor):
    """True if the tensor's memory is its elements in their order."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _check_kind(name, tensor):
    if is_traceable_wrapper_subclass(tensor) or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = f"{type(tensor).__name__}, layout {tensor.layout}, dtype {tensor.dtype}, device {tensor.device}"
        raise TypeError(f"{name}: the burst buffer stores dense tensors with memory of their own, not this one: {kind}")


def _blocks(tensor):
    """Contiguous parts of a tensor in their order. Those that are copies are small."""
    if _is_plain(tensor):
        yield tensor
    elif tensor.nbytes <= _BLOCK:
        yield tensor.resolve_conj().resolve_neg().contiguous().cpu()
    else:
        rows = _BLOCK * len(tensor) // tensor.nbytes
        for part in tensor.split(rows) if rows else tensor.unbind():
            yield from _blocks(part)


def _fill(file, offset, tensor):
    """Reads the elements of a contiguous tensor."""
    file.seek(offset)
    if file.readinto(_memory(tensor)) != tensor.nbytes:
        raise BurstError(f"the file ends before byte {offset + tensor.nbytes}")


def _read_box(file, at, shape, offsets, lengths, target):
    """Fills `target` with a box of the tensor of this shape that begins at byte `at` of the file."""
    dtype = target.dtype
    row = math.prod(shape[1:]) * dtype.itemsize
    first = at + offsets[0] * row
    if lengths[1:] == shape[1:] and _is_plain(target):
        _fill(file, first, target)
    elif row > _BLOCK:
        for index in range(lengths[0]):
            _read_box(file, first + index * row, shape[1:], offsets[1:], lengths[1:], target[index])
    else:
        # Whole rows: the rest of a row is in chunks that are read anyway.
        rows = _BLOCK // row
        for index in range(0, lengths[0], rows):
            part = target[index : index + rows]
            block = torch.empty((len(part), *shape[1:]), dtype=dtype)
            _fill(file, first + index * row, block)
            for dimension in range(1, len(shape)):
                block = block.narrow(dimension, offsets[dimension], lengths[dimension])
            part.copy_(block)


def _read_tensor(file, stored, offsets, lengths, target):
    """Fills `target` with a box of a stored tensor."""
    if target.dtype != stored.dtype:
        whole = torch.empty(lengths, dtype=stored.dtype)
        _read_tensor(file, stored, offsets, lengths, whole)
        target.copy_(whole)
    elif not stored.shape:
        _read_box(file, stored.offset, (1,), (0,), (1,), target.view(1))
    elif math.prod(lengths) > 0:
        _read_box(file, stored.offset, stored.shape, tuple(offsets), tuple(lengths), target)


class BurstWriter(StorageWriter):
    """Writes the checkpoints of a job.

    client: the `entresol_burst.Client` of this rank. job: number of the job. checkpoint_id: number of the checkpoint, for a call of `save` that has none.

    `save` raises, and the checkpoint does not count, when a rank fails. A number whose save has failed may be saved again, even by another number of
    ranks; one that is complete is refused with `FileExistsError`. Refused too: tensors that are sparse, quantized or made of others
    (`TypeError`), and `use_collectives=False`, where no rank knows when all have committed (`ValueError`).

    `async_save` works in both forms. PyTorch copies the whole state for it first.
    """

    def __init__(self, client, job, checkpoint_id=None):
        super().__init__()
        self._client = client
        self._job = job
        self.acknowledgement = None
        """Acknowledgement of this rank's file of the last save."""
        self.reset(checkpoint_id)

    def reset(self, checkpoint_id=None):
        self.checkpoint_id = None if checkpoint_id is None else _number(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return _is_number(checkpoint_id)

    def storage_meta(self):
        return StorageMeta(checkpoint_id=str(self.checkpoint_id))

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        if not kwargs.get("use_collectives", True):
            raise ValueError("use_collectives=False: no rank knows when all have committed")
        if self.checkpoint_id is None:
            raise ValueError("no checkpoint_id: the burst buffer numbers the checkpoints of a job")

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        try:
            self._open(None, _METADATA, "r").close()
        except FileNotFoundError:
            files = len(plans) + 1
            shares = (_Share(f"rank-{rank}", files) for rank in range(len(plans)))
            return [dataclasses.replace(plan, storage_data=share) for plan, share in zip(plans, shares)]
        raise FileExistsError(f"checkpoint {self.checkpoint_id} of job {self._job} is there: a job numbers each checkpoint once")

    def write_data(self, plan, planner):
        share = plan.storage_data
        tag = secrets.token_bytes(_TAG_BYTES)
        with self._open(share.files, share.file, "w") as file:
            file.write(_MAGIC + tag)
            results = [self._write(file, share.file, tag, item, planner) for item in plan.items]
        self.acknowledgement = file.acknowledgement
        return _done(results)

    @staticmethod
    def _write(file, name, tag, item, planner):
        offset = file.tell()
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            file.write(data.getbuffer())
            kind = {}
        else:
            _check_kind(item.index.fqn, data)
            for block in _blocks(data.detach()):
                file.write(_memory(block))
            kind = {"shape": tuple(data.shape), "dtype": data.dtype}
        stored = StoredItem(name, tag, offset, file.tell() - offset, **kind)
        return WriteResult(index=item.index, size_in_bytes=stored.bytes, storage_data=stored)

    def finish(self, metadata, results):
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        with self._open(len(results) + 1, _METADATA, "w") as file:
            pickle.dump(metadata, file)

    def _open(self, files, name, mode):
        return self._client.open(self._job, self.checkpoint_id, files, name, mode, replace=True)


class BurstReader(StorageReader):
    """Reads the checkpoints of a job.

    client: the `entresol_burst.Client` of this rank. job: number of the job. checkpoint_id: number of the checkpoint; None: the newest complete one.

    `load` raises when there is no such checkpoint, when no source has a chunk with its checksum, and when the newest one has changed between two
    ranks: the ranks of a job must not load different ones.
    """

    def __init__(self, client, job, checkpoint_id=None):
        super().__init__()
        self._client = client
        self._job = job
        self.reset(checkpoint_id)

    def reset(self, checkpoint_id=None):
        self.checkpoint_id = None if checkpoint_id is None else _number(checkpoint_id)
        self._stored = {}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return _is_number(checkpoint_id)

    def read_metadata(self):
        self._found = self._client.newest(self._job) if self.checkpoint_id is None else self.checkpoint_id
        if self._found is None:
            raise FileNotFoundError(f"job {self._job} has no complete checkpoint")
        with self._open(_METADATA) as file:
            metadata = pickle.load(io.BufferedReader(file))
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        return metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan):
        return dataclasses.replace(plan, storage_data=self._found)

    def prepare_global_plan(self, plans):
        found = sorted({plan.storage_data for plan in plans})
        if len(found) > 1:
            raise BurstError(f"a checkpoint became complete meanwhile: ranks would load {found}; load again, or give a checkpoint_id")
        return plans

    def read_data(self, plan, planner):
        by_file = {}
        for item in plan.items:
            stored = self._stored[item.storage_index]
            by_file.setdefault((stored.file, stored.tag), []).append((stored, item))
        for (name, tag), items in by_file.items():
            with self._open(name) as file:
                if file.read(len(_MAGIC) + _TAG_BYTES) != _MAGIC + tag:
                    raise BurstError(f"checkpoint {self._found}: {name} is of another save than {_METADATA}")
                for stored, item in sorted(items, key=lambda pair: pair[0].offset):
                    self._read(file, stored, item, planner)
        return _done(None)

    @staticmethod
    def _read(file, stored, item, planner):
        if item.type == LoadItemType.BYTE_IO:
            file.seek(stored.offset)
            planner.load_bytes(item, io.BytesIO(file.read(stored.bytes)))
            return
        target = planner.resolve_tensor(item).detach()
        if target.shape != item.lengths:
            raise ValueError(f"{item.dest_index.fqn}: {tuple(item.lengths)} does not fit into {tuple(target.shape)}")
        _read_tensor(file, stored, item.storage_offsets, item.lengths, target)
        planner.commit_tensor(item, target)

    def _open(self, name):
        return self._client.open(self._job, self._found, None, name)
