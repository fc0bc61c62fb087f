"""BatchNorm over several batches in one pass, each with statistics of its own, fused with addition and ReLU.

A private and a public batch must not share statistics, but their convolutions may share a pass. On a GPU that pass is
bound by memory, so normalising, adding the shortcut and ReLU are one sweep over it, after one for the statistics.

Axes: a batch in channels_last is a matrix of R rows (samples x height x width) by C channels. Each part of the batch is
a run of rows. A program takes a block of channels and a chunk of a part's rows, tile by tile (R x U x C; Triton deals
the last and the first axis to threads, so each has the U loads of its elements in flight and adds them up alone).
"""

# The kernels' arguments are addresses and numbers that only Triton knows the type of.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyheads.models.kernels.launch import compiled, on_device_of

# From triton.language, once `_kernels` has been called.
constexpr: TypeAlias = Any
tl: Any = None


@dataclass(frozen=True)
class Launch:
    """The cut of a kernel into programs: warps per program, loads in flight per thread, about how many programs."""

    warps: int
    unroll: int
    programs: int


BLOCK_C = 64  # channels of a program: 128 bytes of bfloat16, one line of the cache
STATISTICS = Launch(warps=8, unroll=4, programs=264)
NORMALISE = Launch(warps=8, unroll=2, programs=528)
GRADIENT_SUMS = Launch(warps=8, unroll=2, programs=264)
GRADIENT = Launch(warps=8, unroll=2, programs=528)
# Every program of a second kernel adds up what the first one left: chunks x BLOCK_C numbers, twice. More cost more
# than what the first kernel gains.
MOST_PARTIALS = 4096


