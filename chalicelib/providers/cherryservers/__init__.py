"""Cherry Servers as a provider: a group is the set of servers with the same two tags.

The vendor has no groups. Their sizes are therefore counted, each server is bought by its own request, and each server
carries a tag with the operation that bought it (docs/providers/cherryservers.md "Pool operations").
"""
