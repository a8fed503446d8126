#!/usr/bin/env python3
"""Another process that wants a CPU: it computes for so many seconds, or until its standard input is closed."""

import argparse
import os
import sys
import threading
import time


def end_with_owner():
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=int, help="stay on this CPU")
    parser.add_argument("--seconds", type=float, default=120.0)
    args = parser.parse_args()
    threading.Thread(target=end_with_owner, daemon=True).start()
    if args.cpu is not None:
        os.sched_setaffinity(0, {args.cpu})
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        sum(range(10_000))
    # Not by the interpreter's own end, which would wait for the thread that reads.
    os._exit(0)


if __name__ == "__main__":
    main()
