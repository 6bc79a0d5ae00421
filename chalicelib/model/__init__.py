"""Value types shared by all packages: frozen, typed, without I/O. This package imports none of the packages that use
it."""
