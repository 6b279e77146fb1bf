#!/usr/bin/env python3
"""Our adapters in PEFT: adapters.py BINDIR [MODEL]   (run by ./dev peers with the peers' Python)

A tiny Qwen3 and a tiny Qwen3-MoE get an adapter by sf-init lora, which sf-train sft trains. PEFT must load the run's
checkpoint and its export without a missing or a left-over key, give the logits of what sf-shard merge makes, merge to
the same weights, and save files that sf-shard import takes back without losing a bit; undoing a merge restores every
byte; sf-eval generate gives the tokens that transformers' largest logits give. A fresh adapter starts as PEFT's does.
Adapters that PEFT made (standard and rank-stabilised scaling, other ranks and alphas for some modules) are imported
and compute the same; what is not built here is refused by name. MODEL, the demo model's checkpoint, gets such an adapter too.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGITS, WEIGHTS = 1e-4, 1e-6  # sums in another order
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def demand(fine, what):
    if not fine:
        sys.exit(what)


def chats(path):
    rng = random.Random(3)
    words = "the cat and dog in on an inner theory thunder runs over other".split()
    say = lambda count: " ".join(rng.choice(words) for _ in range(count))
    rows = [{"messages": [{"role": "user", "content": say(4)}, {"role": "assistant", "content": say(8)}]}
            for _ in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def model_of(directory, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)


def adapted(directory, adapter):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*adapter keys.*")
        return PeftModel.from_pretrained(model_of(directory), adapter)


def logits(model):
    with torch.no_grad():
        return model(torch.arange(3, 40)[None]).logits


def apart(a, b):
    return (a - b).abs().max().item()


def same(shard, a, b, what):
    said = run(shard, "diff", a, b).strip()
    print(f"{what}: {said}")


def starts_alike(work, fresh):
    """A of PEFT and ours: uniform within one over the root of the inputs; B zero."""
    config = json.loads((fresh / "adapter_config.json").read_text())
    peer = get_peft_model(model_of(work / "target-hf"), LoraConfig(
        r=config["r"], lora_alpha=config["lora_alpha"], target_modules=config["target_modules"],
        rank_pattern=config["rank_pattern"], alpha_pattern=config["alpha_pattern"],
        target_parameters=config["target_parameters"], task_type="CAUSAL_LM"))
    peer.save_pretrained(work / "peft-fresh")
    ours, theirs = load_file(fresh / "adapter_model.safetensors"), load_file(work / "peft-fresh/adapter_model.safetensors")
    demand({k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}, "other names or shapes")
    spread = {"ours": [], "PEFT's": []}
    for whose, tensors in (("ours", ours), ("PEFT's", theirs)):
        for name, value in tensors.items():
            if "lora_B" in name:
                demand(value.abs().max() == 0, f"{whose} {name} is not zero")
            else:
                unit = value.double() * value.shape[-1] ** 0.5
                demand(unit.abs().max() <= 1 + 1e-6, f"{whose} {name} leaves its bound")
                spread[whose].append(unit.flatten())
    text = ", ".join(f"{whose} {torch.cat(all).std():.4f}" for whose, all in spread.items())
    print(f"fresh A in units of 1/sqrt(in): standard deviation {text} (uniform: {3 ** -0.5:.4f}); B zero in both")
    demand(all(abs(torch.cat(each).std() - 3 ** -0.5) < 0.02 for each in spread.values()), "not uniform")
    return peer


def answers_alike(bindir, work, target, hf):
    config = json.loads((hf / "tokenizer_config.json").read_text())
    words = PreTrainedTokenizerFast(tokenizer_file=str(hf / "tokenizer.json"), chat_template=config["chat_template"])
    run(bindir / "sf-eval", "generate", "--target", target, "--questions", work / "chats.jsonl", "--set",
        "generate.max_new_tokens=12", "--set", "generate.ignore_eos=true", "-o", work / "answers")
    model, tokens = model_of(hf), 0
    rows = [json.loads(line) for line in (work / "answers").read_text().splitlines()][1:]
    asked = [json.loads(line)["messages"][:1] for line in (work / "chats.jsonl").read_text().splitlines()]
    for row, question in zip(rows, asked, strict=True):
        ids = words.encode(words.apply_chat_template(question, tokenize=False, add_generation_prompt=True))
        for token in row["ids"]:
            with torch.no_grad():
                best = model(torch.tensor([ids])).logits[0, -1].argmax().item()
            demand(best == token, f"token {tokens} is {token}, transformers' best is {best}")
            ids.append(token)
            tokens += 1
    print(f"sf-eval generate: {tokens} of {tokens} greedy tokens as transformers' largest logits give them")


def compare(bindir, work, family, lora):
    shard = bindir / "sf-shard"
    run(sys.executable, ROOT / "tests/support/make_tiny_model.py", work / "source", f"family={family}", "layers=2")
    run(bindir / "sf-init", "model", work / "source", "-o", work / "target")
    run(bindir / "sf-init", "lora", work / "target", "--rank", 3, *lora, "-o", work / "fresh")
    chats(work / "chats.jsonl")
    run(bindir / "sf-train", "sft", "--target", work / "target", "--adapter", work / "fresh", "--data",
        work / "chats.jsonl", "--set", "training.learning_rate=0.05", "-o", work / "run")
    trained = work / "run" / "latest"
    run(shard, "merge", trained, "--keep", "-o", work / "merged")
    run(shard, "merge", work / "merged", "--undo", "-o", work / "unmerged")
    same(shard, work / "target", work / "unmerged", f"{family}, merged and undone")
    for what in ("target", "merged"):
        run(shard, "export", work / what, "--to", "hf", "-o", work / f"{what}-hf")
    run(shard, "export", trained, "--to", "peft", "-o", work / "peft")
    starts_alike(work, work / "fresh")
    wanted, plain = logits(model_of(work / "merged-hf")), logits(model_of(work / "target-hf"))
    for adapter in (work / "peft", trained):
        model = adapted(work / "target-hf", adapter)
        found = logits(model)
        off, effect = apart(found, wanted), apart(found, plain)
        print(f"{family}, {adapter.name} in PEFT: logits at most {off:.2e} from the merged model's; "
              f"the adapter moves {effect:.2e}")
        demand(off <= LOGITS and effect >= 100 * LOGITS, "PEFT computes something else")
    model.save_pretrained(work / "again")
    run(shard, "import", work / "again", "--target", work / "target", "-o", work / "back")
    same(shard, work / "peft", work / "back", f"{family}, saved by PEFT and imported")
    ours = load_file(work / "merged" / "model.safetensors")
    theirs = model.merge_and_unload().state_dict()
    worst = max(apart(theirs[name], value) for name, value in ours.items())
    print(f"{family}: merged weights at most {worst:.2e} from PEFT's")
    demand(worst <= WEIGHTS, "PEFT merges to something else")
    answers_alike(bindir, work, work / "merged", work / "merged-hf")


def trained_by_peft(hf, out, seed, **settings):
    """An adapter whose B is not zero, as PEFT saves it."""
    torch.manual_seed(seed)
    model = get_peft_model(model_of(hf), LoraConfig(task_type="CAUSAL_LM", **settings))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(out)
    return logits(model), logits(model.double())


def imported(bindir, work, hf, target, name, settings):
    """PEFT's own files: taken, merged in fp32, given back."""
    shard = bindir / "sf-shard"
    work.mkdir()
    wanted, exact = trained_by_peft(hf, work / "theirs", 5, **settings)
    run(shard, "import", work / "theirs", "--target", target, "-o", work / "ours")
    run(shard, "export", work / "ours", "--to", "peft", "-o", work / "back")
    same(shard, work / "theirs", work / "back", f"{name}, imported and exported")
    run(shard, "merge", work / "ours", "--target", target, "-o", work / "merged")
    run(shard, "export", work / "merged", "--to", "hf", "-o", work / "hf")
    again = apart(logits(adapted(hf, work / "back")), wanted)
    # What a logit's distance means depends on its size and the model's depth, so PEFT measures it: fp32 against fp64.
    own, ours = apart(wanted, exact), model_of(work / "hf")
    narrow = apart(logits(ours), exact)
    weights = apart(logits(ours.double()), exact)  # of the merged weights' single rounding, sums left out
    print(f"{name}: logits up to {exact.abs().max():.1f}; from PEFT in fp64, PEFT in fp32 is {own:.2e}, the merged model "
          f"{narrow:.2e} and its weights alone {weights:.2e}; our export in PEFT is {again:.2e} from PEFT in fp32")
    demand(weights <= own and narrow <= 2 * own and again == 0, "PEFT's adapter computes something else here")


