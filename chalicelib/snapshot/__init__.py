"""The world -> model.Snapshot. Reads only; what could not be read is listed in the snapshot's gaps, never guessed."""
