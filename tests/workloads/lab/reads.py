"""Ways in which a job reads its samples. Each is a class whose `read(n)` gives the bytes of sample number n."""

import itertools
import mmap
import os
import random
import socket
import struct

import aio

PAGE = 4096
CHUNK = 64 << 10


def evict(fd):
    """Forgets what the page cache holds of a file. Dirty pages cannot be evicted, so they are written first."""
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def make_file(path, size, seed=1, warm=False):
    """Makes a file of random bytes unless it is there, and leaves it in the page cache or not."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or os.path.getsize(path) != size:
        source = random.Random(seed)
        with open(path, "wb") as file:
            for start in range(0, size, 1 << 20):
                file.write(source.randbytes(min(1 << 20, size - start)))
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        evict(fd)
        while warm and os.read(fd, 1 << 20):
            pass
    finally:
        os.close(fd)


class Files:
    """One file a sample, in folders of 64. In the first `cold_epochs` epochs none is in the page cache when it is read."""

    def __init__(self, args):
        self.data, self.files, self.size = args.data, args.files, args.file_kb << 10
        self.cold_epochs = args.cold_epochs
        self.order = list(range(self.files))
        random.Random(3).shuffle(self.order)

    def path(self, n):
        index = self.order[n % self.files]
        return os.path.join(self.data, f"shard-{index // 64:03}", f"sample-{index:05}.bin")

    def make(self):
        for n in range(self.files):
            make_file(self.path(n), self.size, n, warm=self.cold_epochs == 0)

    def open(self):
        pass

    def read(self, n):
        fd = os.open(self.path(n), os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The first epoch is cold by itself.
            if self.files <= n < self.files * self.cold_epochs:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            parts = []
            while part := os.read(fd, CHUNK):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)


class Tree(Files):
    """Many small files, found by listing their folder and asking for their size, as loaders of image folders do."""

    def read(self, n):
        path = self.path(n)
        name = os.path.basename(path)
        with os.scandir(os.path.dirname(path)) as entries:
            found = any(entry.name == name and entry.stat().st_size == self.size for entry in entries)
        if not found:
            raise FileNotFoundError(path)
        return super().read(n)


class Big:
    """All samples in one file of `files` samples."""

    flags = os.O_RDONLY | os.O_CLOEXEC
    advice = os.POSIX_FADV_NORMAL
    in_order = False

    def __init__(self, args):
        self.path = os.path.join(args.data, "shard.bin")
        self.files, self.size = args.files, args.file_kb << 10
        self.order = list(range(self.files))
        if not self.in_order:
            random.Random(3).shuffle(self.order)

    def make(self):
        make_file(self.path, self.files * self.size)

    def open(self):
        self.fd = os.open(self.path, self.flags)
        os.posix_fadvise(self.fd, 0, 0, self.advice)

    def offset(self, n):
        return self.order[n % self.files] * self.size

    def read(self, n):
        return os.pread(self.fd, self.size, self.offset(n))


class Sequential(Big):
    """Large reads one behind the other."""

    in_order = True
    advice = os.POSIX_FADV_SEQUENTIAL


class Mapped(Big):
    """Page faults: some bytes of each page of a sample, through a mapping without read-ahead."""

    def open(self):
        super().open()
        self.map = mmap.mmap(self.fd, 0, prot=mmap.PROT_READ)
        self.map.madvise(mmap.MADV_RANDOM)

    def read(self, n):
        start = self.offset(n)
        return b"".join(self.map[at : at + 1024] for at in range(start, start + self.size, PAGE))


class Direct(Big):
    """Reads past the page cache."""

    flags = Big.flags | os.O_DIRECT

    def open(self):
        super().open()
        self.buffer = mmap.mmap(-1, self.size)

    def read(self, n):
        got = os.preadv(self.fd, [self.buffer], self.offset(n))
        return self.buffer[:got]


class Asynchronous(Direct):
    """Kernel AIO: submits all parts of a sample at once and waits for them in `io_getevents`."""

    PARTS = 4
    queue = aio.Aio

    def open(self):
        super().open()
        self.asynchronous = self.queue(self.PARTS)

    def read(self, n):
        part = self.size // self.PARTS
        self.asynchronous.read(self.fd, self.buffer, [(self.offset(n) + k * part, k * part, part) for k in range(self.PARTS)])
        return self.buffer[: self.size]


class Ring(Asynchronous):
    """The same by io_uring, which waits in `io_uring_enter`."""

    queue = aio.Ring


class Socket:
    """Asks a server (serve.py) for a sample; it answers when it likes."""

    def __init__(self, args):
        self.data, self.size = args.data, args.file_kb << 10

    def make(self):
        pass

    def open(self):
        self.connection = self.connect()

    def read(self, n):
        self.connection.sendall(struct.pack("<QQ", n, self.size))
        parts, missing = [], self.size
        while missing:
            part = self.connection.recv(missing)
            if not part:
                raise ConnectionError("the server of the data closed the connection")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


class Unix(Socket):
    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(os.path.join(self.data, "server.sock"))
        return connection


class Tcp(Socket):
    def connect(self):
        with open(os.path.join(self.data, "server.port")) as file:
            return socket.create_connection(("127.0.0.1", int(file.read())))


class Pipes:
    """Asks a process outside the job (serve.py) for a sample, over named pipes."""

    def __init__(self, args):
        self.data, self.size = args.data, args.file_kb << 10

    def make(self):
        pass

    def open(self):
        number = next(n for n in itertools.count() if self.take(n))
        self.ask, self.answer = (os.open(os.path.join(self.data, f"{number}.{name}"), os.O_RDWR) for name in ("ask", "answer"))

    def take(self, number):
        try:
            os.mkdir(os.path.join(self.data, f"{number}.taken"))
            return True
        except FileExistsError:
            return False

    def read(self, n):
        os.write(self.ask, struct.pack("<QQ", n, self.size))
        parts, missing = [], self.size
        while missing:
            part = os.read(self.answer, missing)
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


class Table:
    """Lookups in a table in memory that each process has for itself; short of memory, they fault."""

    def __init__(self, args):
        self.size, self.bytes = args.file_kb << 10, args.table_mb << 20
        self.source = random.Random(5)

    def make(self):
        pass

    def open(self):
        self.table = mmap.mmap(-1, self.bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Half of each page is random, so that compression saves a part only.
        for at in range(0, self.bytes, PAGE):
            self.table[at : at + PAGE // 2] = self.source.randbytes(PAGE // 2)
        # The same for every sample: what the kernel does in a read is to fetch pages back, not to map and unmap room for the result.
        self.sample = bytearray(self.size)

    def read(self, n):
        del n
        pages = self.bytes // PAGE
        for to in range(0, self.size, 1024):
            at = self.source.randrange(pages) * PAGE
            self.sample[to : to + 1024] = self.table[at : at + 1024]
        return self.sample


KINDS = {
    "files": Files,
    "tree": Tree,
    "sequential": Sequential,
    "mmap": Mapped,
    "direct": Direct,
    "aio": Asynchronous,
    "uring": Ring,
    "unix": Unix,
    "tcp": Tcp,
    "pipe": Pipes,
    "table": Table,
}
