#!/usr/bin/env python3
"""An NFS server of the lab's own (nfs-ganesha) behind a slow link: another port, whose answers are held back.

It exports a folder as /data, on the loopback device alone, says `port N` when it can be mounted, and takes the link's delay in
milliseconds from the lines of its standard input. When that is closed, it ends, and the server with it.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time

CONFIG = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSV4 {{ Graceless = true; Only_Numeric_Owners = true; RecoveryRoot = "{scratch}"; }}
EXPORT {{
    Export_Id = 1; Path = "{folder}"; Pseudo = /data; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
    FSAL {{ Name = VFS; }}
}}
"""
PR_SET_PDEATHSIG = 1

delay_s = 0.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start_server(folder, scratch):
    """Its port, once it answers there."""
    port = free_port()
    path = os.path.join(scratch, "ganesha.conf")
    with open(path, "w") as file:
        file.write(CONFIG.format(port=port, folder=folder, scratch=scratch))
    files = {flag: os.path.join(scratch, name) for flag, name in (("-L", "ganesha.log"), ("-p", "ganesha.pid"))}
    words = ["ganesha.nfsd", "-F", "-f", path, *(word for pair in files.items() for word in pair)]
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=die_with_parent)
    end = time.monotonic() + 30
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return port
        except OSError:
            time.sleep(0.05)
    with open(files["-L"]) as log:
        sys.exit(f"serve_nfs.py: the NFS server did not start: {log.read()[-2000:]}")


def pass_on(source, sink, slow):
    while data := source.recv(64 << 10):
        if slow:
            time.sleep(delay_s)
        sink.sendall(data)


def carry(source, sink, slow):
    """One direction of a connection. Its end, orderly or not, ends the other one, too."""
    try:
        pass_on(source, sink, slow)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def link(listener, port):
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink, slow in ((client, server, False), (server, client, True)):
            threading.Thread(target=carry, args=(source, sink, slow), daemon=True).start()


def main():
    global delay_s
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="the folder to export")
    parser.add_argument("--scratch", required=True, help="folder for the server's own files")
    args = parser.parse_args()
    port = start_server(args.data, args.scratch)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=link, args=(listener, port), daemon=True).start()
    print("port", listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        delay_s = float(line) / 1e3


if __name__ == "__main__":
    main()
