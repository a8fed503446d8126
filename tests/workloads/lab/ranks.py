#!/usr/bin/env python3
"""Training with one process for each GPU, below a launcher; in each step all of them wait for each other over TCP.

Each rank does some work of its own, meets the others (rank 0 hears from all, and answers), and computes. One of them may have more to do
than the others.
"""

import itertools
import os
import socket
import struct
import sys
import time

import job
import loader
import truthlog


def arguments():
    parser = job.parser(__doc__)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--work-ms", type=float, default=3.0, help="CPU time of a rank's own work in a step")
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--slow-ms", type=float, default=20.0, help="CPU time more that the slow rank needs for it")
    return parser.parse_args()


class Meeting:
    """A barrier over TCP: rank 0 hears a byte from every other rank, then sends one to each."""

    def __init__(self, rank, ranks, listener, port):
        self.rank, self.peers, self.tids = rank, [], []
        own = struct.pack("i", os.getpid())
        if rank == 0:
            for _ in range(ranks - 1):
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.tids.append(struct.unpack("i", peer.recv(4, socket.MSG_WAITALL))[0])
                peer.sendall(own)
                self.peers.append(peer)
        else:
            peer = socket.create_connection(("127.0.0.1", port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(own)
            self.tids.append(struct.unpack("i", peer.recv(4, socket.MSG_WAITALL))[0])
            self.peers.append(peer)

    def wait(self, account):
        if self.rank != 0:
            self.peers[0].sendall(b"x")
        account.did("host")
        for peer, tid in zip(self.peers, self.tids):
            if not peer.recv(1):
                sys.exit("ranks.py: a rank is gone")
            account.did("wait", None, tid)
        if self.rank == 0:
            for peer in self.peers:
                peer.sendall(b"x")
        account.did("host")


def rank_main(args, rank, listener, port, go, told):
    work = job.Work("native")
    account = loader.Account(args.truth)
    meeting = Meeting(rank, args.gpus, listener, port)
    gpu = job.Gpu(args, rank)
    os.write(told, b"r")
    if not os.read(go, 1):
        return
    account.log.feeder(rank)
    meeting.wait(account)
    account.skip()
    end = time.monotonic() + args.seconds
    for _ in itertools.count():
        # All of them go on as long as rank 0 does: it alone looks at the clock, and then leaves.
        if rank == 0 and time.monotonic() >= end:
            break
        for piece in job.pieces(args.work_ms + (args.slow_ms if rank == args.slow_rank else 0.0)):
            work.run(piece)
            account.did("host")
        try:
            meeting.wait(account)
        except (SystemExit, OSError):
            break
        gpu.compute(args.compute_ms, lambda: account.did("host"), account.skip)
    account.write()


def main():
    args = arguments()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    ranks = []
    for rank in range(args.gpus):
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            rank_main(args, rank, listener, port, go_read, told_write)
            os._exit(0)
        ranks.append(pid)
    for _ in ranks:
        os.read(told_read, 1)
    if job.ready(args):
        os.write(go_write, b"g" * args.gpus)
    os.close(go_write)
    for pid in ranks:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
