"""Cherry Servers: the vendor has no groups; a node group is the set of
servers with the same two tags.

Here: counted sizes, one order per server, the operation written on the server. Not here: the names
of its settings in the policy (policy/vendors/cherryservers.py).
"""
