#!/usr/bin/env python3
"""Writes a tiny random Hugging Face directory (standard library only): config, weights, byte-level tokenizer, template.

usage: make_tiny_model.py OUT [key=value ...]     e.g. family=qwen3 layers=4 hidden=32 tied=false seed=3
"""
import json
import pathlib
import random
import struct
import sys

EXPERTS = 4  # of a layer with a router
HYBRID = {"qwen3_next": "Qwen3NextForCausalLM", "qwen3_5": "Qwen3_5ForConditionalGeneration",
          "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration"}
KEYS, VALUES, DIM, TAPS = 2, 4, 8, 4  # heads of a delta net, their width, its convolution
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for byte in range(256):
        if byte in keep:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def tokenizer():
    letters = byte_alphabet()
    vocab = {letters[byte]: byte for byte in range(256)}
    merges = []
    for left, right in [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("e", "r"), ("Ġ", "the"), ("o", "n"), ("an", "d")]:
        if left in vocab and right in vocab:
            vocab[left + right] = len(vocab)
            merges.append(f"{left} {right}")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    added = [
        {"id": len(vocab) + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, text in enumerate(special)
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges},
    }


def shapes(o):
    hidden, inner, head_dim = o["hidden"], o["intermediate"], o["head_dim"]
    out = {"model.embed_tokens.weight": [o["vocab"], hidden], "model.norm.weight": [hidden]}
    for i in range(o["layers"]):
        p = f"model.layers.{i}."
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = [hidden]
        for name, rows in (("q", o["heads"]), ("k", o["kv_heads"]), ("v", o["kv_heads"])):
            out[p + f"self_attn.{name}_proj.weight"] = [rows * head_dim, hidden]
            if o["family"] == "qwen2":
                out[p + f"self_attn.{name}_proj.bias"] = [rows * head_dim]
        out[p + "self_attn.o_proj.weight"] = [hidden, o["heads"] * head_dim]
        if o["family"] in ("qwen3", "qwen3_moe"):
            out[p + "self_attn.q_norm.weight"] = out[p + "self_attn.k_norm.weight"] = [head_dim]
        experts = [""]
        if o["family"] == "qwen3_moe":  # one tensor an expert, as released
            out[p + "mlp.gate.weight"] = [EXPERTS, hidden]
            experts = [f"experts.{e}." for e in range(EXPERTS)]
        for e in experts:
            out[p + f"mlp.{e}gate_proj.weight"] = out[p + f"mlp.{e}up_proj.weight"] = [inner, hidden]
            out[p + f"mlp.{e}down_proj.weight"] = [hidden, inner]
    if not o["tied"]:
        out["lm_head.weight"] = [o["vocab"], hidden]
    return out


def hybrid_shapes(o):
    """Three layers of four have a delta net; the wrapped families have a vision tower and a head of their own beside."""
    hidden, inner, head_dim = o["hidden"], o["intermediate"], o["head_dim"]
    wrapped = o["family"] != "qwen3_next"
    root = "model.language_model." if wrapped else "model."
    keys, values = KEYS * DIM, VALUES * DIM
    out = {root + "embed_tokens.weight": [o["vocab"], hidden], root + "norm.weight": [hidden]}
    for i in range(o["layers"]):
        p = f"{root}layers.{i}."
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = [hidden]
        if (i + 1) % 4 == 0:
            for name, rows in (("q", 2 * o["heads"]), ("k", o["kv_heads"]), ("v", o["kv_heads"])):
                out[p + f"self_attn.{name}_proj.weight"] = [rows * head_dim, hidden]
            out[p + "self_attn.o_proj.weight"] = [hidden, o["heads"] * head_dim]
            out[p + "self_attn.q_norm.weight"] = out[p + "self_attn.k_norm.weight"] = [head_dim]
        else:
            parts = {"qkv": 2 * keys + values, "z": values, "b": VALUES, "a": VALUES} if wrapped else \
                {"qkvz": 2 * keys + 2 * values, "ba": 2 * VALUES}
            for name, rows in parts.items():
                out[p + f"linear_attn.in_proj_{name}.weight"] = [rows, hidden]
            out[p + "linear_attn.conv1d.weight"] = [2 * keys + values, 1, TAPS]
            out[p + "linear_attn.A_log"] = out[p + "linear_attn.dt_bias"] = [VALUES]
            out[p + "linear_attn.norm.weight"] = [DIM]
            out[p + "linear_attn.out_proj.weight"] = [hidden, values]
        experts = [""]
        if o["family"] != "qwen3_5":
            out[p + "mlp.gate.weight"] = [EXPERTS, hidden]
            out[p + "mlp.shared_expert_gate.weight"] = [1, hidden]
            experts = [f"experts.{e}." for e in range(EXPERTS)] + ["shared_expert."]
        for e in experts:
            out[p + f"mlp.{e}gate_proj.weight"] = out[p + f"mlp.{e}up_proj.weight"] = [inner, hidden]
            out[p + f"mlp.{e}down_proj.weight"] = [hidden, inner]
    if not o["tied"]:
        out["lm_head.weight"] = [o["vocab"], hidden]
    if wrapped:
        out["model.visual.patch_embed.proj.weight"] = [hidden, 12]
    out["mtp.fc.weight"] = [hidden, 2 * hidden]
    return out


