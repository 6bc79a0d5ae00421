"""HTTP exchanges that are bounded in time and size, for the clients of clusters and of vendors.

`requests` bounds one wait on a socket, not an exchange: a peer that sends one byte a second is within every read
timeout. It also decompresses what was not asked for, and reads the body of a redirect that is not followed. The modules
here bound the whole exchange where all of its bytes pass, in the socket.
"""
