"""The trainer of the cuda engine, on one GPU: the steps of all clients as one CUDA graph.

trainer.py          loads a stretch of steps, then replays the graph once for each
student.py          a client's step without host work          captured_model.py   its model
teachers.py         asks snapshots in advance                  teacher_answers.py  the tables of their answers
captured_pass.py    a pass of a teacher as a graph             capture.py          capturing, and what cannot be
host_reads.py       refuses what a captured step cannot read   pace.py             how far the host may be ahead
"""
