"""Client of the workload cluster's API: connection, paged lists as bytes, and the three kinds of
writes (taints, evictions, events).

Here: requests, credentials, errors. Not here: decoding into the model (snapshot).
"""
