"""Backbones, the client's model, and its flat tensor.

A client's model (client_model.py) is a backbone and one linear layer that holds the main head and all auxiliary
heads. Its parameters, buffers and gradients are views of flat tensors (flat.py).
"""
