"""The nouns: frozen, typed, without I/O. Everything above speaks in these; nothing here knows who speaks."""
