"""Tables, sentences and pictures, made from run folders only.

tables.py              accuracies by client, by hop, by seed; runs side by side
split_table.py         who owns what                      taught_tables.py        who taught whom
beside.py              alone and together: is it worth joining?
sentences.py           notes about a run                  text.py                 numbers and names as text
advice.py              what to change first
plots.py               all pictures of a run: figures.py, split_figure.py, relations_figures.py
frontier_figure.py     accuracy against bytes
"""
