"""The files of threads: rows that name immutable bodies, their paths, their versions."""
