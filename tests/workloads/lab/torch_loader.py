#!/usr/bin/env python3
"""Training over PyTorch's DataLoader with a simulated GPU; it keeps an account of every thread that carries a batch.

An item of the account is a batch, `epoch:number`. How it is handed over is told by handover.py.
"""

import itertools
import os
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

import job
from handover import Batch, chain_of, hook_fetching, hook_waiting, local
from truthlog import TruthLog


def arguments():
    flags = job.parser(__doc__)
    flags.add_argument("--files", type=int, default=64)
    flags.add_argument("--file-kb", type=int, default=64)
    flags.add_argument("--workers", type=int, default=2)
    flags.add_argument("--start-method", choices=["fork", "spawn", "forkserver"], default="fork")
    flags.add_argument("--batch", type=int, default=4)
    flags.add_argument("--prefetch", type=int, default=2)
    flags.add_argument("--work", choices=["native", "python"], default="native")
    flags.add_argument("--work-ms", type=float, default=10.0, help="CPU time to decode a sample")
    flags.add_argument("--slow-worker", type=float, default=1.0, help="work of worker 0 is so many times that of others")
    flags.add_argument("--epoch", type=int, default=0, help="batches of an epoch; 0 is one without end")
    flags.add_argument("--new-workers", action="store_true", help="start workers anew each epoch")
    flags.add_argument("--pin", action="store_true", help="with the loader's pin-memory thread")
    flags.add_argument("--pin-ms", type=float, default=0.0, help="CPU time that it spends on copying a batch at least")
    flags.add_argument("--host-ms", type=float, default=0.0, help="main's own work for each step")
    flags.add_argument("--backward-ms", type=float, default=0.0, help="GPU time that a second thread drives")
    flags.add_argument("--lock-threads", type=int, default=0, help="threads of main that hold Python's global lock")
    flags.add_argument("--checkpoint-every", type=int, default=0, help="steps between checkpoints")
    flags.add_argument("--checkpoint-mb", type=int, default=16)
    return flags.parse_args()


class Samples(Sampler):
    """(epoch, 0), (epoch, 1), …"""

    def __init__(self, args):
        super().__init__(None)
        self.count = args.epoch * args.batch
        self.length = args.epoch
        self.epoch = -1

    def __iter__(self):
        self.epoch += 1
        epoch = self.epoch
        return ((epoch, n) for n in (range(self.count) if self.count else itertools.count()))

    def __len__(self):
        return self.count


class Files(Dataset):
    """Sample (epoch, n) is one file; it belongs to batch n // batch size."""

    def __init__(self, args, paths, work, log):
        self.args, self.paths, self.work, self.log = args, paths, work, log

    def __getitem__(self, index):
        epoch, n = index
        item = f"{epoch}:{n // self.args.batch}"
        chain = chain_of(self.log)
        info = torch.utils.data.get_worker_info()
        if n % self.args.batch == 0 and info is not None:
            hook_waiting()
            chain.mark("decode")
        data = job.read_file(self.paths[n % len(self.paths)])
        if info is not None:
            chain.mark("read", item)
        slow = self.args.slow_worker if info is not None and info.id == 0 else 1.0
        # In pieces, since only the sums of an entry are known, and a gap often covers the end of a batch alone.
        for piece in job.pieces(self.args.work_ms * slow):
            self.work.run(piece)
            if info is not None or self.args.workers == 0:
                chain.mark("decode", item)
        tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if info is not None:
            chain.mark("decode", item)
        elif self.args.workers == 0:
            chain.mark("decode", item)
        return item, tensor


class Collate:
    """Makes a batch of samples."""

    def __init__(self, args, log):
        self.args, self.log = args, log

    def __call__(self, samples):
        item = samples[0][0]
        tensor = default_collate([tensor for _, tensor in samples])
        chain_of(self.log).mark("decode", item)
        return Batch(self, item, tensor, os.getpid(), chain_of(self.log).last)


