"""Records of a pass and of operations: the journal, Kubernetes events, metrics.

Here: what is published after decisions and their execution. A failure to publish is logged and
changes nothing. Not here: decisions, and the log of a process (runtime).
"""
