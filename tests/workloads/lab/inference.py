#!/usr/bin/env python3
"""An inference server that has few requests: main waits for them, and keeps the simulated GPU busy with each.

With --wait epoll it waits as an event loop does; with --wait accept it blocks in `accept` and `recv`.
"""

import os
import select
import socket
import struct
import time

import job
import loader


def arguments():
    parser = job.parser(__doc__)
    parser.add_argument("--wait", choices=["epoll", "accept"], default="epoll")
    return parser.parse_args()


def receive(connection):
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts)


def serve(args, listener, gpu, account):
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        if args.wait == "epoll":
            poll.poll()
        connection, _ = listener.accept()
        request = receive(connection)
        account.was_idle(*struct.unpack_from("<Q", request))
        loader.compute(gpu, args.compute_ms, account)
        connection.sendall(request)
        connection.close()
        account.did("host")


def main():
    args = arguments()
    os.makedirs(args.data, exist_ok=True)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    with open(os.path.join(args.data, "inference.port"), "w") as file:
        file.write(str(listener.getsockname()[1]))
    account = loader.Account(args.truth)
    gpu = job.Gpu(args)
    if not job.ready(args):
        return
    account.log.feeder()
    account.skip()
    serve(args, listener, gpu, account)
    account.write()


if __name__ == "__main__":
    main()
