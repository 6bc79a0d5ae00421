"""The data types that all other packages share: frozen, typed, without input or output.

Here: snapshot, policy, memory, plan, operation and their parts. Not here: decisions and conversions
from a format of an API.
"""
