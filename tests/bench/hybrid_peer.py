#!/usr/bin/env python3
"""One layer of a hybrid model in transformers, forward and backward: the peer of run.py --part hybrid.

usage: hybrid_peer.py make delta|experts FOLDER TOKENS                 config.json, and the layer's values, as both sides read them
       hybrid_peer.py delta|experts FOLDER fp32|bf16 THREADS STEPS OUT
delta: Qwen3-Next's gated delta net in its torch form, in chunks of 64 tokens. experts: Qwen3-MoE's router and experts, eager.
Prints a line of JSON: the seconds of each step, and the most MiB that was resident above what was before the layer.
"""
import json
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file, save_file

CONFIGS = {
    "delta": {"model_type": "qwen3_next", "vocab_size": 64, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
              "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
              "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "num_experts": 4,
              "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "hidden_act": "silu",
              "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "tie_word_embeddings": False},
    "experts": {"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1,
                "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 64, "num_experts_per_tok": 8,
                "moe_intermediate_size": 256, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "tie_word_embeddings": False},
}
PREFIX = {"delta": "model.layers.0.linear_attn.", "experts": "model.layers.0.mlp."}


def layer_of(kind, folder):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    if kind == "delta":
        from transformers.models.qwen3_next import modeling_qwen3_next as modeling
        from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

        return modeling.Qwen3NextGatedDeltaNet(Qwen3NextConfig(**config), 0)  # without its kernels' packages: the torch form
    from transformers.models.qwen3_moe import modeling_qwen3_moe as modeling
    from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig

    made = Qwen3MoeConfig(**config)
    made._experts_implementation = "eager"
    return modeling.Qwen3MoeSparseMoeBlock(made)


def make(kind, folder, tokens):
    """Values as a model has them: projections of 1 / sqrt(width), the decays of the class's own beginning."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
    torch.manual_seed(11)
    values = {}
    for name, value in layer_of(kind, folder).state_dict().items():
        if name == "A_log":
            made = torch.empty_like(value, dtype=torch.float32).uniform_(0.01, 16).log()
        elif value.dim() == 1:
            made = torch.ones_like(value, dtype=torch.float32)
        else:
            made = torch.randn(value.shape) / value.shape[-1] ** 0.5
        values[PREFIX[kind] + name] = made
    hidden = CONFIGS[kind]["hidden_size"]
    values["x"], values["g"] = torch.randn(1, tokens, hidden), torch.randn(1, tokens, hidden)
    save_file(values, folder / "model.safetensors")


def status(key):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(key))


def run(kind, folder, dtype, threads, steps, out):
    torch.set_num_threads(threads)
    layer = layer_of(kind, folder)  # what is imported for it counts as idle
    del layer
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    idle = status("VmRSS")
    values = load_file(pathlib.Path(folder) / "model.safetensors")
    dtype = torch.bfloat16 if dtype == "bf16" else torch.float32
    layer = layer_of(kind, folder).to(dtype)
    layer.load_state_dict({name.removeprefix(PREFIX[kind]): value for name, value in values.items() if name not in "xg"})
    x, g = values["x"].to(dtype).requires_grad_(), values["g"].to(dtype)
    del values
    seconds = []
    for _ in range(steps):
        layer.zero_grad(set_to_none=True)
        x.grad = y = None
        start = time.perf_counter()
        y = layer(x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(g)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"s": seconds, "mib": status("VmHWM") - idle}))
    found = {"d." + PREFIX[kind] + name: value.grad for name, value in layer.named_parameters()}
    found |= {"y": y.detach(), "d.x": x.grad}
    save_file({name: value.float().contiguous() for name, value in found.items()}, out)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        run(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
