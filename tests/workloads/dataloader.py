#!/usr/bin/env python3
"""A training job over PyTorch's DataLoader with a simulated GPU, which keeps its own account of its waits.

It makes its data set, warms up, says "ready" and, with --wait-go, waits for a line on standard input. Then it trains:
each step takes a batch from the loader and keeps the simulated GPU busy. It writes

- the busy file: {"t_ns": CLOCK_MONOTONIC ns, "gpu": 0, "busy": true|false} at each change, flushed at once;
- the truth log: one "step" a batch (main's wait and compute) and one "sample" a file (its worker's read and transform:
  wall, CPU and run-queue time), as tests/src/truth.rs reads it.

Modes: in "disk", files are evicted from the page cache before they are read, and the transform is small; in
"preprocess", files are cached and the transform is a fixed amount of CPU work; in "compute", both are small.
"""

import argparse
import ctypes
import itertools
import json
import os
import random
import sys
import time
import zlib

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

BLOCK = 16 << 10
READ = 64 << 10
CUDA_WAIT = {"spin": 1, "block": 4}  # CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="directory of the data set; files are made where they are missing")
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--file-kb", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", choices=["disk", "preprocess", "compute"], default="disk")
    parser.add_argument("--start-method", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--pin", choices=["yes", "no"], default="no", help="pin_memory; torch ignores it without CUDA")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
    parser.add_argument("--seconds", type=float, default=10.0, help="end after so long, unless --steps is given")
    parser.add_argument("--compute-ms", type=float, default=10.0, help="GPU time of a step")
    parser.add_argument("--work-ms", type=float, default=8.0, help="CPU time of a transform in mode preprocess")
    parser.add_argument("--warm-up", type=int, default=4, help="batches before the steady phase")
    parser.add_argument("--busy-file", required=True)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--wait-go", action="store_true")
    parser.add_argument("--cuda", help="stand-in libcuda to wait in, instead of sleeping")
    parser.add_argument("--cuda-wait", choices=CUDA_WAIT, default="spin")
    args = parser.parse_args()
    for name in ("files", "file_kb", "batch", "prefetch"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def append_line(fd, entry):
    """One write per line: the file is shared by all processes of the job."""
    os.write(fd, (json.dumps(entry) + "\n").encode())


def open_append(path):
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


class Clocks:
    """Wall, CPU and run-queue time of the thread that makes it."""

    def __init__(self):
        try:
            self.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.schedstat = None

    def run_delay(self):
        if self.schedstat is None:
            return 0
        return int(os.pread(self.schedstat, 96, 0).split()[1])

    def stamp(self):
        # Read again if the CPU was lost in between, since the times would not belong together.
        while True:
            before = self.run_delay()
            stamp = (time.monotonic_ns(), time.thread_time_ns(), self.run_delay())
            if stamp[2] == before:
                return stamp


def path_of(data, index):
    return os.path.join(data, f"shard-{index // 64:03}", f"sample-{index:05}.bin")


def make_files(args):
    source = random.Random(1)
    for index in range(args.files):
        path = path_of(args.data, index)
        if os.path.exists(path) and os.path.getsize(path) == args.file_kb << 10:
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(source.randbytes(args.file_kb << 10))
            file.flush()
            # Dirty pages cannot be evicted.
            os.fdatasync(file.fileno())


def transform(data, rounds):
    """A fixed amount of CPU work: so many blocks compressed."""
    checksum = 0
    for n in range(rounds):
        start = n * BLOCK % max(len(data) - BLOCK, 1)
        checksum = zlib.crc32(zlib.compress(data[start : start + BLOCK], 6), checksum)
    return checksum


def calibrate(work_ms, size):
    """Rounds of the transform that take so much CPU time."""
    data = random.Random(2).randbytes(size)
    best = None
    for _ in range(5):
        start = time.thread_time_ns()
        transform(data, 4)
        took = time.thread_time_ns() - start
        best = took if best is None else min(best, took)
    return max(1, round(work_ms * 1e6 / (best / 4)))


class Files(Dataset):
    """Sample number n is one file; its batch is n // batch."""

    def __init__(self, args, rounds):
        self.data, self.files, self.batch, self.workers = args.data, args.files, args.batch, args.workers
        self.evict = args.mode == "disk"
        self.rounds = rounds
        self.truth = args.truth
        self.order = list(range(args.files))
        random.Random(3).shuffle(self.order)
        self.opened_by = None

    def open_logs(self):
        # Once a process: a forked worker must not share main's clocks.
        if self.opened_by != os.getpid():
            self.opened_by = os.getpid()
            self.log = open_append(self.truth)
            self.clocks = Clocks()

    def read(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if self.evict:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            parts = []
            while part := os.read(fd, READ):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def __getitem__(self, n):
        self.open_logs()
        path = path_of(self.data, self.order[n % self.files])
        begin = self.clocks.stamp()
        data = self.read(path)
        read = self.clocks.stamp()
        checksum = transform(data, self.rounds)
        tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        end = self.clocks.stamp()
        batch = n // self.batch
        append_line(
            self.log,
            {
                "kind": "sample",
                "batch": batch,
                "worker": batch % max(self.workers, 1),
                "pid": os.getpid(),
                "read_start_ns": begin[0],
                "read_end_ns": read[0],
                "read_cpu_ns": read[1] - begin[1],
                "read_delay_ns": read[2] - begin[2],
                "transform_start_ns": read[0],
                "transform_end_ns": end[0],
                "transform_cpu_ns": end[1] - read[1],
                "transform_delay_ns": end[2] - read[2],
            },
        )
        return tensor, checksum


class Forever(Sampler):
    """0, 1, 2, …"""

    def __init__(self):
        super().__init__(None)

    def __iter__(self):
        return itertools.count()


class Gpu:
    """The simulated GPU: a sleep, or a wait inside the stand-in libcuda."""

    def __init__(self, args):
        self.busy_file = open_append(args.busy_file)
        self.cuda = None
        if args.cuda:
            self.cuda = ctypes.CDLL(args.cuda)
            self.cuda.standinLaunch.argtypes = [ctypes.c_uint64]
            self.check(self.cuda.cuInit(0))
            self.check(self.cuda.cuCtxSetFlags(CUDA_WAIT[args.cuda_wait]))

    @staticmethod
    def check(result):
        if result != 0:
            sys.exit(f"dataloader.py: the stand-in libcuda gave CUresult {result}")

    def set(self, busy):
        now = time.monotonic_ns()
        append_line(self.busy_file, {"t_ns": now, "gpu": 0, "busy": busy})
        return now

    def compute(self, seconds):
        start = self.set(True)
        if self.cuda:
            self.check(self.cuda.standinLaunch(int(seconds * 1e9)))
            self.check(self.cuda.cuCtxSynchronize())
        else:
            time.sleep(seconds)
        return start, self.set(False)


def train(args, batches, gpu):
    """The steady phase. Main's entries are written at its end: a log must not hold up what it tells of."""
    steps = []
    end = time.monotonic() + args.seconds
    for batch in itertools.count(args.warm_up):
        if len(steps) >= args.steps if args.steps else time.monotonic() >= end:
            break
        wait_start = time.monotonic_ns()
        next(batches)
        wait_end = time.monotonic_ns()
        compute_start, compute_end = gpu.compute(args.compute_ms / 1e3)
        steps.append(
            {
                "kind": "step",
                "batch": batch,
                "worker": batch % max(args.workers, 1),
                "wait_start_ns": wait_start,
                "wait_end_ns": wait_end,
                "compute_start_ns": compute_start,
                "compute_end_ns": compute_end,
            }
        )
    log = open_append(args.truth)
    for step in steps:
        append_line(log, step)


def main():
    args = arguments()
    torch.set_num_threads(1)
    make_files(args)
    rounds = calibrate(args.work_ms, args.file_kb << 10) if args.mode == "preprocess" else 0
    workers = {}
    if args.workers > 0:
        workers = {
            "multiprocessing_context": args.start_method,
            "prefetch_factor": args.prefetch,
            "persistent_workers": True,
        }
    loader = DataLoader(
        Files(args, rounds),
        batch_size=args.batch,
        sampler=Forever(),
        num_workers=args.workers,
        pin_memory=args.pin == "yes",
        **workers,
    )
    gpu = Gpu(args)
    batches = iter(loader)
    for _ in range(args.warm_up):
        next(batches)
    print("ready", flush=True)
    if args.wait_go and not sys.stdin.readline():
        return
    train(args, batches, gpu)


if __name__ == "__main__":
    main()
