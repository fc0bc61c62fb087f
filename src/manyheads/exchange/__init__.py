"""All that crosses between clients, in the order in which it happens.

snapshot.py      a client as it was at a step: what others may ask
request.py       what one client asks another: as of which step, about which public rows
asking.py        what a client asks in one exchange, and the promises that stand for answers
transport.py     who carries questions and answers
owner.py         who answers, and which snapshots it keeps for askers
schema.py        tables of predictions: made by their owner (form.py: what is said; message.py: the bytes)
origin.py        what an asker makes of an answer: accepted, or refused
received.py      tables in the hands of their receiver          weights.py   checkpoints
pool.py          the snapshots that a client may learn from
confidence.py    how sure a head is (named_confidences.py: by name; density.py: one that is fitted)

An engine drives it (engine/base.py: one round of collect, answer, apply); a refused answer ends in engine/worker.py.
"""
