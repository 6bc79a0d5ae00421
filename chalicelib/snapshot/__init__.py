"""Builds model.Snapshot from a cluster or saved files. Reads only; data that could not be read is listed in the
snapshot's gaps, never guessed."""
