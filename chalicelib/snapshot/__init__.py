"""The cluster as one `model.Snapshot`.

Here: reads only, of the cluster's API or of files; what could not be read is in the snapshot's
gaps. Not here: requests (kube) and conclusions (plan).
"""
