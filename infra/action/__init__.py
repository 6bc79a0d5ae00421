"""The GitHub Action: validates policies, plans them on captured clusters, and
comments on a pull request.
"""
