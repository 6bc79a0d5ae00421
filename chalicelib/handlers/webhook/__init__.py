"""The webhook: key lookup, authentication, payload parsing, event filter.

The order is fixed, because the security of the route depends on it: size, lookups, signature, replay, and only then is
the body parsed (docs/security.md).
"""
