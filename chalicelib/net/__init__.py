"""Bounds external input: HTTP exchanges in time and size, files in size, YAML in depth and in aliases.

`requests` bounds one wait on a socket, not an exchange: a peer that sends one byte a second stays within every read
timeout. It also decompresses bodies unrequested, and reads the body of a redirect that is not followed. The modules
here bound the whole exchange in the socket, which all of its bytes pass.
"""
