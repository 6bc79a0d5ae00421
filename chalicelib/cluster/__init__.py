"""Reads and writes one cluster through its API, and makes a snapshot of it.

Here: connection and credentials, paged lists as bytes, what of an object is read, its limits, and
the three kinds of writes (taints, evictions, events). Not here: decisions (plan).
"""
