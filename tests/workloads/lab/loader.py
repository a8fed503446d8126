#!/usr/bin/env python3
"""A training job over plain multiprocessing: workers read and decode samples, main feeds a simulated GPU.

Batch b is made by worker b % N and delivered over that worker's pipe, in order. Without workers main itself reads and
decodes. All threads keep an account of what they did (truthlog.py); entries lie end to end and are written when the work
is over, so that the log holds up nobody.
"""

import itertools
import multiprocessing
import os
import random
import sys
import time
import zlib

import job
import reads
import truthlog


def arguments():
    parser = job.parser(__doc__)
    parser.add_argument("--start-method", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2, help="batches that a worker may be ahead")
    parser.add_argument("--batch", type=int, default=4, help="samples of a batch")
    parser.add_argument("--read", choices=reads.KINDS, default="files")
    parser.add_argument("--files", type=int, default=256, help="samples of the data set")
    parser.add_argument("--file-kb", type=int, default=128, help="bytes of a sample")
    parser.add_argument("--make", action="store_true", help="only make the data set")
    parser.add_argument("--made", action="store_true", help="the data set is there; do not warm it by looking")
    parser.add_argument("--cold-epochs", type=int, default=1000, help="epochs whose reads find nothing in the page cache")
    parser.add_argument("--table-mb", type=int, default=64, help="size of the table of --read table, in every process")
    parser.add_argument("--work-ms", type=float, default=0.0, help="CPU time of decoding a sample")
    parser.add_argument("--host-ms", type=float, default=0.0, help="CPU time of main's own work in a step")
    parser.add_argument("--warm-up", type=int, default=2, help="batches before the steady phase")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints")
    parser.add_argument("--checkpoint-mb", type=int, default=8)
    parser.add_argument("--join", help="file in --data that names a control group for those that read")
    parser.add_argument("--checkpoint-dir", default="", help="folder in --data where checkpoints are written")
    return parser.parse_args()


class Account:
    """Entries of one thread, end to end, kept until `write`."""

    def __init__(self, path):
        self.log = truthlog.TruthLog(path)
        self.clocks = self.log.clocks()
        self.entries = []
        self.last = self.clocks.stamp()

    def skip(self):
        """What lies behind was GPU work, or a wait of no interest."""
        self.last = self.clocks.stamp()

    def did(self, what, item=None):
        """All since the last call was this."""
        now = self.clocks.stamp()
        self.entries.append((what, item, self.last, now))
        self.last = now

    def was_idle(self, until):
        """There was nothing to do until then, by the clock of the one who brought the work.

        Until then this thread slept. The kernel's run-queue clock says otherwise at times: since Linux 6.12 a sleeper may stay
        on its queue for a while, and its clock starts when it is moved to another one.
        """
        now = self.clocks.stamp()
        start, middle = self.last, min(max(until, self.last[0]), now[0])
        self.entries.append(("idle", None, start, (middle, start[1], start[2])))
        delay = min(now[2] - start[2], now[0] - middle)
        self.entries.append(("idle", None, (middle, start[1], start[2]), (now[0], now[1], start[2] + delay)))
        self.last = now

    def write(self):
        for entry in self.entries:
            self.log.entry(*entry)
        self.entries.clear()


class Samples:
    """Makes batches, and keeps account of it."""

    def __init__(self, args, work):
        self.batch, self.work_ms, self.work = args.batch, args.work_ms, work
        self.reader = reads.KINDS[args.read](args)

    def make(self, batch, account):
        checksum = 0
        for n in range(batch * self.batch, (batch + 1) * self.batch):
            data = self.reader.read(n)
            account.did("read", batch)
            checksum = zlib.crc32(data[:1024], checksum)
            if self.work_ms:
                checksum ^= self.work.run(self.work_ms)
            account.did("decode", batch)
        return checksum, bytes(2048)


def join(args):
    """Moves this process into a control group, before it uses memory: what it has is counted where it got it."""
    with open(os.path.join(args.data, args.join)) as file:
        group = file.read().strip()
    with open(os.path.join(group, "cgroup.procs"), "w") as procs:
        procs.write(str(os.getpid()))


