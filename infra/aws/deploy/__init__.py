"""Deployment with Chalice: the steps around `chalice deploy` that Chalice cannot perform.

Each step is a module. In the order of `make deploy`: `foundation` (tables, queues, the identity of
the REST API), `project` (a copy of the sources with the package where Chalice looks for it),
`state` (Chalice's record of a deployment, read from the account instead of a file), `functions`
(functions with queue triggers whose event source mappings report failures), `account_settings`
(settings that Chalice does not support). The deployment with CloudFormation is in
infra/aws/package.py and infra/aws/template.json.

Each step can be repeated and starts from the current state of the account. The same command
therefore continues an interrupted deployment.
"""
