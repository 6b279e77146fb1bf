#!/usr/bin/env python3
"""stream_peer.py SAMPLES TOKENS: frames of 1 MiB from one process to another by pyzmq, XXH3 on both sides; GB/s."""
import json
import multiprocessing
import sys
import time

import xxhash
import zmq

FRAME = 1 << 20


def send(port, size, count, ready):
    import os

    frames = [os.urandom(FRAME) for _ in range(size * count // FRAME)]
    socket = zmq.Context().socket(zmq.PUSH)
    socket.set_hwm(0)
    socket.connect(f"tcp://127.0.0.1:{port}")
    ready.wait()
    for frame in frames:
        socket.send(xxhash.xxh3_64_digest(frame), zmq.SNDMORE)
        socket.send(frame, copy=False)
    socket.close(linger=-1)
    socket.context.term()


def main():
    count, size = int(sys.argv[1]), int(sys.argv[2]) * 16384 * 2
    socket = zmq.Context().socket(zmq.PULL)
    socket.set_hwm(0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    ready = multiprocessing.Barrier(2)
    sender = multiprocessing.Process(target=send, args=(port, size, count, ready))
    sender.start()
    ready.wait()
    begin = time.perf_counter()
    for _ in range(size * count // FRAME):
        digest = socket.recv()
        frame = socket.recv(copy=False)
        assert xxhash.xxh3_64_digest(frame.buffer) == digest
    seconds = time.perf_counter() - begin
    sender.join()
    print(json.dumps({"gb_per_s": size * count / 1e9 / seconds}))


if __name__ == "__main__":
    main()
