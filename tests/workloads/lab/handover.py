"""How a batch of PyTorch's loader gets from the worker that made it to main, and the account of it.

Hooks on the queues, on the pickling of a batch and on the fetching of its memory tell when it was handed over, also in
threads that the loader itself makes.
"""

import os
import threading
import time
from multiprocessing import reduction, resource_sharer
from multiprocessing.connection import Connection, SocketListener
from multiprocessing.resource_sharer import DupFd

from truthlog import Chain

# A thread that needs Python's global lock asks for it after 5 ms: shorter waits are for something else.
LOCK_NS = 2_500_000

local = threading.local()


def chain_of(log):
    """The chain of this thread of this process."""
    if getattr(local, "pid", None) != os.getpid():
        local.pid, local.chain = os.getpid(), Chain(log)
    return local.chain


class Sender:
    """Unpickled before the tensor of its batch: tells the receiver whose it is."""

    def __init__(self, item, pid, log=None, sharer=None):
        self.item, self.pid, self.log, self.sharer = item, pid, log, sharer

    def __reduce__(self):
        return note_sender, (self.item, self.pid, start_sharer(self.log))


def note_sender(item, pid, sharer):
    local.sender = Sender(item, pid, sharer=sharer)
    return local.sender


def start_sharer(log):
    """The thread of a worker that gives out descriptors, and keeps an account of it."""
    sharer = resource_sharer._resource_sharer
    with sharer._lock:
        sharer.log = log
        if sharer._address is None:
            sharer._start()
    return sharer._thread.native_id


def rebuild(collate, sender, tensor):
    return Batch(collate, sender.item, tensor, sender.pid, None)


class Batch:
    """A tensor and its item."""

    def __init__(self, collate, item, tensor, pid, made):
        self.collate, self.item, self.tensor, self.pid, self.made = collate, item, tensor, pid, made

    def __reduce__(self):
        # Called in the thread that sends. Until now it slept, and perhaps waited for the global lock of its process.
        log = self.collate.log
        now = log.clocks().stamp()
        last = getattr(local, "sent", None)
        delay = now[2] - last[2] if last else 0
        cpu = now[1] - last[1] if last else 0
        since = (max(self.made[0], last[0] if last else 0), now[1] - cpu, now[2] - delay)
        if now[0] - self.made[0] - delay > LOCK_NS:
            log.entry("wait", self.item, since, now, thread=self.pid)
        else:
            log.entry("handover", self.item, since, now)
        local.sending = (log, self.item, now)
        return rebuild, (self.collate, Sender(self.item, self.pid, log), self.tensor)

    def pin_memory(self, device=None):
        """What a copy to page-locked memory costs: a copy."""
        chain = chain_of(self.collate.log)
        chain.mark("fetch", self.item)
        end = time.thread_time() + self.collate.args.pin_ms / 1e3
        pinned = self.tensor.clone()
        while time.thread_time() < end:
            pinned = self.tensor.clone()
        chain.mark("pin", self.item)
        return Batch(self.collate, self.item, pinned, self.pid, None)


def hook_sending():
    """The thread that sends a batch logs its way through the pipe."""
    send_bytes = Connection.send_bytes

    def logged(self, *args, **kwargs):
        sending = local.__dict__.pop("sending", None)
        result = send_bytes(self, *args, **kwargs)
        if sending:
            log, item, start = sending
            local.sent = log.clocks().stamp()
            log.entry("handover", item, start, local.sent)
        return result

    Connection.send_bytes = logged


def hook_fetching(log):
    """Whoever receives a batch fetches the descriptor of its memory from a thread of the worker: they speak in turns."""
    detach, recv_bytes, recvfds = DupFd.detach, Connection._recv_bytes, reduction.recvfds

    def fetches(self):
        chain = chain_of(log)
        what = "fetch" if threading.current_thread() is not threading.main_thread() else "receive"
        item = getattr(local, "sender", None) and local.sender.item
        chain.mark(what, item)
        local.fetching = (chain, what, item, local.sender.sharer)
        try:
            return detach(self)
        finally:
            local.fetching = None
            chain.mark(what, item)

    def logged(waits):
        def receives(*args):
            fetching = getattr(local, "fetching", None)
            if not fetching:
                return waits(*args)
            chain, what, item, sharer = fetching
            chain.mark(what, item)
            try:
                return waits(*args)
            finally:
                chain.mark("wait", thread=sharer)

        return receives

    DupFd.detach, Connection._recv_bytes, reduction.recvfds = fetches, logged(recv_bytes), logged(recvfds)


def hook_sharing():
    """The other side of it, in a thread of the worker."""
    serve, accept, recv_bytes = resource_sharer._ResourceSharer._serve, SocketListener.accept, Connection._recv_bytes

    def serves(self):
        local.sharing = chain_of(self.log)
        serve(self)

    def logged(waits):
        def told(self, *args):
            chain = getattr(local, "sharing", None)
            if not chain:
                return waits(self, *args)
            chain.mark("handover")
            try:
                return waits(self, *args)
            finally:
                # Whoever waits for this thread has told it what to do before: then it slept for the lock alone.
                chain.woken("handover", os.getpid())

        return told

    resource_sharer._ResourceSharer._serve = serves
    SocketListener.accept, Connection._recv_bytes = logged(accept), logged(recv_bytes)


def hook_waiting():
    """The main thread of a worker sleeps until there is a batch to make; all else is its own work."""
    poll = Connection._poll
    if getattr(poll, "logs", False):
        return

    def logged(self, timeout):
        if threading.current_thread() is not threading.main_thread():
            return poll(self, timeout)
        local.chain.mark("decode")
        try:
            return poll(self, timeout)
        finally:
            local.chain.woken("decode")

    logged.logs = True
    Connection._poll = logged


hook_sending()
hook_sharing()
