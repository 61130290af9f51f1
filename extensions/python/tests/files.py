"""Tests of files and ranks, without PyTorch. The environment names a burst buffer with two nodes or more.

    files.py  # ENTRESOL_BURST_COORDINATOR, ENTRESOL_BURST_PFS
"""

import array
import ctypes
import gc
import io
import os
import pickle
import random
import socket
import sys
import threading
import time
import unittest

from entresol_burst import Acknowledgement, BurstError, Client, Reader, Writer

COORDINATOR, PFS = os.environ["ENTRESOL_BURST_COORDINATOR"], os.environ["ENTRESOL_BURST_PFS"]
MIB = 1 << 20
PIECE = 16 * MIB
REPLICATED = Acknowledgement("replicated", frozenset({"memory of node 0", "memory of node 1"}))


class Burst(unittest.TestCase):
    jobs = iter(range(100, 200))

    def setUp(self):
        self.client = Client(COORDINATOR, PFS, node=0)
        self.job = next(self.jobs)

    def write(self, checkpoint, files, name, data, **options):
        with self.client.open(self.job, checkpoint, files, name, "w", **options) as file:
            self.assertEqual(file.write(data), memoryview(data).nbytes)
        return file.acknowledgement

    def read(self, checkpoint, name):
        with self.client.open(self.job, checkpoint, None, name) as file:
            return file.read()


class Files(Burst):
    def test_what_is_written_is_read_anywhere(self):
        seed = 5
        draw = random.Random(seed)
        expected = draw.randbytes(2 * PIECE + 3 * MIB + 17)
        file = self.client.open(self.job, 1, 1, "state", "w")
        self.assertIsInstance(file, Writer)
        at = 0
        while at < len(expected):
            part = memoryview(expected)[at : at + draw.choice([0, 1, 4096, MIB + 1, PIECE + 5])]
            self.assertEqual(file.write(part), len(part))
            at += len(part)
            self.assertEqual(file.tell(), at)
        self.assertTrue(file.writable() and not file.readable() and not file.seekable())
        self.assertIsNone(file.acknowledgement)
        self.assertEqual(file.close(), REPLICATED)
        self.assertEqual((file.close(), file.closed), (REPLICATED, True))

        with self.client.open(self.job, 1, None, "state") as file:
            self.assertIsInstance(file, Reader)
            self.assertTrue(file.readable() and file.seekable() and not file.writable())
            self.assertEqual(file.size, len(expected))
            for _ in range(40):
                at, length = draw.randrange(len(expected)), draw.choice([0, 1, 1000, 2 * MIB])
                self.assertEqual(file.seek(at), at, f"seed {seed}")
                self.assertEqual(file.read(length), expected[at : at + length], f"seed {seed}")
                self.assertEqual(file.tell(), min(at + length, len(expected)))
            self.assertEqual(file.seek(-5, os.SEEK_END), len(expected) - 5)
            self.assertEqual((file.seek(1, os.SEEK_CUR), file.read(), file.read()), (len(expected) - 4, expected[-4:], b""))
            into = bytearray(b"x" * 10)
            file.seek(len(expected) - 6)
            self.assertEqual((file.readinto(into), into), (6, expected[-6:] + b"xxxx"))
            self.assertEqual((file.seek(len(expected) + 1), file.read()), (len(expected) + 1, b""))
            self.assertRaises(ValueError, file.seek, -1)
        self.assertRaises(ValueError, file.read, 1)

    def test_memory_of_any_kind_is_written_and_filled(self):
        numbers = array.array("d", range(1000))
        table = memoryview(numbers).cast("B").cast("d", (20, 50))
        structure = (ctypes.c_int * 3)(1, 2, 3)
        for name, data in [("array", numbers), ("table", table), ("structure", structure), ("nothing", b"")]:
            self.write(1, 5, name, data)
            self.assertEqual(self.read(1, name), bytes(data))
        with self.client.open(self.job, 1, 5, "lines", "w") as file:
            pickle.dump({"step": 7}, file)
            file.write(b"first\nsecond\n")
        with io.BufferedReader(self.client.open(self.job, 1, None, "lines")) as file:
            self.assertEqual((pickle.load(file), list(file)), ({"step": 7}, [b"first\n", b"second\n"]))
        back = array.array("d", [0] * 1000)
        with self.client.open(self.job, 1, None, "array") as file:
            self.assertEqual((file.readinto(back), back), (8000, numbers))
            self.assertRaises(BufferError, file.readinto, bytes(5))
            self.assertRaises(BufferError, file.readinto, memoryview(bytearray(10))[::2])
            self.assertRaises(TypeError, file.readinto, "text")
        with self.client.open(self.job, 2, 1, "gaps", "w") as file:
            self.assertRaises(BufferError, file.write, memoryview(b"abcdef")[::2])
            self.assertRaises(TypeError, file.write, "text")
        self.assertEqual(self.read(2, "gaps"), b"")

    def test_only_a_commit_counts(self):
        def fail():
            with self.client.open(self.job, 1, 2, "failed", "w") as file:
                file.write(bytes(PIECE + 1))
                raise KeyError("of the program")

        self.assertRaises(KeyError, fail)
        self.client.open(self.job, 1, 2, "forgotten", "w").write(b"forgotten")
        gc.collect()
        aborted = self.client.open(self.job, 1, 2, "failed", "w")
        aborted.abort()
        aborted.abort()
        self.assertTrue(aborted.closed)
        self.assertRaises(ValueError, aborted.write, b"")
        self.assertIsNone(aborted.close())
        for name in ["failed", "forgotten", "never opened"]:
            self.assertRaises(FileNotFoundError, self.read, 1, name)
        self.assertIsNone(self.client.newest(self.job))
        self.write(1, 2, "failed", b"now")
        self.assertIsNone(self.client.newest(self.job))
        self.write(1, 2, "forgotten", b"now")
        self.assertEqual(self.client.newest(self.job), 1)

    def test_a_committed_file_is_replaced_when_asked(self):
        self.write(1, 1, "state", b"first")
        self.assertRaises(FileExistsError, self.client.open, self.job, 1, 1, "state", "w")
        with self.client.open(self.job, 1, None, "state") as before:
            stale = self.client.open(self.job, 1, 1, "state", "w", replace=True)
            stale.write(b"stale")
            self.write(1, 1, "state", b"second", replace=True)
            self.assertEqual((before.read(), self.read(1, "state")), (b"first", b"second"))
        with self.assertRaisesRegex(BurstError, "opened this file for writing"):
            stale.close()
        self.assertFalse(stale.closed)
        stale.abort()
        self.assertEqual(self.read(1, "state"), b"second")

    def test_what_is_no_file_of_the_checkpoint_is_refused(self):
        self.write(1, 1, "state", b"")
        with self.assertRaisesRegex(BurstError, "has its 1 files"):
            self.client.open(self.job, 1, 1, "another", "w")
        for name in ["", ".", "..", "a/b", "a\0b", "x" * 256]:
            with self.assertRaisesRegex(ValueError, "no name of a file"):
                self.client.open(self.job, 2, 1, name, "w")
        self.assertRaises(ValueError, self.client.open, self.job, 1, 1, "state", "a")
        self.assertRaises(ValueError, self.client.open, self.job, 1, 0, "state", "w")
        self.assertRaises(FileNotFoundError, Client, COORDINATOR, PFS + "/absent")


