"""Models: backbones, the client's model (a backbone with heads), and its flat tensor."""
