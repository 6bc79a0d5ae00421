"""Writes what happened: the journal, Kubernetes events, metrics, the status ConfigMap.

Here: what is published after decisions and their execution. A failure to publish is logged and
changes nothing. Not here: decisions, how people read it (views),
and the log of a process (runtime).
"""
