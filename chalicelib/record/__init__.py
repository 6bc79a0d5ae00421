"""Reports decisions and results: the journal, Kubernetes events, metrics. No decision depends on what is reported.

A failure to report is logged and changes nothing: a cluster whose events cannot be written is still scaled.
"""
