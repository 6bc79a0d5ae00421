"""`make release`: builds all files of a release in dist/, from a commit only."""
