"""Asynchronous reads of the kernel, by ctypes: Linux AIO and io_uring (x86-64).

Both classes have `read(fd, buffer, parts)`: it reads all parts, each (offset in the file, offset in the buffer, length), at
once into a buffer that lies on a page, and returns when the last is there.
"""

import ctypes
import errno
import mmap
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def call(number, *args):
    result = LIBC.syscall(ctypes.c_long(number), *args)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {errno.errorcode.get(code, code)}")
    return result


def address(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def check(results, wanted):
    """Every part must have come whole."""
    for result, (_, _, length) in zip(results, wanted):
        if result != length:
            raise OSError(-result if result < 0 else errno.EIO, "an asynchronous read failed or came short")


class IoCb(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("reqprio", ctypes.c_int16),
        ("fildes", ctypes.c_uint32),
        ("buf", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved2", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("resfd", ctypes.c_uint32),
    ]


class IoEvent(ctypes.Structure):
    """`struct io_event` of linux/aio_abi.h."""

    _fields_ = [("data", ctypes.c_uint64), ("obj", ctypes.c_uint64), ("res", ctypes.c_int64), ("res2", ctypes.c_int64)]


class Aio:
    """Linux AIO."""

    SETUP, GETEVENTS, SUBMIT = 206, 208, 209

    def __init__(self, entries):
        self.context = ctypes.c_ulong(0)
        call(self.SETUP, ctypes.c_long(entries), ctypes.byref(self.context))

    def read(self, fd, buffer, parts):
        base = address(buffer)
        blocks = [
            IoCb(data=k, opcode=0, fildes=fd, buf=base + at, nbytes=length, offset=offset)
            for k, (offset, at, length) in enumerate(parts)
        ]
        pointers = (ctypes.POINTER(IoCb) * len(blocks))(*(ctypes.pointer(block) for block in blocks))
        events = (IoEvent * len(blocks))()
        count = ctypes.c_long(len(blocks))
        call(self.SUBMIT, self.context, count, pointers)
        call(self.GETEVENTS, self.context, count, count, events, None)
        check([event.res for event in sorted(events, key=lambda event: event.data)], parts)


class Ring:
    """io_uring, with the layout of linux/io_uring.h."""

    SETUP, ENTER = 425, 426
    OFF_SQ_RING, OFF_CQ_RING, OFF_SQES = 0, 0x8000000, 0x10000000
    ENTER_GETEVENTS = 1
    OP_READ = 22
    SQE = struct.Struct("<BBHiQQIIQ24x")
    CQE = struct.Struct("<QiI")

    def __init__(self, entries):
        params = ctypes.create_string_buffer(120)
        self.fd = call(self.SETUP, ctypes.c_uint(entries), params)
        sq_entries, cq_entries = struct.unpack_from("<II", params, 0)
        # head, tail, mask, entries, flags, dropped, array
        self.sq_offsets = struct.unpack_from("<7I", params, 40)
        # head, tail, mask, entries, overflow, entries themselves
        self.cq_offsets = struct.unpack_from("<6I", params, 80)
        self.sq = mmap.mmap(self.fd, self.sq_offsets[6] + 4 * sq_entries, offset=self.OFF_SQ_RING)
        self.cq = mmap.mmap(self.fd, self.cq_offsets[5] + self.CQE.size * cq_entries, offset=self.OFF_CQ_RING)
        self.sqes = mmap.mmap(self.fd, self.SQE.size * sq_entries, offset=self.OFF_SQES)

    def read(self, fd, buffer, parts):
        base = address(buffer)
        tail_at, mask_at, array = self.sq_offsets[1], self.sq_offsets[2], self.sq_offsets[6]
        (tail,), (mask,) = struct.unpack_from("<I", self.sq, tail_at), struct.unpack_from("<I", self.sq, mask_at)
        for k, (offset, at, length) in enumerate(parts):
            slot = (tail + k) & mask
            self.SQE.pack_into(self.sqes, slot * self.SQE.size, self.OP_READ, 0, 0, fd, offset, base + at, length, 0, k)
            struct.pack_into("<I", self.sq, array + 4 * slot, slot)
        struct.pack_into("<I", self.sq, tail_at, (tail + len(parts)) & 0xFFFFFFFF)
        count = ctypes.c_uint(len(parts))
        call(self.ENTER, ctypes.c_int(self.fd), count, count, ctypes.c_uint(self.ENTER_GETEVENTS), None, ctypes.c_size_t(0))
        head_at, mask_at, cqes = self.cq_offsets[0], self.cq_offsets[2], self.cq_offsets[5]
        (head,), (mask,) = struct.unpack_from("<I", self.cq, head_at), struct.unpack_from("<I", self.cq, mask_at)
        done = [self.CQE.unpack_from(self.cq, cqes + ((head + k) & mask) * self.CQE.size) for k in range(len(parts))]
        struct.pack_into("<I", self.cq, head_at, (head + len(parts)) & 0xFFFFFFFF)
        check([result for _, result, _ in sorted(done)], parts)
