#!/usr/bin/env python3
"""One rank of the peer: an EAGLE3 draft unrolled over random features, PyTorch FSDP2 on Gloo (or one plain process).

usage: eagle3_peer.py DRAFT RANK WORLD PORT STEPS UNROLL ROWS TOKENS     (WORLD 1: no FSDP, no process group)
The mathematics of eagle3 in sf-train: teacher-forced unrolling, soft cross-entropy on the draft vocabulary. As in the
reference, the frozen embedding belongs to the draft and is sharded and gathered with it. Prints what fsdp2_peer.py does.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import fully_shard

from fsdp2_peer import gemm_gflops


class Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Draft(nn.Module):
    def __init__(self, c, unroll):
        super().__init__()
        h, self.heads, self.kv, self.dims, self.unroll = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], \
            c["head_dim"], unroll
        eps, inner, linear = c["rms_norm_eps"], c["intermediate_size"], lambda n, m: nn.Linear(n, m, bias=False)
        self.embed_tokens, self.fc = nn.Embedding(c["vocab_size"], h), linear(3 * h, h)
        self.embed_tokens.weight.requires_grad_(False)
        self.hidden_norm, self.input_layernorm, self.post_norm, self.norm = (Norm(h, eps) for _ in range(4))
        self.q, self.k, self.v = (linear(2 * h, n * self.dims) for n in (self.heads, self.kv, self.kv))
        self.o, self.gate, self.up, self.down = linear(self.heads * self.dims, h), linear(h, inner), linear(h, inner), linear(inner, h)
        self.lm_head, self.teacher = linear(h, c["draft_vocab_size"]), linear(h, c["draft_vocab_size"])
        self.teacher.weight.requires_grad_(False)
        theta = c.get("rope_theta", 1e4)
        self.frequency = theta ** (-torch.arange(0, self.dims, 2, dtype=torch.float64) / self.dims)

    def turned(self, x, first):
        angle = torch.arange(first, first + x.shape[2], dtype=torch.float64)[:, None] * self.frequency
        cos, sin = (torch.cat([f, f], 1).float() for f in (angle.cos(), angle.sin()))
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def split(self, x, heads):
        return x.unflatten(-1, (heads, self.dims)).transpose(1, 2)

    def attend(self, q, keys, values):
        keys, values = ([t.repeat_interleave(self.heads // self.kv, 1) for t in ts] for ts in (keys, values))
        if len(keys) == 1:
            return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
        scale, length = self.dims**-0.5, q.shape[2]
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        scores = [(q @ keys[0].transpose(2, 3) * scale).masked_fill(~seen, float("-inf"))]
        scores += [(q * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
        p = torch.cat(scores, -1).softmax(-1)
        out = p[..., :length] @ values[0]
        for i, value in enumerate(values[1:]):
            out = out + p[..., length + i, None] * value
        return out

    def forward(self, ids, captured, final_norm):
        batch, length = ids.shape
        hidden, keys, values, loss = self.fc(captured), [], [], 0.0
        teacher = self.teacher(final_norm).softmax(-1)
        for k in range(self.unroll):
            tokens = F.pad(ids[:, 1 + k :], (0, 1 + k))
            x = torch.cat([self.input_layernorm(self.embed_tokens(tokens)), self.hidden_norm(hidden)], -1)
            keys.append(self.turned(self.split(self.k(x), self.kv), k))
            values.append(self.split(self.v(x), self.kv))
            mixed = self.attend(self.turned(self.split(self.q(x), self.heads), k), keys, values)
            hidden = hidden + self.o(mixed.transpose(1, 2).flatten(2))
            x = self.post_norm(hidden)
            hidden = hidden + self.down(F.silu(self.gate(x)) * self.up(x))
            rows = self.norm(hidden[:, : length - 1 - k])
            wanted = teacher[:, 1 + k :]
            loss = loss - 0.8**k * (wanted * self.lm_head(rows).log_softmax(-1)).sum() / (batch * (length - 1 - k))
        return loss


NAMES = {"post_norm": "midlayer.post_attention_layernorm", "hidden_norm": "midlayer.hidden_norm",
         "input_layernorm": "midlayer.input_layernorm", "q": "midlayer.self_attn.q_proj", "k": "midlayer.self_attn.k_proj",
         "v": "midlayer.self_attn.v_proj", "o": "midlayer.self_attn.o_proj", "gate": "midlayer.mlp.gate_proj",
         "up": "midlayer.mlp.up_proj", "down": "midlayer.mlp.down_proj"}


def main():
    folder, rank, world, port, steps, unroll, rows, tokens = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    rank, world, steps, unroll, rows, tokens = (int(n) for n in (rank, world, steps, unroll, rows, tokens))
    torch.set_num_threads(1)
    config = json.loads((folder / "config.json").read_text())
    model, stored = Draft(config, unroll), load_file(folder / "model.safetensors")
    for name, parameter in model.named_parameters():
        module = name.rsplit(".", 1)[0]
        value = stored.get(NAMES.get(module, module) + ".weight")
        with torch.no_grad():
            parameter.copy_(value) if value is not None else parameter.normal_(0, 0.02)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
        dist.init_process_group("gloo", rank=rank, world_size=world)
        fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, weight_decay=0.0, fused=True)
    random = torch.Generator().manual_seed(7 + rank)
    ids = torch.randint(config["vocab_size"], (rows, tokens), generator=random)
    captured, final_norm = (torch.randn(rows, tokens, n * config["hidden_size"], generator=random) for n in (3, 1))
    for _ in range(steps):
        if world > 1:
            dist.barrier()
        start, busy = time.perf_counter(), time.process_time()
        loss = model(ids, captured, final_norm)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"at": time.time(), "s": time.perf_counter() - start, "cpu": time.process_time() - busy,
                          "loss": loss.item()}), flush=True)
    if rank == 0:
        print(json.dumps({"gemm_gflops": gemm_gflops(torch.float32)}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
