"""Pickling values into bytes, with large arrays apart, for processes that trust each other."""

import pickle
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Packer(pickle.Pickler):
    """A pickler that sends tensors as arrays, and arrays that are mapped from a file as its path."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and obj.dtype != torch.bfloat16:
            return torch.from_numpy, (obj.detach().cpu().numpy(),)
        if type(obj) is np.memmap and obj.filename and obj.flags.c_contiguous and not isinstance(obj.base, np.memmap):
            return np.memmap, (obj.filename, obj.dtype, "r", obj.offset, obj.shape)
        return NotImplemented


def packed(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Return a value as bytes, and apart from them the contents of large arrays, which are not copied."""
    body, buffers = BytesIO(), list[pickle.PickleBuffer]()

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        if small := buffer.raw().nbytes < 4096:
            return small
        buffers.append(buffer)
        return small

    Packer(body, protocol=5, buffer_callback=in_band).dump(value)
    return body.getvalue(), buffers


def unpacked(body: bytes, buffers: Sequence[Any]) -> Any:
    return pickle.loads(body, buffers=buffers)  # noqa: S301 - from a process that we started
