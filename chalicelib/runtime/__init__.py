"""What one function process holds between invocations: clients, the policy in force,
webhook credentials, the log.

Here: objects that are made once per process and shared by functions, passes and operations,
and the messages between the functions.
Not here: work on one message.
"""
