"""What is stored of a cluster as people read it: rows, columns, and the sentences in them.

Here: what the commands, the page and the read routes share. Not here: what is written (journal).
"""
