#!/usr/bin/env python3
"""Clients of an inference server, outside the job: requests with exponential gaps, each over a connection of its own.

A request begins with the time at which it was sent: eight bytes, nanoseconds of CLOCK_MONOTONIC.
"""

import argparse
import os
import random
import socket
import struct
import sys
import threading
import time


def end_with_owner():
    """Ends this process when its standard input is closed, as it is when the one that started it is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder where the server leaves its port")
    parser.add_argument("--mean-ms", type=float, default=60.0, help="mean time between an answer and the next request")
    args = parser.parse_args()
    threading.Thread(target=end_with_owner, daemon=True).start()
    with open(os.path.join(args.data, "inference.port")) as file:
        address = ("127.0.0.1", int(file.read()))
    source = random.Random(11)
    while True:
        time.sleep(source.expovariate(1e3 / args.mean_ms))
        sent = struct.pack("<Q", time.monotonic_ns())
        try:
            with socket.create_connection(address) as connection:
                connection.sendall(sent + b"a prompt of a person, or so" * 8)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
        except OSError:
            # The server has ended.
            return


if __name__ == "__main__":
    main()
