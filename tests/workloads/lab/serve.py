#!/usr/bin/env python3
"""A server of data outside the job, slow to answer: over TCP on the loopback device, over a unix socket, or over named pipes.

A request is two numbers of eight bytes: which sample, and how many bytes. The server thinks for a while and sends them.
It leaves its address in the folder: `server.port` or `server.sock`. Of named pipes there are pairs, `0.ask` and `0.answer` and so on; who
makes the folder `0.taken` has the first.
"""

import argparse
import os
import socket
import struct
import sys
import threading
import time

PAIRS = 8


def answer(connection, delay):
    with connection:
        while request := connection.recv(16, socket.MSG_WAITALL):
            _, size = struct.unpack("<QQ", request)
            time.sleep(delay)
            try:
                connection.sendall(bytes(size))
            except OSError:
                return


def answer_by_pipe(folder, number, delay):
    # Open for both, so that neither opening waits and no end is seen while nobody has the other.
    ask, reply = (os.open(os.path.join(folder, f"{number}.{name}"), os.O_RDWR) for name in ("ask", "answer"))
    while request := os.read(ask, 16):
        _, size = struct.unpack("<QQ", request)
        time.sleep(delay)
        data = memoryview(bytes(size))
        while data:
            data = data[os.write(reply, data) :]


def end_with_owner():
    """Ends this process when its standard input is closed, as it is when the one that started it is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--kind", choices=["tcp", "unix", "pipe"], default="tcp")
    parser.add_argument("--delay-ms", type=float, default=5.0)
    args = parser.parse_args()
    threading.Thread(target=end_with_owner, daemon=True).start()
    if args.kind == "pipe":
        for number in range(PAIRS):
            for name in ("ask", "answer"):
                os.mkfifo(os.path.join(args.data, f"{number}.{name}"))
            work = (args.data, number, args.delay_ms / 1e3)
            threading.Thread(target=answer_by_pipe, args=work, daemon=True).start()
        print("ready", flush=True)
        threading.Event().wait()
    if args.kind == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        with open(os.path.join(args.data, "server.port"), "w") as file:
            file.write(str(listener.getsockname()[1]))
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(args.data, "server.sock"))
        listener.listen()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, args.delay_ms / 1e3), daemon=True).start()


if __name__ == "__main__":
    main()
