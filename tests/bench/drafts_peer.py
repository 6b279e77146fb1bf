#!/usr/bin/env python3
"""A draft's training step in plain PyTorch, eager, one process: the peer of run.py --part drafts.

usage: drafts_peer.py FAMILY DRAFT DTYPE STEPS THREADS TOKENS ANCHORS     (FAMILY: eagle3, dflash, dspark; DTYPE: fp32, bf16)
The mathematics of sf-train, written as it reads: dense masks, whole tensors of logits, autocast for bf16. Shapes come from
the draft's config.json, values from a generator. Prints a line of JSON a step, then the process's peak resident MiB.
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import eagle3_peer
from eagle3_peer import Norm
from fsdp2_peer import gemm_gflops

SUPERVISED = 0.75
GAMMA = {"dflash": 7.0, "dspark": 4.0}


def linear(n, m):
    return nn.Linear(n, m, bias=False)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.dims = c["hidden_size"], c["head_dim"]
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        eps, inner = c["rms_norm_eps"], c["intermediate_size"]
        self.input_norm, self.post_norm = Norm(h, eps), Norm(h, eps)
        self.q_norm, self.k_norm = Norm(self.dims, eps), Norm(self.dims, eps)
        self.q, self.k, self.v = (linear(h, n * self.dims) for n in (self.heads, self.kv, self.kv))
        self.o, self.gate, self.up, self.down = linear(self.heads * self.dims, h), linear(h, inner), linear(h, inner), linear(inner, h)

    def split(self, x, heads):
        return x.unflatten(-1, (heads, self.dims)).transpose(1, 2)

    def forward(self, h, context, turn, mask):
        x = self.input_norm(h)
        both = torch.cat([context, x], 1)
        q = turn(self.q_norm(self.split(self.q(x), self.heads)), x.shape[1])
        k = turn(self.k_norm(self.split(self.k(both), self.kv)), both.shape[1])
        v = self.split(self.v(both), self.kv)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        h = h + self.o(F.scaled_dot_product_attention(q, k, v.to(q.dtype), attn_mask=mask).transpose(1, 2).flatten(2))
        x = self.post_norm(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


class Blocks(nn.Module):
    """DFlash's backbone; with `dspark`, its Markov bias and confidence as well."""

    def __init__(self, c, dspark):
        super().__init__()
        h, vocab, own = c["hidden_size"], c["vocab_size"], c.get("dflash_config", {})
        self.dims, self.block, self.dspark = c["head_dim"], c.get("block_size") or own["block_size"], dspark
        self.mask_token = own.get("mask_token_id", c.get("mask_token_id"))
        self.fc = linear(len(own.get("target_layer_ids") or c["target_layer_ids"]) * h, h)
        self.hidden_norm, self.norm = Norm(h, c["rms_norm_eps"]), Norm(h, c["rms_norm_eps"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.embed, self.head = nn.Embedding(vocab, h), linear(h, vocab)
        for table in (self.embed, self.head):
            table.weight.requires_grad_(False)
        self.frequency = c.get("rope_theta", 1e4) ** (-torch.arange(0, self.dims, 2, dtype=torch.float64) / self.dims)
        if dspark:
            self.w1, self.w2, self.confidence = nn.Embedding(vocab, own["markov_rank"]), linear(own["markov_rank"], vocab), nn.Linear(h, 1)

    def states(self, ids, captured, anchors):
        length, slots, size = ids.shape[1], len(anchors) * self.block, self.block
        places = (anchors[:, None] + torch.arange(size)).flatten()
        noise = torch.full((len(anchors), size), self.mask_token)
        noise[:, 0] = ids[0, anchors]
        angle = torch.cat([torch.arange(length), places])[:, None].double() * self.frequency
        cos, sin = (torch.cat([f, f], 1).float() for f in (angle.cos(), angle.sin()))

        def turn(x, count):
            left, right = x.chunk(2, -1)
            return x * cos[-count:] + torch.cat([-right, left], -1) * sin[-count:]

        block = torch.arange(slots) // size
        mask = torch.cat([torch.arange(length)[None, :] < anchors.repeat_interleave(size)[:, None], block[:, None] == block[None, :]], 1)
        context, h = self.hidden_norm(self.fc(captured)), self.embed(noise.flatten())[None]
        for layer in self.layers:
            h = layer(h, context, turn, mask)
        return self.norm(h)[0]

    def forward(self, ids, captured, final_norm, supervised):
        length, size = ids.shape[1], self.block
        valid = (supervised[:-1] & supervised[1:]).nonzero().flatten()
        anchors = valid[torch.randperm(len(valid))[: self.anchors]].sort().values
        states, offset = self.states(ids, captured, anchors), torch.arange(size)
        place = anchors[:, None] + offset + (1 if self.dspark else 0)
        inside = place.clamp(max=length - 1)
        weight = ((place < length) & supervised[inside]).float()
        label = ids[0, inside].flatten()
        if not self.dspark:
            weight = (weight * (offset > 0) * torch.exp(-(offset - 1) / GAMMA["dflash"])).flatten()
            return (weight * F.cross_entropy(self.head(states).float(), label, reduction="none")).sum() / weight.sum()
        weight = (weight.cumprod(1) * torch.exp(-offset / GAMMA["dspark"])).flatten()
        before = torch.cat([ids[0, anchors][:, None], ids[0, inside][:, :-1]], 1).flatten()
        logits = (self.head(states) + self.w2(self.w1(before))).float()
        with torch.no_grad():
            teacher = self.head(final_norm[0, (inside - 1).flatten()]).float().softmax(-1)
        distance = (logits.softmax(-1) - teacher).abs().sum(-1)
        judged = F.binary_cross_entropy_with_logits(self.confidence(states)[:, 0].float(),
                                                    (1 - distance.detach() / 2).clamp(0, 1), reduction="none")
        loss = 0.1 * F.cross_entropy(logits, label, reduction="none") + 0.9 * distance + judged
        return (weight * loss).sum() / weight.sum()


def main():
    family, folder, dtype = sys.argv[1:4]
    steps, threads, tokens, anchors = (int(word) for word in sys.argv[4:])
    torch.set_num_threads(threads)
    torch.manual_seed(7)
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    if family == "eagle3":
        model = eagle3_peer.Draft(config, unroll=7)
    else:
        model = Blocks(config, family == "dspark")
        model.anchors = anchors
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, weight_decay=0.0, fused=True)
    h = config["hidden_size"]
    width = (model.fc.in_features, h)
    ids = torch.randint(config["vocab_size"], (1, tokens))
    captured, final_norm = (torch.randn(1, tokens, n) for n in width)
    supervised = torch.rand(tokens) < SUPERVISED
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(ids, captured, final_norm) if family == "eagle3" else model(ids, captured, final_norm, supervised)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"s": time.perf_counter() - start, "loss": loss.item()}), flush=True)
    peak = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps({"peak_mib": peak, "gemm_gflops": gemm_gflops(torch.bfloat16 if dtype == "bf16" else torch.float32)}))


if __name__ == "__main__":
    main()
