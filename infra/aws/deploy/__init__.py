"""A deployment by Chalice: everything around `chalice deploy` that Chalice cannot do by itself.

Here are the steps, one module each, in the order in which `make deploy` takes them: `foundation` (tables, queues, the
REST API's identity), `project` (a copy of the sources with the package in the place where Chalice looks for it),
`state` (what Chalice remembers of a deployment, read from the account instead of a file), `functions` (the functions
that queues start, with mappings that report failures), `finish` (settings that Chalice has no word for). The
CloudFormation way is not here: infra/aws/package.py and infra/aws/template.json.

Each step may be repeated, and each begins with what it finds in the account. So a deployment that was broken off
anywhere is continued by the same command.
"""
