"""Kernels for a GPU, beside PyTorch's own."""
