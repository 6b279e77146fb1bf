#!/usr/bin/env python3
"""Feature files as SpecForge's prepare_hidden_states.py writes them (eagle_dflash 5.1), of transformers' own forward.

usage: make.py TARGET OUT     TARGET: tests/support/make_tiny_model.py TARGET. Needs torch and transformers.
"""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

LAYERS = (1, 3, 5)  # states after so many blocks

target, out = sys.argv[1], pathlib.Path(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
generator = torch.Generator().manual_seed(4)
for row, length in enumerate((21, 33, 9)):
    ids = torch.randint(0, 256, (1, length), generator=generator)
    mask = torch.ones(length, dtype=torch.long)
    mask[: length // 3] = 0
    if row == 2:
        mask[:] = 0
    with torch.no_grad():
        states = model.model(ids, output_hidden_states=True)
    folder = out / f"rows_{2000 * (row // 2)}-{2000 * (row // 2 + 1)}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "input_ids": ids[0],
            "loss_mask": mask,
            "hidden_state": states.last_hidden_state.to(torch.bfloat16),
            "aux_hidden_state": torch.cat([states.hidden_states[i] for i in LAYERS], -1).to(torch.bfloat16),
        },
        folder / f"data_{row}.ckpt",
    )
