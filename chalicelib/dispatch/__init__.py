"""Messages from one function to another, over SQS and asynchronous invocation.

Here: the content of messages, senders, the check of the policy's mode. Not here: state; a message
carries only the name of a cluster or an operation, so that a message that is repeated, late or
out of order is harmless.
"""
