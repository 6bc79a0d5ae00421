"""Turns plans into messages: permissions, message formats and sending.

A message only ever carries a name (of a cluster or an operation). All other data is in the table, so a message that
arrives twice, late or out of order is harmless.
"""
