"""Checkpoints of a program in Entresol's burst buffer: in memory beside the compute nodes first, and on the parallel file system (PFS) later.

A job has checkpoints by number, and a checkpoint has files. `Client.open` opens one. `entresol_burst.dcp` has the writer and the reader of
PyTorch's distributed checkpoints.

Safety of stored bytes is one of three levels, the weakest first: "absorbed" (in the memory of one node), "replicated" (of two nodes),
"durable" (on the PFS). The coordinator's policy decides which of the first two it is; where buffers have no space or do not answer, bytes go to the PFS.

Python's global lock is released while a call waits for the network or a disk. An interrupt takes effect after the call. Memory that is given to a call
must not be changed by other threads during it.
"""

import io
import os
from typing import NamedTuple

from . import _native
from ._native import BurstError

__all__ = ["Acknowledgement", "BurstError", "Client", "Reader", "Writer"]

_NAME_BYTES = 255


class Acknowledgement(NamedTuple):
    """Safety of stored bytes, as it was when they were stored."""

    level: str
    """That of the weakest part: "absorbed", "replicated" or "durable"."""
    media: frozenset
    """The media that have parts, such as "memory of node 2" or "the PFS"."""

    @classmethod
    def _of(cls, stored):
        level, media = stored
        return cls(level, frozenset(media))


class Writer(io.RawIOBase):
    """A file of a checkpoint, written from its beginning to its end.

    `close` commits it, and returns its acknowledgement. As a context manager it is committed at the end of the block, and aborted by an exception. One
    that is forgotten, or whose process ends, is not committed; so do not wrap it into `io.BufferedWriter`, which closes what is forgotten.

    At most 32 MiB of it are in this process: two pieces, of which one is filled while the other is stored.
    """

    def __init__(self, native):
        self._native = native
        self.acknowledgement = None
        """The acknowledgement of a committed file; None before."""

    def writable(self):
        return True

    def write(self, data):
        """Writes all bytes of an object with contiguous memory, and returns their number.

        Raises `BurstError` when a piece could be stored nowhere, which may be one of an earlier call. The call may be repeated.
        """
        return self._native.write(memoryview(data))

    def tell(self):
        """Number of bytes that were written."""
        return self._native.length()

    def close(self):
        """Stores what is left and commits the file: every reader of the job sees it afterwards. Returns the acknowledgement.

        Raises `BurstError` when it could be stored nowhere, or another process has opened this file for writing since. The file is not
        committed then and stays open: close it again, or abort it.
        """
        if not self.closed:
            self.acknowledgement = Acknowledgement._of(self._native.commit())
            super().close()
        return self.acknowledgement

    def abort(self):
        """Closes the file without a commit: nobody sees it. Its pieces that were stored stay in the checkpoint's folder."""
        self._native.abort()
        super().close()

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self):
        self.abort()


class Reader(io.RawIOBase):
    """A committed file of a checkpoint. It stays the version that was opened.

    Each chunk of 1 MiB comes from the nearest source that has it with its checksum: the memory of this node, that of others, or the PFS. A read
    raises `BurstError` when no source has one.
    """

    def __init__(self, native):
        self._native = native
        self._at = 0

    @property
    def size(self):
        """Length of the file in bytes."""
        return self._native.length()

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if at < 0:
            raise ValueError(f"negative offset {at}")
        self._at = at
        return at

    def tell(self):
        return self._at

    def readinto(self, data):
        """Fills memory from the file's position on, less of it at the end of the file. Returns the number of bytes."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        count = self._native.read_into(self._at, memoryview(data))
        self._at += count
        return count

    def readall(self):
        data = bytearray(max(self.size - self._at, 0))
        self.readinto(data)
        return bytes(data)


class Client:
    """A writer and reader of checkpoints.

    Threads may share one; a forked child makes its own. It can be pickled, and is then made anew.

    coordinator: address and port of the coordinator. None: bytes go to the PFS, and come from there and from `node_addresses`.
    pfs: the directory on the parallel file system, the same one for all.
    node: number of the node on which this process runs.
    node_addresses: addresses of nodes to read from where the coordinator does not answer.
    ticket: file with the ticket of the job, where the cluster has a key; None: that of ENTRESOL_BURST_TICKET, if it is set.
    """

    def __init__(self, coordinator, pfs, node=0, node_addresses=(), ticket=None):
        ticket = ticket or os.environ.get("ENTRESOL_BURST_TICKET") or None
        self._settings = (coordinator, os.fspath(pfs), node, tuple(node_addresses), ticket and os.fspath(ticket))
        self._native = _native.Client(coordinator, pfs, node, list(node_addresses), ticket)

    def __reduce__(self):
        return Client, self._settings

    def open(self, job, checkpoint, files, name, mode="r", *, replace=False):
        """Opens a file of a checkpoint: a `Reader` with mode "r", a `Writer` with "w".

        A checkpoint is complete when so many `files` are committed; all writers of the checkpoint say the same number, and it has no more names.
        Readers may say None. A job numbers each checkpoint once.

        Raises `FileNotFoundError` if a file to be read is not committed, `FileExistsError` if one to be written is, unless `replace` is true.
        The version before stays until the new one is committed. Raises `BurstError` for other reasons, as when the checkpoint has its
        files, or the PFS, which has the names, fails.
        """
        if mode == "r":
            return Reader(self._native.reader(job, checkpoint, name))
        if mode != "w":
            raise ValueError(f"mode {mode!r} is neither 'r' nor 'w'")
        encoded = os.fsencode(name)
        if encoded in (b"", b".", b"..") or b"/" in encoded or b"\0" in encoded or len(encoded) > _NAME_BYTES:
            raise ValueError(f"{name!r} is no name of a file")
        return Writer(self._native.writer(job, checkpoint, files, name, replace))

    def newest(self, job):
        """Number of the newest complete checkpoint of a job; None if there is none.

        Raises `BurstError` when the coordinator or the PFS cannot be asked.
        """
        return self._native.newest(job)

    def put(self, job, checkpoint, rank, ranks, data):
        """Stores the bytes of one rank of a checkpoint that consists of ranks, not of files. Returns the acknowledgement.

        The checkpoint is complete when all its `ranks` are stored. Raises `BurstError` when neither a buffer nor the PFS takes the bytes.
        """
        return Acknowledgement._of(self._native.put(job, checkpoint, rank, ranks, memoryview(data)))

    def restore(self, job, rank, checkpoint=None):
        """Number of a checkpoint of `put` and the bytes of one rank: of the given checkpoint, or of the newest complete one.

        All ranks of a job must restore the same checkpoint: give them its number. Raises `FileNotFoundError` if it is not complete, and `BurstError`
        when no source has a chunk with its checksum.
        """
        return self._native.restore(job, rank, checkpoint)
