"""The webhook: key lookup, authentication, payload parsing, event filter.

Here: the steps in their fixed order: size, lookups, signature, replay, and only then the body (docs/security.md). Not
here: the pass that an event causes (reconciler).
"""
