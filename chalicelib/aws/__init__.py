"""Clients of AWS for the functions: one botocore session, Secrets Manager, EKS tokens.

Here: what needs AWS and is neither the table (store) nor the queues (dispatch).
Not here: deployment (infra/aws).
"""
