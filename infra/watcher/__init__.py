"""A container that reads the cluster it runs in and posts what it sees to the
webhook of a deployment.
"""