def hybrid_config(o, config):
    config |= {"linear_num_key_heads": KEYS, "linear_num_value_heads": VALUES, "linear_key_head_dim": DIM,
               "linear_value_head_dim": DIM, "linear_conv_kernel_dim": TAPS, "partial_rotary_factor": 0.5}
    if o["family"] != "qwen3_5":
        config |= {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": o["intermediate"],
                   "shared_expert_intermediate_size": o["intermediate"]}
    if o["family"] == "qwen3_next":
        return config
    architectures = config.pop("architectures")
    text = config | {"model_type": o["family"] + "_text"}
    return {"architectures": architectures, "model_type": o["family"], "text_config": text, "vision_config": {"depth": 1},
            "tie_word_embeddings": o["tied"]}


def write_safetensors(path, tensors, rng):
    header, blobs, offset = {}, [], 0
    for name, shape in tensors.items():
        count = 1
        for extent in shape:
            count *= extent
        norm = "norm" in name
        sd = 0.3 if name.endswith("embed_tokens.weight") else 2.0 / shape[-1] ** 0.5
        blob = struct.pack(f"<{count}f", *(1.0 + rng.gauss(0, 0.1) if norm else rng.gauss(0, sd) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main(argv):
    out = pathlib.Path(argv[1])
    o = {"family": "llama", "layers": 6, "hidden": 32, "intermediate": 64, "heads": 4, "kv_heads": 2, "head_dim": 8,
         "tied": True, "seed": 1}
    for pair in argv[2:]:
        key, value = pair.split("=", 1)
        o[key] = value == "true" if key == "tied" else value if key == "family" else int(value)
    out.mkdir(parents=True, exist_ok=True)
    tok = tokenizer()
    words = tok["added_tokens"][-1]["id"] + 1
    o["vocab"] = max(words, o.get("vocab", 0))
    config = {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                           "mistral": "MistralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", **HYBRID}.get(o["family"], o["family"])],
        "model_type": o["family"], "vocab_size": o["vocab"], "hidden_size": o["hidden"],
        "intermediate_size": o["intermediate"], "num_hidden_layers": o["layers"], "num_attention_heads": o["heads"],
        "num_key_value_heads": o["kv_heads"], "head_dim": o["head_dim"], "hidden_act": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": o["tied"],
        "bos_token_id": words - 3, "eos_token_id": words - 1, "torch_dtype": "float32",
    }
    if o["family"] == "qwen3_moe":
        config |= {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": o["intermediate"],
                   "norm_topk_prob": True}
    if o["family"] in HYBRID:
        config = hybrid_config(o, config)
    (out / "config.json").write_text(json.dumps(config, indent=2))
    (out / "tokenizer.json").write_text(json.dumps(tok))
    (out / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>",
                                                           "bos_token": "<|endoftext|>"}))
    write_safetensors(out / "model.safetensors", hybrid_shapes(o) if o["family"] in HYBRID else shapes(o), random.Random(o["seed"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