class Ranks(Burst):
    def test_ranks_are_put_and_restored(self):
        self.assertRaises(FileNotFoundError, self.client.restore, self.job, 0)
        for rank in range(2):
            put = self.client.put(self.job, 3, rank, 2, array.array("i", [rank, 7]))
            self.assertEqual(put, REPLICATED)
        copy = pickle.loads(pickle.dumps(self.client))
        self.assertEqual(copy.restore(self.job, 1), (3, array.array("i", [1, 7]).tobytes()))
        self.assertEqual(self.client.restore(self.job, 0, checkpoint=3)[1], array.array("i", [0, 7]).tobytes())
        self.assertRaises(FileNotFoundError, self.client.restore, self.job, 0, checkpoint=4)
        with self.assertRaisesRegex(BurstError, "rank 2 of 2 ranks"):
            self.client.put(self.job, 3, 2, 2, b"")


class Daemons(Burst):
    def test_without_a_coordinator_bytes_are_durable(self):
        self.client = Client(None, PFS)
        self.assertEqual(self.write(1, 1, "state", b"durable"), Acknowledgement("durable", frozenset({"the PFS"})))
        self.assertEqual((self.client.newest(self.job), self.read(1, "state")), (1, b"durable"))

    def test_other_threads_run_while_a_call_waits(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = Client(f"127.0.0.1:{silent.getsockname()[1]}", PFS)
            acknowledged = []
            thread = threading.Thread(target=lambda: acknowledged.append(client.put(self.job, 1, 0, 1, b"x")))
            begin, steps = time.monotonic(), 0
            thread.start()
            while thread.is_alive():
                time.sleep(0.01)
                steps += 1
            waited = time.monotonic() - begin
        self.assertEqual(acknowledged, [Acknowledgement("durable", frozenset({"the PFS"}))])
        self.assertGreater(waited, 5)
        self.assertGreater(steps, 50, f"in {waited} s")

    def test_without_pytorch_the_reason_is_said(self):
        sys.modules["torch"] = None
        with self.assertRaisesRegex(ImportError, "entresol_burst.dcp needs PyTorch"):
            import entresol_burst.dcp


if __name__ == "__main__":
    unittest.main(verbosity=2)
