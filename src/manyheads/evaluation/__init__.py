"""Evaluation: accuracy by head and hop, who taught whom, the probe, and the choice of a head.

The accuracy of every head on the private distribution of every client (averaged by hops in the graph), how often each
neighbour was the chosen teacher and how often it was right (by public labels, which training does not use), and what
a fresh linear head on the frozen embedding would reach. Evaluating more often does not change the trained weights.
"""
