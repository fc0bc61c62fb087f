"""The optimizer's kernel against torch's own operations."""

from itertools import product

import pytest
import torch
from torch import Tensor

from manyheads.models.kernels.sgd import BLOCK, sgd
from tests.models import interpreted

SIZES = (1, BLOCK, 2 * BLOCK + 77)
TOLERANCES = {torch.float64: 1e-14, torch.float32: 1e-6}  # a GPU multiplies and adds with one rounding

CASES = ((torch.float64, False), (torch.float32, False), (torch.float32, True))  # few bits go with float32


def state(size: int, dtype: torch.dtype, device: str, *, few_bits: bool) -> list[Tensor | None]:
    """Values, momentum, both gradients and the copy in few bits; each parameter has its gradient in one of the two."""
    rng = torch.Generator().manual_seed(size)
    values, momentum, gradient = (torch.randn(size, generator=rng, dtype=dtype).to(device) for _ in range(3))
    rate_1 = torch.tensor([0.3], dtype=dtype, device=device)
    if not few_bits:
        return [values, momentum, gradient, None, None, rate_1]
    in_low = torch.arange(size, device=device) % 3 > 0
    low_gradient = torch.where(in_low, gradient, 0.0).to(torch.bfloat16)
    low = torch.full((size,), torch.nan, dtype=torch.bfloat16, device=device)
    return [values, momentum, torch.where(in_low, 0.0, gradient), low, low_gradient, rate_1]


def kernel(device: str) -> None:
    for size, (dtype, few_bits) in product(SIZES, CASES):
        tolerance = TOLERANCES[dtype]
        there, here = (state(size, dtype, on, few_bits=few_bits) for on in (device, "cpu"))
        before = [None if tensor is None else tensor.clone() for tensor in here]
        for _ in range(3):
            sgd(*there, weight_decay=0.1, momentum_factor=0.9, fused=device == "cpu")  # type: ignore[arg-type]
            sgd(*here, weight_decay=0.1, momentum_factor=0.9)  # type: ignore[arg-type]
        for place, (one, two, old) in enumerate(zip(there, here, before, strict=True)):
            if one is None or two is None or old is None:
                assert one is two is old is None
                continue
            # Interpreted, the kernel does not round to bfloat16, it cuts off; and a last bit may tip either.
            torch.testing.assert_close(one.cpu(), two, rtol=2.0**-7 if place == 3 else tolerance, atol=tolerance)
            assert torch.equal(two, old) == (place in (2, 4, 5))  # gradients and rate are read only


@pytest.mark.interpreted
def test_the_kernel_interpreted() -> None:
    interpreted("tests.engine.test_kernels")


@pytest.mark.gpu
def test_the_kernel_on_the_gpu() -> None:
    kernel("cuda")


if __name__ == "__main__":
    kernel("cpu")
