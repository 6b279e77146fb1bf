#!/usr/bin/env python3
"""One rank of Gloo: all-gather and reduce-scatter of 64 MiB of fp32 between two processes of one host.

usage: collectives_peer.py RANK PORT [ROUNDS]        Rank 0 prints the medians in GiB/s, payload bytes a rank over time.
"""
import json
import os
import statistics
import sys
import time


def main():
    rank, port, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 11
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    whole, half = torch.ones(16 << 20), torch.ones(8 << 20)

    def speed(body):
        taken = []
        for _ in range(rounds):
            dist.barrier()
            start = time.perf_counter()
            body()
            dist.barrier()
            taken.append(time.perf_counter() - start)
        return 2**-4 / statistics.median(taken)

    found = {"gather": speed(lambda: dist.all_gather_into_tensor(whole, half)),
             "reduce": speed(lambda: dist.reduce_scatter_tensor(half, whole))}
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
