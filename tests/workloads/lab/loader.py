#!/usr/bin/env python3
"""A training job over plain multiprocessing, or over threads: workers read and decode samples, main feeds a simulated GPU.

Batch b is made by worker b % N and delivered over that worker's pipe, in order. Without workers main itself reads and
decodes. All threads keep an account of what they did (truthlog.py); entries lie end to end and are written when the work
is over, so that the log holds up nobody.
"""

import concurrent.futures
import itertools
import multiprocessing
import os
import queue
import random
import sys
import threading
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
    parser.add_argument("--work", choices=["native", "python"], default="native", help="python holds the global lock")
    parser.add_argument("--decode-threads", type=int, default=0, help="threads in every worker that share the decoding")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="main sleeps so long in each step")
    parser.add_argument("--lock-threads", type=int, default=0, help="threads of main that hold Python's global lock")
    parser.add_argument("--threads", action="store_true", help="workers are threads of main")
    parser.add_argument("--host-ms", type=float, default=0.0, help="CPU time of main's own work in a step")
    parser.add_argument("--driver-ms", type=float, default=0.0, help="time in the GPU's driver in a step, as to compile a kernel")
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

    def did(self, what, item=None, thread=None):
        """All since the last call was this; a wait may be for whatever a thread does."""
        now = self.clocks.stamp()
        self.entries.append((what, item, self.last, now, thread))
        self.last = now

    def waited(self, item, until):
        """A wait for an item that was there at that time. Since then this thread was on its way back: it waited for a CPU, or for
        Python's global lock, and blocked for nothing else."""
        now = self.clocks.stamp()
        told, back = truthlog.told_at(self.last, now, until)
        self.entries += [("wait", item, self.last, told, None), ("host", None, told, back, None)]
        self.last = now

    def was_idle(self, until):
        """There was nothing to do until then, by the clock of the one who brought the work."""
        now = self.clocks.stamp()
        told, back = truthlog.told_at(self.last, now, until)
        self.entries += [("idle", None, self.last, told, None), ("idle", None, told, back, None)]
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
        self.threads, self.log, self.local = args.decode_threads, truthlog.TruthLog(args.truth), threading.local()
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads) if self.threads else None
        # Kept until the work is over: writing them would take the global lock from those that decode.
        self.entries = []

    def decode_in_threads(self, batch, account):
        """Like libraries that bring a pool of threads of their own."""
        items = [f"{batch}/{n}" for n in range(self.threads)]
        told = time.monotonic_ns()
        parts = [(item, threading.Semaphore(0)) for item in items]
        for item, done in parts:
            self.pool.submit(self.decode_part, item, told, done)
        for item, done in parts:
            done.acquire()
            account.did("wait", item)

    def decode_part(self, item, told, done):
        clocks = self.log.clocks()
        # From when it was told to: until it gets a CPU, it waits for one.
        last = getattr(self.local, "last", None)
        start = (max(told, last[0]), *last[1:]) if last else clocks.stamp()
        entries = []
        for piece in job.pieces(self.work_ms / self.threads):
            self.work.run(piece)
            now = clocks.stamp()
            entries.append((start, now))
            start = now
        done.release()
        # It may have lost its CPU before it could say that it is done.
        self.local.last = clocks.stamp()
        entries.append((start, self.local.last))
        self.entries.append((clocks.tid, item, entries))

    def write(self):
        """What the threads that share the decoding did."""
        for tid, item, entries in self.entries:
            for start, end in entries:
                self.log.entry("decode", item, start, end, tid=tid)

    def make(self, batch, account):
        checksum = 0
        for n in range(batch * self.batch, (batch + 1) * self.batch):
            data = self.reader.read(n)
            account.did("read", batch)
            checksum = zlib.crc32(data[:1024], checksum)
            if self.pool:
                self.decode_in_threads(batch, account)
            elif self.work_ms:
                # In pieces, since only the sums of an entry are known, and a gap often covers the end of a batch alone.
                for piece in job.pieces(self.work_ms):
                    checksum ^= self.work.run(piece)
                    account.did("decode", batch)
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
    samples.write()


