"""What all workloads of the lab have in common: flags, the simulated GPU, data files, a fixed amount of CPU work."""

import argparse
import ctypes
import json
import math
import os
import random
import sys
import time
import zlib

BLOCK = 16 << 10
CUDA_WAIT = {"spin": 1, "block": 4}  # CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC


def parser(about):
    """Flags that every workload has."""
    flags = argparse.ArgumentParser(description=about.splitlines()[0])
    flags.add_argument("--data", required=True, help="directory of the data set")
    flags.add_argument("--busy-file", required=True)
    flags.add_argument("--truth", required=True)
    flags.add_argument("--seconds", type=float, default=5.0, help="length of the steady phase")
    flags.add_argument("--wait-go", action="store_true")
    flags.add_argument("--cuda", help="stand-in libcuda to wait in, instead of sleeping")
    flags.add_argument("--cuda-wait", choices=CUDA_WAIT, default="block")
    flags.add_argument("--compute-ms", type=float, default=20.0, help="GPU time of a step")
    return flags


def ready(args):
    """Says that the job is warm; False if nobody wants it to go on."""
    print("ready", flush=True)
    return not args.wait_go or bool(sys.stdin.readline())


class Gpu:
    """The simulated GPU: a wait inside the stand-in libcuda, or a sleep. It writes the busy file."""

    def __init__(self, args, index=0):
        self.index = index
        self.busy_file = os.open(args.busy_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.cuda = None
        if args.cuda:
            self.cuda = ctypes.CDLL(args.cuda)
            self.cuda.standinLaunch.argtypes = [ctypes.c_uint64]
            self.cuda.standinCompile.argtypes = [ctypes.c_uint64]
            self.check(self.cuda.cuInit(0))
            self.check(self.cuda.cuCtxSetFlags(CUDA_WAIT[args.cuda_wait]))

    @staticmethod
    def check(result):
        if result != 0:
            sys.exit(f"the stand-in libcuda gave CUresult {result}")

    def set(self, busy):
        line = json.dumps({"t_ns": time.monotonic_ns(), "gpu": self.index, "busy": busy, "pid": os.getpid()}) + "\n"
        os.write(self.busy_file, line.encode())

    def compute(self, ms, did, skip):
        """Keeps the GPU busy for so long and waits for it.

        `did` says to the account that all since its last entry was main's own work, `skip` that it was GPU work. Entries end
        and begin at both edges of the busy time: a thread that loses its CPU there loses it inside a short entry.
        """
        did()
        self.set(True)
        did()
        self.run(ms)
        skip()
        self.set(False)
        did()

    def compile(self, ms):
        """So long in the driver, while the GPU has nothing to do."""
        self.check(self.cuda.standinCompile(int(ms * 1e6)))

    def run(self, ms):
        """GPU work of so long, waited for."""
        if self.cuda:
            self.check(self.cuda.standinLaunch(int(ms * 1e6)))
            self.check(self.cuda.cuCtxSynchronize())
        else:
            time.sleep(ms / 1e3)


def make_files(folder, count, size):
    """Files of random bytes, on the disk (dirty pages cannot be evicted) and in the page cache."""
    os.makedirs(folder, exist_ok=True)
    source = random.Random(1)
    paths = [os.path.join(folder, f"sample-{n:05}.bin") for n in range(count)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(source.randbytes(size))
            file.flush()
            os.fdatasync(file.fileno())
    return paths


def read_file(path):
    """The bytes of a file, in reads of 64 KiB."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 64 << 10):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def pieces(ms, longest=0.8):
    """Splits an amount of work into equal pieces that are not longer than this, so that an account can tell them apart."""
    count = max(1, math.ceil(ms / longest))
    return [ms / count] * count


class Work:
    """A fixed amount of CPU work: `native` releases Python's global lock while it runs, `python` holds it."""

    def __init__(self, kind):
        self.kind = kind
        self.block = random.Random(2).randbytes(8 * BLOCK)
        self.per_ms = self.calibrate()

    def calibrate(self):
        """Rounds that take a millisecond of CPU time."""
        best = None
        for _ in range(7):
            start = time.thread_time_ns()
            self.rounds(10)
            took = time.thread_time_ns() - start
            best = took if best is None else min(best, took)
        return 10 * 1e6 / best

    def rounds(self, count):
        if self.kind == "python":
            total = 0
            for n in range(count * 2000):
                total += n & 7
            return total
        checksum = 0
        for n in range(count):
            start = n % 8 * BLOCK
            checksum = zlib.crc32(zlib.compress(self.block[start : start + BLOCK], 6), checksum)
        return checksum

    def run(self, ms):
        """Does what took so many milliseconds of CPU time when it was calibrated."""
        return self.rounds(max(1, round(ms * self.per_ms)))
