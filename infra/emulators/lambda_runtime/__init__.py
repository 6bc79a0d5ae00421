"""Lambda around one function: AWS's own runtime client enters the unzipped artifact, as it does in an account.

folders   /var/task, read-only, and /var/runtime
api       the Runtime API over HTTP, which hands out events and takes answers
process   the function's process: its environment, its timeout, its memory
door      the way to AWS: every call is judged by the policy of the function's role, and noted
hosted    the functions of an emulated account, and what starts them
"""
