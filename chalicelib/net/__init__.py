"""Bounded input from outside: HTTP exchanges bounded in time and size, files in size,
YAML in depth and aliases.

Here: limits on whole exchanges, which the read timeout of `requests` does not give: a
server that sends one byte a second stays within that timeout. Not here: the protocol of
an API (kube, providers).
"""
