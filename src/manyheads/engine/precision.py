"""The precision in which a GPU computes."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def computing_in(precision: str, device: torch.device) -> Iterator[None]:
    """Compute in a precision.

    bf16: matrix products and convolutions in bfloat16, the rest and all weights in float32 (autocast). tf32 and
    float32: everything in float32, products with 10 bits of mantissa or with all.
    """
    if device.type == "cpu":
        yield
        return
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    # Without autocast's cache, which would keep the weights of the first step until the end of the window.
    casting = torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
    try:
        with torch.cuda.device(device), casting:  # streams and graphs belong to the current device
            yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before
