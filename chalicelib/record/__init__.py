"""Telling, after deciding and doing: the journal, Kubernetes events, metrics. Nothing is ever decided by what is told.

A telling that fails is said in the log and changes nothing: a cluster whose events cannot be written is still scaled.
"""
