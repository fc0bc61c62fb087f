"""The life of a run: start or resume it, loop over windows, stop it, and say what it ends with."""
