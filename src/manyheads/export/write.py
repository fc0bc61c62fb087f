"""Writing a client's model as files that can be shared."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from manyheads.client.state import OWN_STATISTICS
from manyheads.export.card import card_text, describe
from manyheads.export.description import DESCRIPTION, WEIGHTS, description_of
from manyheads.export.load import model_of_run
from manyheads.files import digest, new_folder, write_whole
from manyheads.provenance import record_code
from manyheads.runs.read import check_new_folder
from manyheads.runs.trust import trust_in_run


def export(
    folder: Path, client: int, out: Path, *, task: str | None = None, trust_code: bool = False
) -> dict[str, Any]:
    """Write model.safetensors, model.json and a model card (README.md) into a new folder.

    What is exported for the shared `task` says nothing of how frequent the client's labels are.
    """
    check_new_folder(out)
    card, trust = describe(folder, client, task), trust_in_run(folder, trust_code=trust_code)
    described = description_of(card, folder)
    named = model_of_run(folder, client, described, trust).state_dict()
    if described.log_prior is not None:
        own = model_of_run(folder, client, described, trust, own_task=True)
        buffers = [
            (name, buffer)
            for name, buffer in own.named_buffers(remove_duplicate=False)  # as state_dict names them
            if name in named and buffer.is_floating_point()
        ]
        if any(not torch.equal(buffer, named[name]) for name, buffer in buffers):
            named |= {f"{OWN_STATISTICS} {name}": buffer for name, buffer in buffers}
    # Classifying needs no maps to other clients' embeddings. Tensors are copied because weights may be tied.
    whole = torch.contiguous_format
    tensors = {
        name: tensor.clone(memory_format=whole) for name, tensor in named.items() if not name.startswith("maps.")
    }
    content = safetensors.torch.save(tensors)
    card["sha256"] = digest(content)
    written = json.dumps(card, indent=1).encode()
    with new_folder(out) as beside:
        write_whole(beside / WEIGHTS, content)
        write_whole(beside / "README.md", card_text(card).encode())
        write_whole(beside / DESCRIPTION, written)
    if trust.imported:
        record_code(out, digest(written), trust.imported)
    return card