def fused_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    parts: tuple[int, ...],
    momentum: float,
    eps: float,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Normalise each part of the batch x (N x C x H x W) by its own statistics, add the residual, apply ReLU.

    The running statistics move once per part, in order, as in separate passes. The bits are the same every time: sums
    are taken in a fixed order. Nothing waits for the device, so a CUDA graph can hold it.
    """
    rows = [size * x.shape[2] * x.shape[3] for size in parts]
    if sum(parts) != len(x) or min(rows, default=0) < 2:
        raise ValueError(f"parts {parts} of a batch {tuple(x.shape)}: their sum is not its size, or one is too small")
    _check(x, residual, weight, bias, running_mean, running_var)
    starts = tuple(accumulate(rows, initial=0))
    y: Tensor = _FusedBatchNorm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, residual, running_mean, running_var, starts, momentum, eps, relu
    )
    return y


def fused_affine(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    eps: float,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Normalise by the running statistics as in evaluation, add the residual, apply ReLU. It has no gradient."""
    _check(x, residual, weight, bias, running_mean, running_var)
    x, residual = _rows_first(x), None if residual is None else _rows_first(residual)
    y, starts = torch.empty_like(x), (0, x.numel() // x.shape[1])
    cut, blocks, chunks = _cut(x, starts, NORMALISE)
    with on_device_of(x):
        _kernels().normalise[chunks, blocks, 1](
            *(x, residual, y, None, weight, bias, running_mean, running_var, None),
            **(cut | {"K": 0, "K2": 0, "EPS": eps, "MOMENTUM": 0.0, "RESIDUAL": residual is not None, "RELU": relu}),
        )
    return y


class _FusedBatchNorm(torch.autograd.Function):
    """The autograd function: two kernels forward, two backward.

    ReLU's mask is computed again from x, which is read anyway, or with a residual from y, which is kept anyway as the
    input of what follows. Then the masked gradient, which is the residual's, is written once and read in the place of
    two.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        starts: tuple[int, ...],
        momentum: float,
        eps: float,
        relu: bool,
    ) -> Tensor:
        x, residual = _rows_first(x), None if residual is None else _rows_first(residual)
        y, parts, kernels = torch.empty_like(x), len(starts) - 1, _kernels()
        saved = weight.new_empty(2, parts, x.shape[1])
        cut, blocks, partials = _cut(x, starts, STATISTICS, MOST_PARTIALS)
        partial = weight.new_empty(parts, 2, partials, x.shape[1])
        with on_device_of(x):
            kernels.statistics[partials, blocks, parts](x, partial, **cut)
            cut, blocks, chunks = _cut(x, starts, NORMALISE)
            cut |= {"K": partials, "K2": _power(partials), "EPS": eps, "MOMENTUM": momentum}
            kernels.normalise[chunks + 1, blocks, parts](
                *(x, residual, y, partial, weight, bias, running_mean, running_var, saved),
                **(cut | {"RESIDUAL": residual is not None, "RELU": relu}),
            )
        ctx.starts, ctx.relu, ctx.residual = starts, relu, residual is not None
        ctx.save_for_backward(x, weight, bias, saved, y if relu and residual is not None else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, saved, y = ctx.saved_tensors
        dy, parts, kernels = _rows_first(dy), len(ctx.starts) - 1, _kernels()
        dx, dz = torch.empty_like(x), dy if y is None else torch.empty_like(x)
        dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
        cut, blocks, partials = _cut(x, ctx.starts, GRADIENT_SUMS, MOST_PARTIALS)
        partial = weight.new_empty(parts, 2, partials, x.shape[1])
        again = ctx.relu and y is None
        with on_device_of(x):
            kernels.gradient_sums[partials, blocks, parts](
                *(dy, x, y, dz, saved, weight, bias, partial), **(cut | {"AGAIN": again, "FROM_Y": y is not None})
            )
            cut, blocks, chunks = _cut(x, ctx.starts, GRADIENT)
            kernels.gradient[chunks + 1, blocks, parts](
                *(dz, x, dx, partial, saved, weight, bias, dweight, dbias),
                **(cut | {"K": partials, "K2": _power(partials), "AGAIN": again}),
            )
        return dx, dweight, dbias, dz if ctx.residual else None, None, None, None, None, None, None


def _check(x: Tensor, residual: Tensor | None, *channels: Tensor) -> None:
    """Check what the kernels take for granted: they see nothing but addresses."""
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(f"residual {residual.dtype} {tuple(residual.shape)}, x {x.dtype} {tuple(x.shape)}")
    wanted = torch.float64 if x.dtype == torch.float64 else torch.float32
    for each in channels:
        if each.dtype != wanted or each.shape != x.shape[1:2] or not each.is_contiguous():
            raise ValueError(f"weight, bias and statistics of x {x.dtype} {tuple(x.shape)}: {wanted} per channel")


def _rows_first(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _cut(
    x: Tensor, starts: tuple[int, ...], launch: Launch, most: int | None = None
) -> tuple[dict[str, Any], int, int]:
    """Return what a kernel knows about the shape of x, the blocks of channels, and the chunks of each part's rows."""
    channels, parts = x.shape[1], len(starts) - 1
    block = min(BLOCK_C, _power(channels))
    blocks = -(-channels // block)
    rows = max(1, 32 * launch.warps * 16 // (x.element_size() * block))  # 16 bytes: a thread's widest load
    tile, longest = rows * launch.unroll, max(stop - start for start, stop in pairwise(starts))
    chunks = min(-(-launch.programs // (blocks * parts)), -(-longest // tile))
    if most is not None:
        chunks = max(1, min(chunks, most // block))
    tiles = -(-longest // (chunks * tile))
    cut = {"C": channels, "BLOCK_C": block, "R": rows, "U": launch.unroll, "T": tiles, "STARTS": starts, "PARTS": parts}
    return cut | {"num_warps": launch.warps}, blocks, -(-longest // (tiles * tile))


@cache
def _kernels() -> SimpleNamespace:
    kernels = (_statistics, _normalise, _gradient_sums, _gradient)
    return compiled(globals(), kernels, helpers=(_tile, _chunk, _sums, _moments))


def _tile(C: constexpr, BLOCK_C: constexpr, R: constexpr, U: constexpr):
    """Return the channels of a tile, which of them exist, its rows, and the address of each element."""
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    r_RU1 = tl.arange(0, R)[:, None, None] + tl.arange(0, U)[None, :, None] * R
    return c, c < C, r_RU1, r_RU1 * C + c[None, None, :]


def _chunk(chunk, STARTS: constexpr, PARTS: constexpr, EACH: constexpr):
    """Return the first row and the number of rows of this program's part, and the first and last row of its chunk.

    The last row is the one after the end. A chunk before the first has no rows.
    """
    first, last = STARTS[0], STARTS[1]
    for part in tl.static_range(1, PARTS):
        first = tl.where(tl.program_id(2) == part, STARTS[part], first)
        last = tl.where(tl.program_id(2) == part, STARTS[part + 1], last)
    start = first + tl.maximum(chunk, 0) * EACH
    return first, last - first, start, tl.where(chunk < 0, start, tl.minimum(start + EACH, last))


def _sums(partial, part, c, there, C: constexpr, K: constexpr, K2: constexpr):
    """Add up the two sums of a part over its K chunks."""
    k = tl.arange(0, K2)[:, None]
    at, mask = partial + (part * 2 * K + k) * C + c[None, :], (k < K) & there[None, :]
    return tl.sum(tl.load(at, mask, 0.0), 0), tl.sum(tl.load(at + K * C, mask, 0.0), 0)


def _moments(x, first, n, one, two, c, there, C: constexpr):
    """Return mean and variance from the sums of differences to the part's first row, and of their squares."""
    one, two = one / n, two / n
    shift = tl.load(x + tl.cast(first, tl.int64) * C + c, there, 0.0).to(one.dtype)
    return shift + one, tl.maximum(two - one * one, 0.0)


def _statistics(
    x, partial, C: constexpr, BLOCK_C: constexpr, R: constexpr, U: constexpr, T: constexpr,
    STARTS: constexpr, PARTS: constexpr,
):  # fmt: skip
    """Compute per chunk the sum of differences to the part's first row, and of their squares.

    The squares of x itself would lose the variance where the mean is large.
    """
    c, there, r, at = _tile(C, BLOCK_C, R, U)
    k, K = tl.program_id(0), tl.num_programs(0)
    first, _, start, stop = _chunk(k, STARTS, PARTS, T * U * R)
    shift = tl.load(x + tl.cast(first, tl.int64) * C + c, there, 0.0).to(partial.dtype.element_ty)
    one = tl.zeros((R, BLOCK_C), partial.dtype.element_ty)
    two = tl.zeros((R, BLOCK_C), partial.dtype.element_ty)
    for tile in range(T):
        row = start + tile * (U * R)
        mask = (row + r < stop) & there[None, None, :]
        value = tl.load(x + tl.cast(row, tl.int64) * C + at, mask, 0.0).to(partial.dtype.element_ty)
        value = tl.where(mask, value - shift[None, None, :], 0.0)
        one += tl.sum(value, 1)
        two += tl.sum(value * value, 1)
    to = partial + (tl.program_id(2) * 2 * K + k) * C + c
    tl.store(to, tl.sum(one, 0), there)
    tl.store(to + K * C, tl.sum(two, 0), there)


def _normalise(
    x, residual, y, partial, weight, bias, running_mean, running_var,
    saved, C: constexpr, BLOCK_C: constexpr, R: constexpr, U: constexpr, T: constexpr, STARTS: constexpr,
    PARTS: constexpr, K: constexpr, K2: constexpr, EPS: constexpr, MOMENTUM: constexpr, RESIDUAL: constexpr,
    RELU: constexpr,
):  # fmt: skip
    """Normalise by the statistics of K chunks or, if K = 0, by the running statistics.

    With K > 0, the first program of a block has no rows. It updates the running statistics for all parts instead,
    because these move in order.
    """
    c, there, r, at = _tile(C, BLOCK_C, R, U)
    chunk = tl.program_id(0) - 1 if K > 0 else tl.program_id(0)
    first, n, start, stop = _chunk(chunk, STARTS, PARTS, T * U * R)
    w, b = tl.load(weight + c, there, 0.0), tl.load(bias + c, there, 0.0)
    if K > 0:
        one, two = _sums(partial, tl.program_id(2), c, there, C, K, K2)
        mean, var = _moments(x, first, n, one, two, c, there, C)
        if (chunk < 0) & (tl.program_id(2) == 0):
            run_mean, run_var = tl.load(running_mean + c, there, 0.0), tl.load(running_var + c, there, 0.0)
            for part in tl.static_range(PARTS):
                rows = STARTS[part + 1] - STARTS[part]
                sum_one, sum_two = _sums(partial, part, c, there, C, K, K2)
                m, v = _moments(x, STARTS[part], rows, sum_one, sum_two, c, there, C)
                tl.store(saved + part * C + c, m, there)
                tl.store(saved + (PARTS + part) * C + c, tl.rsqrt(v + EPS), there)
                run_mean = (1 - MOMENTUM) * run_mean + MOMENTUM * m
                run_var = (1 - MOMENTUM) * run_var + MOMENTUM * (v * rows / (rows - 1))
            tl.store(running_mean + c, run_mean, there)
            tl.store(running_var + c, run_var, there)
    else:
        mean, var = tl.load(running_mean + c, there, 0.0), tl.load(running_var + c, there, 0.0)
    scale = w * tl.rsqrt(var + EPS)
    # From the end: what the statistics read last is still in the cache.
    for tile in range(T):
        row = start + (T - 1 - tile) * (U * R)
        mask = (row + r < stop) & there[None, None, :]
        where = tl.cast(row, tl.int64) * C + at
        value = tl.load(x + where, mask, 0.0).to(w.dtype)
        value = (value - mean[None, None, :]) * scale[None, None, :] + b[None, None, :]
        if RESIDUAL:
            value += tl.load(residual + where, mask, 0.0).to(w.dtype)
        if RELU:
            value = tl.maximum(value, 0.0)
        tl.store(y + where, value, mask)


def _gradient_sums(
    dy, x, y, dz, saved, weight, bias, partial, C: constexpr,
    BLOCK_C: constexpr, R: constexpr, U: constexpr, T: constexpr, STARTS: constexpr, PARTS: constexpr,
    AGAIN: constexpr, FROM_Y: constexpr,
):  # fmt: skip
    """Compute per chunk the sum of dz = dy behind ReLU's mask, and of dz times normalised x. FROM_Y: write dz, too."""
    c, there, r, at = _tile(C, BLOCK_C, R, U)
    k, K, part = tl.program_id(0), tl.num_programs(0), tl.program_id(2)
    _, _, start, stop = _chunk(k, STARTS, PARTS, T * U * R)
    w, b = tl.load(weight + c, there, 0.0), tl.load(bias + c, there, 0.0)
    mean, rstd = tl.load(saved + part * C + c, there, 0.0), tl.load(saved + (PARTS + part) * C + c, there, 0.0)
    one, two = tl.zeros((R, BLOCK_C), w.dtype), tl.zeros((R, BLOCK_C), w.dtype)
    for tile in range(T):
        row = start + tile * (U * R)
        mask = (row + r < stop) & there[None, None, :]
        where = tl.cast(row, tl.int64) * C + at
        grad = tl.load(dy + where, mask, 0.0).to(w.dtype)
        value = tl.load(x + where, mask, 0.0).to(w.dtype) - mean[None, None, :]
        if AGAIN:
            grad = tl.where(value * (w * rstd)[None, None, :] + b[None, None, :] > 0, grad, 0.0)
        if FROM_Y:
            grad = tl.where(tl.load(y + where, mask, 0.0) > 0, grad, 0.0)
            tl.store(dz + where, grad, mask)
        one += tl.sum(grad, 1)
        two += tl.sum(grad * value, 1)
    to = partial + (part * 2 * K + k) * C + c
    tl.store(to, tl.sum(one, 0), there)
    tl.store(to + K * C, tl.sum(two, 0) * rstd, there)


def _gradient(
    dz, x, dx, partial, saved, weight, bias, dweight, dbias,
    C: constexpr, BLOCK_C: constexpr, R: constexpr, U: constexpr, T: constexpr, STARTS: constexpr,
    PARTS: constexpr, K: constexpr, K2: constexpr, AGAIN: constexpr,
):  # fmt: skip
    """Compute dx = weight / std * (dz - mean of dz - normalised x * mean of (dz * normalised x)).

    The first program of a block has no rows; it computes dweight and dbias over all parts.
    """
    c, there, r, at = _tile(C, BLOCK_C, R, U)
    chunk, part = tl.program_id(0) - 1, tl.program_id(2)
    _, n, start, stop = _chunk(chunk, STARTS, PARTS, T * U * R)
    w, b = tl.load(weight + c, there, 0.0), tl.load(bias + c, there, 0.0)
    mean, rstd = tl.load(saved + part * C + c, there, 0.0), tl.load(saved + (PARTS + part) * C + c, there, 0.0)
    one, two = _sums(partial, part, c, there, C, K, K2)
    if (chunk < 0) & (part == 0):
        sum_one, sum_two = one, two
        for other in tl.static_range(1, PARTS):
            more_one, more_two = _sums(partial, other, c, there, C, K, K2)
            sum_one += more_one
            sum_two += more_two
        tl.store(dbias + c, sum_one, there)
        tl.store(dweight + c, sum_two, there)
    scale = w * rstd
    flat, slope = scale * (one / n), scale * rstd * (two / n)
    for tile in range(T):
        row = start + (T - 1 - tile) * (U * R)
        mask = (row + r < stop) & there[None, None, :]
        where = tl.cast(row, tl.int64) * C + at
        grad = tl.load(dz + where, mask, 0.0).to(w.dtype)
        value = tl.load(x + where, mask, 0.0).to(w.dtype) - mean[None, None, :]
        if AGAIN:
            grad = tl.where(value * scale[None, None, :] + b[None, None, :] > 0, grad, 0.0)
        grad = grad * scale[None, None, :] - flat[None, None, :] - value * slope[None, None, :]
        tl.store(dx + where, grad, mask)
