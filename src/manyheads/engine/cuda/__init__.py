"""One GPU: the steps of all clients as one CUDA graph."""
