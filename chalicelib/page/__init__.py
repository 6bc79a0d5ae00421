"""The status page: HTML of what the tables say about clusters, for `outscaler
ui` and the hosted page.

Here: what is read, what is shown, templates and headers. Not here: who may see it
(cli/ui_server.py, handlers).
"""
