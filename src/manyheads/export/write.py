"""Writing a client's model as files that can be handed on."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from manyheads.export.card import card_text, describe
from manyheads.export.load import model_of_run
from manyheads.files import digest, write_whole
from manyheads.made_here import remember
from manyheads.runs.code import trust_in_run
from manyheads.runs.read import check_free


def export(folder: Path, client: int, out: Path, *, trust_code: bool = False) -> dict[str, Any]:
    """Write model.safetensors, model.json and a model card (README.md) into a new folder."""
    check_free(out)
    card, trust = describe(folder, client), trust_in_run(folder, said=trust_code)
    named = model_of_run(folder, client, card, trust).state_dict().items()
    # Maps to other clients' embeddings are of no use to whoever classifies. Copies, because weights may be tied.
    whole = torch.contiguous_format
    tensors = {name: tensor.clone(memory_format=whole) for name, tensor in named if not name.startswith("maps.")}
    content = safetensors.torch.save(tensors)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "model.safetensors", content)
    card["sha256"] = digest(content)
    write_whole(out / "README.md", card_text(card).encode())
    content = json.dumps(card, indent=1).encode()
    write_whole(out / "model.json", content)  # last: a folder with it is whole
    if trust.own:
        remember(out, digest(content), trust.own)
    return card
