"""What runs on a GPU beside PyTorch's own kernels."""
