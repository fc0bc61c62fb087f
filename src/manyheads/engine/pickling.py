"""Values as bytes, with large arrays beside them, for processes that trust each other."""

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Packer(pickle.Pickler):
    """Tensors travel as the arrays that they are, arrays that are mapped from a file as its path."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and obj.dtype != torch.bfloat16:
            return torch.from_numpy, (obj.detach().cpu().numpy(),)
        if type(obj) is np.memmap and obj.filename and obj.flags.c_contiguous and not isinstance(obj.base, np.memmap):
            return np.memmap, (obj.filename, obj.dtype, "r", obj.offset, obj.shape)
        return NotImplemented


def packed(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Bytes, and beside them the contents of large arrays, which are not copied."""
    body, buffers = BytesIO(), list[pickle.PickleBuffer]()

    def beside(buffer: pickle.PickleBuffer) -> bool:
        if small := buffer.raw().nbytes < 4096:
            return small  # among the bytes
        buffers.append(buffer)
        return small

    Packer(body, protocol=5, buffer_callback=beside).dump(value)
    return body.getvalue(), buffers


def unpacked(body: bytes, buffers: Sequence[Any]) -> Any:
    return pickle.loads(body, buffers=buffers)  # noqa: S301 - from a process that we started
