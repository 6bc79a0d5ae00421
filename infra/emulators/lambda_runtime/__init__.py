"""Lambda for one function: AWS's own runtime client runs the unzipped artifact, as in an account.

file_system        /var/task, read-only, and /var/runtime
runtime_api        the Runtime API over HTTP, which delivers events and accepts responses
process            the function's process: its environment, its timeout, its memory
permission_proxy   access to AWS: every call is checked against the policy of the
                   function's role and recorded
hosted_functions   the functions of an emulated account, and their triggers
"""
