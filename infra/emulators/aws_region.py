"""The AWS region of the emulated account: the server, its clients and the replacements of moto need the same one."""

REGION = "us-east-1"