# What PEFT can do and we do not: the word that must name it, and how PEFT is asked.
REFUSED = {"use_dora": {"use_dora": True}, 'bias "all"': {"bias": "all"}, 'bias "lora_only"': {"bias": "lora_only"},
           "modules_to_save": {"modules_to_save": ["lm_head"]},
           "lora_bias": {"lora_bias": True, "target_modules": ["q_proj"]}, "layer_replication": {"layer_replication": [[0, 2], [1, 2]]},
           "trainable_token_indices": {"trainable_token_indices": [1]}, 'init_lora_weights "pissa"': {"init_lora_weights": "pissa"},
           'init_lora_weights "olora"': {"init_lora_weights": "olora"}, "lora_embedding_A": {"target_modules": ["q_proj", "embed_tokens"]}}


def refused(bindir, work, hf, target):
    """Each by name, none silently left out."""
    for place, (word, settings) in enumerate(REFUSED.items()):
        model = model_of(hf)
        for module in model.modules():  # a bias of B wants one in the layer
            if settings.get("lora_bias") and isinstance(module, torch.nn.Linear):
                module.bias = torch.nn.Parameter(torch.zeros(module.out_features))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            get_peft_model(model, LoraConfig(**({"task_type": "CAUSAL_LM", "target_modules": ["q_proj"]} | settings))
                           ).save_pretrained(work / f"refused{place}")
        done = subprocess.run([bindir / "sf-shard", "import", work / f"refused{place}", "--target", target, "-o",
                               work / "never"], capture_output=True, text=True, check=False)
        demand(done.returncode in (65, 78) and word in done.stderr, f"{word}: status {done.returncode}, {done.stderr}")
    print(f"PEFT's own with {', '.join(REFUSED)}: {len(REFUSED)} of {len(REFUSED)} refused by name")


