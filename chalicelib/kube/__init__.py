"""The cluster's own API: how to reach it, read it in pages as bytes, and change the three things we ever change in it
(taints, pods by eviction, events). Decoding into the model is the business of `snapshot`."""
