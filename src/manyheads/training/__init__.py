"""The life of a run: start or resume it (start.py), loop over windows (loop.py), stop it (stop.py), and its result.

observer.py    what watches a run                    summarise.py   events and the summary of a run

A client's own step: client/client.py; on a GPU: engine/cuda/student.py.
"""