class Workers:
    """Batches from worker processes, in order."""

    def __init__(self, args, work, account):
        context = multiprocessing.get_context(args.start_method)
        self.account, self.prefetch = account, args.prefetch
        self.sent = 0
        self.processes, self.indices, self.results, self.threads = [], [], [], []
        for _ in range(args.workers):
            index_reader, index_writer = context.Pipe(duplex=False)
            result_reader, result_writer = context.Pipe(duplex=False)
            process = context.Process(target=worker, args=(args, work, index_reader, result_writer), daemon=True)
            process.start()
            index_reader.close()
            result_writer.close()
            self.processes.append(process)
            # With threads below it, what the worker itself waits for counts, too.
            self.threads.append(process.pid if args.decode_threads else None)
            self.indices.append(index_writer)
            self.results.append(result_reader)

    def get(self, batch):
        count = len(self.processes)
        while self.sent < batch + count * self.prefetch:
            self.indices[self.sent % count].send(self.sent)
            self.sent += 1
        self.account.did("host")
        got, made = self.results[batch % count].recv()
        thread = self.threads[batch % count]
        self.account.did("wait", None if thread else batch, thread)
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


class Channel:
    """A queue between threads, with the methods of a pipe."""

    def __init__(self):
        self.queue = queue.SimpleQueue()

    def poll(self):
        return not self.queue.empty()

    def recv(self):
        return self.queue.get()[0]

    def recv_and_when(self):
        """What was sent, and when."""
        return self.queue.get()

    def send(self, what):
        self.queue.put((what, time.monotonic_ns()))


class Threads:
    """Batches from threads of this process, in order."""

    def __init__(self, args, work, account):
        self.account, self.prefetch, self.sent = account, args.prefetch, 0
        self.indices = [Channel() for _ in range(args.workers)]
        self.results = [Channel() for _ in range(args.workers)]
        self.threads = [
            threading.Thread(target=worker, args=(args, work, index, result))
            for index, result in zip(self.indices, self.results)
        ]
        for thread in self.threads:
            thread.start()

    def get(self, batch):
        count = len(self.threads)
        while self.sent < batch + count * self.prefetch:
            self.indices[self.sent % count].send(self.sent)
            self.sent += 1
        self.account.did("host")
        (_, made), sent = self.results[batch % count].recv_and_when()
        self.account.waited(batch, sent)
        return made

    def close(self):
        for index in self.indices:
            index.send(None)
        for thread in self.threads:
            thread.join()


class Alone:
    """Batches that main makes itself."""

    def __init__(self, args, work, account):
        self.samples, self.account = Samples(args, work), account
        self.samples.reader.open()

    def get(self, batch):
        self.account.did("host")
        return self.samples.make(batch, self.account)

    def close(self):
        self.samples.write()


def compute(gpu, ms, account):
    """Keeps the GPU busy."""
    gpu.compute(ms, lambda: account.did("host"), account.skip)


def checkpoint(folder, payload):
    """Writes a file beside the last one, makes it durable, and takes its place."""
    path = os.path.join(folder, "checkpoint.pt")
    with open(path + ".tmp", "wb") as file:
        for part in payload:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def hold_the_lock(work):
    """Code of the job's own in another thread: it holds Python's global lock as long as it may."""
    while True:
        work.run(2.0)


def train(args, batches, gpu, account, work):
    payload = [random.Random(7).randbytes(1 << 20)] * args.checkpoint_mb
    end = time.monotonic() + args.seconds
    for step in itertools.count():
        if time.monotonic() >= end:
            break
        batches.get(args.warm_up + step)
        if args.host_ms:
            work.run(args.host_ms)
        if args.sleep_ms:
            account.did("host")
            time.sleep(args.sleep_ms / 1e3)
            account.did("sleep")
        if args.driver_ms:
            account.did("host")
            gpu.compile(args.driver_ms)
            account.did("driver")
        compute(gpu, args.compute_ms, account)
        if args.checkpoint_every and step % args.checkpoint_every == args.checkpoint_every - 1:
            account.did("host")
            checkpoint(os.path.join(args.data, args.checkpoint_dir), payload)
            account.did("checkpoint")


def main():
    args = arguments()
    if args.join and not args.workers:
        join(args)
    work = job.Work(args.work)
    # Only where the lock is what it is about: many threads that keep it while they look at their clocks hold up each other.
    truthlog.Clocks.keep_lock = args.work == "python"
    for _ in range(args.lock_threads):
        threading.Thread(target=hold_the_lock, args=(job.Work("python"),), daemon=True).start()
    if not args.made:
        reads.KINDS[args.read](args).make()
    if args.make:
        return
    account = Account(args.truth)
    kind = Threads if args.threads else Workers
    batches = (kind if args.workers else Alone)(args, work, account)
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