class Main:
    """The main thread's account of its way to the next batch."""

    def __init__(self, args, loader, log):
        self.args, self.loader, self.log = args, loader, log
        self.chain = chain_of(log)
        self.epoch = -1
        self.batches = None

    def start(self):
        """The next epoch."""
        self.epoch += 1
        first = self.batches is None or self.args.new_workers
        self.batches = iter(self.loader)
        if self.args.workers and first:
            self.hook(self.batches._worker_result_queue, self.batches._data_queue)

    def owed(self):
        return f"{self.epoch}:{self.batches._rcvd_idx}"

    def hook(self, results, data):
        poll = results._poll

        def main_polls(timeout=0.0):
            self.chain.mark("startup" if self.starting else "receive")
            if poll(0):
                # It is there already: nobody is waited for.
                return True
            arrived = poll(timeout)
            self.chain.mark("startup" if self.starting else "wait", self.owed())
            return arrived

        def pin_thread_polls(timeout=0.0):
            chain = chain_of(self.log)
            sender = getattr(local, "sender", None)
            chain.mark("fetch", sender and sender.item)
            arrived = poll(timeout)
            # For which batch will be known when it is unpickled.
            chain.woken("fetch")
            return arrived

        if results is data:
            results._poll = main_polls
            return
        results._poll = pin_thread_polls
        get = data.get

        def main_gets(*args, **kwargs):
            self.chain.mark("startup" if self.starting else "receive")
            got = get(*args, **kwargs)
            self.chain.mark("startup" if self.starting else "wait", self.owed())
            return got

        data.get = main_gets

    starting = False

    def next(self):
        """The next batch; a new epoch where one ends."""
        try:
            batch = next(self.batches)
        except StopIteration:
            self.starting = self.args.new_workers
            self.chain.mark("startup" if self.starting else "receive")
            self.start()
            batch = next(self.batches)
        self.chain.mark("startup" if self.starting else "receive")
        self.starting = False
        return batch


class Backward(threading.Thread):
    """Drives the GPU when main asks for it, as the threads of autograd do."""

    def __init__(self, args, gpu, log):
        super().__init__(daemon=True)
        self.args, self.gpu, self.log = args, gpu, log
        self.main = threading.get_native_id()
        self.wanted, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.done_ns = 0
        self.start()

    def run(self):
        chain = chain_of(self.log)
        while True:
            self.wanted.acquire()
            chain.mark("wait", thread=self.main)
            self.log.feeder()
            self.gpu.compute(self.args.backward_ms, lambda: chain.mark("host"), chain.skip)
            self.done_ns = time.monotonic_ns()
            chain.mark("host")
            self.done.release()

    def __call__(self, chain):
        """Main's way through it, by its account."""
        chain.mark("host")
        self.wanted.release()
        self.done.acquire()
        chain.waited(self.done_ns, thread=self.native_id)


def hold_the_lock(work, stop):
    while not stop.is_set():
        work.run(2.0)


def checkpoint(args, state, number):
    path = os.path.join(args.data, f"checkpoint-{number % 2}.pt")
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def train(args, main, gpu, log, work):
    chain = main.chain
    state = {"weights": torch.zeros(args.checkpoint_mb << 18)}
    backward = Backward(args, gpu, log) if args.backward_ms else None
    stop = threading.Event()
    for _ in range(args.lock_threads):
        threading.Thread(target=hold_the_lock, args=(work, stop), daemon=True).start()
    log.feeder()
    gpu.compute(args.compute_ms, lambda: None, chain.skip)
    end = time.monotonic() + args.seconds
    for step in itertools.count(1):
        if time.monotonic() >= end:
            break
        main.next()
        if args.host_ms:
            work.run(args.host_ms)
        if args.checkpoint_every and step % args.checkpoint_every == 0:
            chain.mark("host")
            checkpoint(args, state, step)
            chain.mark("checkpoint")
        if backward:
            log.feeder()
        gpu.compute(args.compute_ms, lambda: chain.mark("host"), chain.skip)
        if backward:
            backward(chain)
    stop.set()


def pretend_cuda():
    """The loader starts its pin-memory thread only where there is CUDA."""
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None


def run():
    args = arguments()
    torch.set_num_threads(1)
    log = TruthLog(args.truth)
    hook_fetching(log)
    if args.pin:
        pretend_cuda()
    paths = job.make_files(args.data, args.files, args.file_kb << 10)
    work = job.Work(args.work)
    workers = {}
    if args.workers > 0:
        workers = {
            "multiprocessing_context": args.start_method,
            "prefetch_factor": args.prefetch,
            "persistent_workers": not args.new_workers,
        }
    loader = DataLoader(
        Files(args, paths, work, log),
        batch_size=args.batch,
        sampler=Samples(args),
        num_workers=args.workers,
        collate_fn=Collate(args, log),
        pin_memory=args.pin,
        **workers,
    )
    main = Main(args, loader, log)
    main.start()
    gpu = job.Gpu(args)
    main.next()
    if not job.ready(args):
        return
    train(args, main, gpu, log, work)


if __name__ == "__main__":
    run()
