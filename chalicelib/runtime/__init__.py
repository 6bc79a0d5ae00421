"""What one function process holds between invocations: clients, the policy in force,
webhook credentials, the log.

Here: objects that are made once per process and shared by handlers, reconciler and operations.
Not here: work on one message.
"""
