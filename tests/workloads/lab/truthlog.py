"""A workload's own account of what each of its threads did and waited for, by clocks that the tracer does not touch.

One JSON object a line; times are nanoseconds of CLOCK_MONOTONIC, `cpu_ns` is the thread's CPU clock, `delay_ns` its time
on a run queue without a CPU (the second field of /proc/thread-self/schedstat), `blocks` how often it gave its CPU away to wait
(voluntary context switches). docs/lab.md describes the entries and how they are scored.
"""

import contextlib
import ctypes
import json
import os
import resource
import threading
import time


# Called without giving up Python's global lock.
pread = ctypes.PyDLL(None, use_errno=True).pread
pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]


class Clocks:
    """Wall, CPU and run-queue time of the thread that makes it."""

    # Whether looking at the clock is no occasion to lose Python's global lock.
    keep_lock = False

    def __init__(self):
        self.tid = threading.get_native_id()
        self.schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.text = ctypes.create_string_buffer(96)

    def delay(self):
        if not self.keep_lock:
            return int(os.pread(self.schedstat, 96, 0).split()[1])
        if pread(self.schedstat, self.text, 95, 0) <= 0:
            raise OSError(ctypes.get_errno(), "cannot read /proc/thread-self/schedstat")
        return int(self.text.value.split()[1])

    def stamp(self):
        # Read again if the CPU was lost in between, since the times would not belong together.
        while True:
            before = self.delay()
            stamp = (time.monotonic_ns(), time.thread_time_ns(), self.delay(), *self.kernel_and_blocks())
            if stamp[2] == before:
                return stamp

    @staticmethod
    def kernel_and_blocks():
        """CPU time inside the kernel (by the timer tick, so right on average only), and voluntary context switches."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return int(usage.ru_stime * 1e9), usage.ru_nvcsw


def told_at(start, now, when):
    """Splits what a thread did between two stamps where it was told to go on: until then it slept.

    Gives back the end of the first part and that of the second. The kernel's run-queue clock says otherwise at times: since
    Linux 6.12 a sleeper may stay on its queue for a while, and its clock starts when it is moved to another one.
    """
    middle = min(max(when, start[0]), now[0])
    delay = min(now[2] - start[2], now[0] - middle)
    return (middle, start[1], start[2]), (now[0], now[1], start[2] + delay)


class TruthLog:
    """Writes one account for all threads and processes of a job; works across fork, and in spawned processes."""

    def __init__(self, path):
        self.path = path
        self._open()

    def _open(self):
        self.pid = os.getpid()
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.local = threading.local()

    def __getstate__(self):
        return self.path

    def __setstate__(self, path):
        self.path = path
        self._open()

    def clocks(self):
        if self.pid != os.getpid():
            self._open()
        clocks = getattr(self.local, "clocks", None)
        if clocks is None:
            clocks = self.local.clocks = Clocks()
        return clocks

    def write(self, entry):
        # One write a line: the file is shared by all processes.
        os.write(self.fd, (json.dumps(entry) + "\n").encode())

    def feeder(self, gpu=0):
        """This thread gives the GPU its work from now on."""
        clocks = self.clocks()
        self.write({"feeder": clocks.tid, "gpu": gpu, "t_ns": time.monotonic_ns()})

    @contextlib.contextmanager
    def doing(self, what, item=None):
        """This thread does `what`, for `item`. Entries of one thread must not be nested."""
        clocks = self.clocks()
        start = clocks.stamp()
        try:
            yield
        finally:
            self.entry(what, item, start, clocks.stamp())

    def entry(self, what, item, start, end, thread=None, tid=None):
        """An entry between two stamps of the clocks of this thread, or of `tid`; `thread` is that a wait is for, whatever it does."""
        # A stamp that was put together by hand has no more than three times.
        whole = len(start) > 3 and len(end) > 3
        self.write(
            {
                "pid": self.pid,
                "tid": tid or self.clocks().tid,
                "doing": what,
                "item": None if item is None else str(item),
                "thread": thread,
                "start_ns": start[0],
                "end_ns": end[0],
                "cpu_ns": end[1] - start[1],
                "delay_ns": end[2] - start[2],
                "kernel_ns": end[3] - start[3] if whole else 0,
                "blocks": end[4] - start[4] if whole else None,
            }
        )

    def waits_for(self, item):
        """This thread waits until another one has finished `item`."""
        return self.doing("wait", item)


class Chain:
    """Entries of one thread without holes: each begins where the one before it ended."""

    def __init__(self, log):
        self.log = log
        self.last = log.clocks().stamp()

    def mark(self, what, item=None, thread=None):
        """Since the last mark, this thread did `what`."""
        now = self.log.clocks().stamp()
        self.log.entry(what, item, self.last, now, thread)
        self.last = now

    def waited(self, until, item=None, thread=None):
        """A wait that was over at that time. Since then this thread was on its way back: it waited for a CPU, or for Python's
        global lock, and blocked for nothing else."""
        now = self.log.clocks().stamp()
        told, back = told_at(self.last, now, until)
        self.log.entry("wait", item, self.last, told, thread)
        self.log.entry("host", None, told, back)
        self.last = now

    def woken(self, what, thread=None):
        """Slept since the last mark, then wanted a CPU, and did `what`. It slept until it was told to go on, and from then on for
        `thread`: whoever asks why it slept told it before."""
        now = self.log.clocks().stamp()
        told, back = told_at(self.last, now, now[0] - (now[1] - self.last[1]) - (now[2] - self.last[2]))
        if thread is not None:
            self.log.entry("wait", None, self.last, told, thread)
        self.log.entry(what, None, told, back)
        self.last = now

    def skip(self):
        """What was since the last mark is not logged: the GPU was busy."""
        self.last = self.log.clocks().stamp()
