"""The models of a run, as plain torch modules (load.py) and as files with a model card (write.py, card.py)."""
