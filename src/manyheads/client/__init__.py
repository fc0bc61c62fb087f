"""A client: its model, its optimizer, its private data, its pool; its batch, its step, its saved state.

client.py           the `Client` and its step; also `Batch`, `WindowBatches` and `learning_rate`
balance.py          the label prior with which heads learn own labels
own_statistics.py   BatchNorm as the client's own samples want it
plan.py             the draws of a window
state.py            what a save holds of a client
"""
