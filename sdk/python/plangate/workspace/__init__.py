"""A workspace as agents see it: the rules for paths, windows of text, patterns; and a directory that is served as one."""
