"""Data, from files to batches: sources, reading, packing; split, views and draws.

A source (sources/) is a function from `[data]` to a `SourceListing`: which images there are, with the label, finer
class and owner of each. No pixel is read for that. Then loading.py makes arrays of one shape in memory, or pack.py
makes the same arrays in files, with several processes, and `source = "packed"` maps them. Both read images with the
same code (images.py), so they hold the same pixels. Samples that are left out (`data.classes`, a test part that was
set aside) keep their place: a mapped array is never copied. Images lie on the GPU if they fit, otherwise where they
are; integer tensor operations gather a batch and make its views.
"""
