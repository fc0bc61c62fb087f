"""Backbones, the client's model, and its flat tensor."""
