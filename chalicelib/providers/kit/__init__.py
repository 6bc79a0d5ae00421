"""What the vendors share.

Here: the protocol, errors, HTTP, credentials, limits of calls, and groups with a size. Not here:
anything that knows one vendor.
"""
