"""The webhook's parts: whose door it is, who knocks, what they say, and whether it matters.

The order is fixed and is the security of the route: size, lookups, signature, replay, and only then is a single byte
of the body interpreted (docs/security.md).
"""
