"""Cherry Servers: machines without groups at the vendor; a group is what bears the same two tags.

Because the vendor knows no groups, their sizes are counted, each machine is bought by a request of its own, and what
was bought for which operation is written on the machine (cherryservers.md §2, §4).
"""