def worker(args, work, index, result):
    if args.join:
        join(args)
    samples = Samples(args, work)
    samples.reader.open()
    account = Account(args.truth)
    while True:
        waiting = index.poll()
        batch = index.recv()
        if batch is None:
            break
        if waiting:
            # It had been told before what to do next, so this took no longer than the worker itself did.
            account.did("decode", batch)
        else:
            account.skip()
        made = samples.make(batch, account)
        result.send((batch, made))
        account.did("handover", batch)
    account.write()


class Workers:
    """Batches from worker processes, in order."""

    def __init__(self, args, work, account):
        context = multiprocessing.get_context(args.start_method)
        self.account, self.prefetch = account, args.prefetch
        self.sent = 0
        self.processes, self.indices, self.results = [], [], []
        for _ in range(args.workers):
            index_reader, index_writer = context.Pipe(duplex=False)
            result_reader, result_writer = context.Pipe(duplex=False)
            process = context.Process(target=worker, args=(args, work, index_reader, result_writer), daemon=True)
            process.start()
            index_reader.close()
            result_writer.close()
            self.processes.append(process)
            self.indices.append(index_writer)
            self.results.append(result_reader)

    def get(self, batch):
        count = len(self.processes)
        while self.sent < batch + count * self.prefetch:
            self.indices[self.sent % count].send(self.sent)
            self.sent += 1
        self.account.did("host")
        got, made = self.results[batch % count].recv()
        self.account.did("wait", batch)
        if got != batch:
            sys.exit(f"loader.py: batch {got} came instead of {batch}")
        return made

    def close(self):
        for index in self.indices:
            index.send(None)
        for batch in range(self.sent):
            # What was made ahead is still in the pipes.
            results = self.results[batch % len(self.results)]
            while results.poll():
                try:
                    results.recv()
                except EOFError:
                    break
        while any(process.is_alive() for process in self.processes):
            for results in self.results:
                try:
                    while results.poll(0.01):
                        results.recv()
                except EOFError:
                    pass


class Alone:
    """Batches that main makes itself."""

    def __init__(self, args, work, account):
        self.samples, self.account = Samples(args, work), account
        self.samples.reader.open()

    def get(self, batch):
        self.account.did("host")
        return self.samples.make(batch, self.account)

    def close(self):
        pass


def compute(gpu, ms, account):
    """Keeps the GPU busy. The account's entries reach a little into that time, so that they cover all of the gaps."""
    gpu.set(True)
    account.did("host")
    gpu.run(ms)
    account.skip()
    gpu.set(False)


def checkpoint(folder, payload):
    """Writes a file beside the last one, makes it durable, and takes its place."""
    path = os.path.join(folder, "checkpoint.pt")
    with open(path + ".tmp", "wb") as file:
        for part in payload:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def train(args, batches, gpu, account, work):
    payload = [random.Random(7).randbytes(1 << 20)] * args.checkpoint_mb
    end = time.monotonic() + args.seconds
    for step in itertools.count():
        if time.monotonic() >= end:
            break
        batches.get(args.warm_up + step)
        if args.host_ms:
            work.run(args.host_ms)
        compute(gpu, args.compute_ms, account)
        if args.checkpoint_every and step % args.checkpoint_every == args.checkpoint_every - 1:
            account.did("host")
            checkpoint(os.path.join(args.data, args.checkpoint_dir), payload)
            account.did("checkpoint")


def main():
    args = arguments()
    if args.join and not args.workers:
        join(args)
    work = job.Work("native")
    if not args.made:
        reads.KINDS[args.read](args).make()
    if args.make:
        return
    account = Account(args.truth)
    batches = (Workers if args.workers else Alone)(args, work, account)
    gpu = job.Gpu(args)
    for batch in range(args.warm_up):
        batches.get(batch)
    account.entries.clear()
    if not job.ready(args):
        return
    account.log.feeder()
    account.skip()
    train(args, batches, gpu, account, work)
    account.write()
    batches.close()


if __name__ == "__main__":
    main()
