"""Everything that crosses between clients, in the order in which it happens.

snapshot.py      a client as it was at a step: what others may ask
request.py       what one client asks another: as of which step, about which public rows
promises.py      the requests of a client in one exchange, and the promises that stand for answers
transport.py     who carries requests and answers
owner.py         who answers, and which snapshots it keeps for askers
schema.py        tables of predictions, made by their owner (row_format.py: their content; message.py: the bytes)
origin.py        accepts or refuses an answer; checks in message.py (any table) and received.py (this experiment)
received.py      tables as their receiver has them              weights.py   checkpoints
pool.py          the snapshots that a client may learn from
confidence.py    how sure a head is (named_confidences.py: by name; density.py: one that is fitted)

An engine drives it (engine/base.py: one round of collect, answer, apply). A refused answer is counted and told once
(engine/worker.py); the pool keeps what it had, and nobody learns from rows without an answer (`Outputs.known_B`).

With `exchange = "weights"` a snapshot is a checkpoint, evaluated by whoever holds it. With `"predictions"` it is a
table over rows (public sample, view), where a hash of its pixels names the sample; what is counted is what is sent,
and what is trained on is what was received. If a client needs fewer rows before the next exchange than the public set
has, it asks only for those rows, from every snapshot in its pool. Which rows these are follows from named draws. The
owner keeps the snapshots that are still in somebody's pool, also in its save, so no weights reach a worker that does
not hold their owner. In a graph that changes, tables are always whole, because the owner may be out of reach later.
The cuda engine does not encode rows: it cuts and rounds them on the GPU as a message would (`TableSchema.quantized`),
with the same bits.

Bytes are counted as encoded: engine/worker.py, by the rule of `Algorithm.received_bytes`. When a client averages with
everybody, or takes FedMD's mean over everybody, one model or one table is counted, as if a server had sent it.
"""
