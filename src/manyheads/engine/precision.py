"""In how many bits a GPU computes."""

import contextlib
from collections.abc import Iterator

import torch

from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError

PRECISIONS = ("bf16", "tf32", "float32")


def precision_named(name: str | None, device: torch.device) -> str:
    """On a GPU bf16 unless told otherwise; a CPU computes in float32."""
    if name is not None and name not in PRECISIONS:
        raise ConfigurationError(f"--precision {name}: unknown precision; {nearest(name, PRECISIONS)}")
    if device.type == "cpu":
        if name not in (None, "float32"):
            raise ConfigurationError(f"--precision {name}: a CPU computes in float32; leave it out, or --device cuda")
        return "float32"
    return name or "bf16"


@contextlib.contextmanager
def computing_in(precision: str, device: torch.device) -> Iterator[None]:
    """bf16: matrix products and convolutions in bfloat16, the rest and all weights in float32 (autocast). tf32 and
    float32: everything in float32, products with 10 bits of mantissa or with all.
    """
    if device.type == "cpu":
        yield
        return
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    # Without its cache: that would keep the weights of the first step until the end of the window.
    casting = torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
    try:
        with torch.cuda.device(device), casting:  # streams and graphs are those of the current device
            yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before
