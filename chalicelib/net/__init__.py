"""Input from outside, bounded: HTTP exchanges in time and size, files in size, YAML in depth and in aliases.

`requests` bounds one wait on a socket, not an exchange: a peer that sends one byte a second is within every read
timeout. It also decompresses what was not asked for, and reads the body of a redirect that is not followed. The modules
here bound the whole exchange where all of its bytes pass, in the socket.
"""
