"""Client of the cluster's API: connects, reads lists in pages as bytes, and makes the only three kinds of changes
(taints, evictions, events). `snapshot` decodes the bytes into the model."""
