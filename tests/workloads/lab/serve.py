#!/usr/bin/env python3
"""A server of data outside the job, slow to answer: over TCP on the loopback device, or over a unix socket.

A request is two numbers of eight bytes: which sample, and how many bytes. The server thinks for a while and sends them.
It leaves its address in the folder: `server.port` or `server.sock`.
"""

import argparse
import os
import socket
import struct
import sys
import threading
import time


def answer(connection, delay):
    with connection:
        while request := connection.recv(16, socket.MSG_WAITALL):
            _, size = struct.unpack("<QQ", request)
            time.sleep(delay)
            try:
                connection.sendall(bytes(size))
            except OSError:
                return


def end_with_owner():
    """Ends this process when its standard input is closed, as it is when the one that started it is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--kind", choices=["tcp", "unix"], default="tcp")
    parser.add_argument("--delay-ms", type=float, default=5.0)
    args = parser.parse_args()
    threading.Thread(target=end_with_owner, daemon=True).start()
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