def rounded_once(bindir, work, target):
    """A BF16 target: each merged value is the nearest to W + s B A in fp32."""
    shard = bindir / "sf-shard"
    run(bindir / "sf-init", "model", work / "source", "--dtype", "bf16", "-o", work / "narrow")
    run(bindir / "sf-init", "lora", work / "narrow", "--rank", 3, "--targets", "q_proj,down_proj", "-o", work / "narrow-fresh")
    run(bindir / "sf-train", "sft", "--target", work / "narrow", "--adapter", work / "narrow-fresh", "--data",
        work / "chats.jsonl", "--set", "training.learning_rate=0.05", "-o", work / "narrow-run")
    run(shard, "merge", work / "narrow-run" / "latest", "-o", work / "narrow-merged")
    before, after = (load_file(work / name / "model.safetensors") for name in ("narrow", "narrow-merged"))
    adapter = load_file(work / "narrow-run" / "latest" / "adapter_model.safetensors")
    config = json.loads((work / "narrow-run" / "latest" / "adapter_config.json").read_text())
    scale, values, other = config["lora_alpha"] / config["r"], 0, 0
    for name, a in adapter.items():
        if "lora_A" not in name:
            continue
        weight = name.removeprefix("base_model.model.").replace(".lora_A.weight", ".weight")
        delta = adapter[name.replace("lora_A", "lora_B")].float() @ a.float()
        wanted = (before[weight].float() + scale * delta).to(torch.bfloat16)
        values += wanted.numel()
        other += (wanted != after[weight]).sum().item()
    print(f"merged into BF16: {values - other} of {values} values are the fp32 sum rounded once")
    demand(values > 0 and other <= values // 1000, "more than sums in another order explain")  # at a tie's border


def main(bindir, model=None):
    torch.set_num_threads(1)
    bindir = pathlib.Path(bindir)
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        patterns = ["--set", "lora.rank_pattern=layers.1.self_attn.q_proj=1,q_proj=5", "--set", "lora.alpha_pattern=v_proj=3"]
        for family, lora in (("qwen3", patterns),
                             ("qwen3_moe", ["--experts", "experts.gate_up_proj,experts.down_proj", "--set",
                                            "lora.rank_pattern=experts.down_proj=2"])):
            (root / family).mkdir()
            compare(bindir, root / family, family, lora)
        work = root / "qwen3"
        rounded_once(bindir, work, work / "target")
        common = {"target_modules": ALL, "r": 3, "lora_alpha": 7}
        refused(bindir, work, work / "target-hf", work / "target")
        for name, settings in (("standard", {}), ("rslora", {"use_rslora": True}),
                               ("patterns", {"rank_pattern": {"layers.0.self_attn.q_proj": 2, "q_proj": 5},
                                             "alpha_pattern": {"q_proj": 11, "down_proj": 1}}),
                               ("patterns and rslora", {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"v_proj": 1},
                                                        "use_rslora": True})):
            imported(bindir, root / name, work / "target-hf", work / "target", f"PEFT's own, {name}", common | settings)
        if model:
            run(bindir / "sf-shard", "export", model, "--to", "hf", "-o", root / "demo-hf")
            imported(bindir, root / "demo", root / "demo-hf", model, "PEFT's own, of the demo model",
                     {"target_modules": ["q_proj", "v_proj", "down_proj"], "r": 8, "lora_alpha": 16})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
