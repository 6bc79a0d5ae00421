"""Plan -> messages: who may act, what a message says, and how it leaves.

A message only ever carries a name (a cluster's, an operation's). Everything else is in the table, so a message that
comes twice, late or out of order can do no harm.
"""
