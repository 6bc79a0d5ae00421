"""Clusters saved as files: capture, reading, and drafts of their node groups."""
