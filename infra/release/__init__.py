"""`make release`: everything that a release consists of, in dist/, from a commit and nothing else."""
