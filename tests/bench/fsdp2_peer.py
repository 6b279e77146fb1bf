#!/usr/bin/env python3
"""One rank of the peer: PyTorch FSDP2 on Gloo (or one plain process), full fine-tuning of a causal model.

usage: fsdp2_peer.py TARGET ROWS.jsonl RANK WORLD PORT STEPS fp32|bf16 [full]     (WORLD 1: no FSDP, no process group)
full: rank 0 alone reads the weights, and every rank takes its shard of that state.
Prints one JSON object a step: wall clock at its end, seconds, processor seconds, loss.
"""
import json
import os
import sys
import time


def gemm_gflops(kind):
    """What torch reaches in a product of the size of a layer's."""
    import torch

    a, b, best = torch.ones(256, 576, dtype=kind), torch.ones(1536, 576, dtype=kind), 1e9
    for _ in range(200):
        start = time.perf_counter()
        torch.mm(a, b.t())
        best = min(best, time.perf_counter() - start)
    return 2e-9 * 256 * 576 * 1536 / best


def load_full_state(model, state, rank):
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    if rank > 0:
        model.to_empty(device=torch.device("cpu"))
        model.tie_weights()
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def main():
    target, rows, rank, world, port, steps, dtype = sys.argv[1:8]
    full = sys.argv[8:] == ["full"]
    rank, world, steps = int(rank), int(world), int(steps)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    bf16 = dtype == "bf16"
    if full and int(rank) > 0:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(target), dtype=torch.float32)
    else:
        model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    state = model.state_dict() if full and rank == 0 else {}
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
        mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    if full:
        load_full_state(model, state, rank)
        del state
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
    ids = [torch.tensor([json.loads(line)["input_ids"]]) for line in open(rows, encoding="utf-8")]
    for step in range(steps):
        if world > 1:
            dist.barrier()
        start, busy = time.perf_counter(), time.process_time()
        row = ids[(step * world + rank) % len(ids)]
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16 and world == 1):
            loss = model(input_ids=row, labels=row, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"at": time.time(), "s": time.perf_counter() - start, "cpu": time.process_time() - busy,
                          "loss": loss.item()}), flush=True)
    if rank == 0:
        print(json.dumps({"gemm_gflops": gemm_gflops(torch.bfloat16 if bf16 else torch.float32)}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
