"""The pages of one wiki: read from git, list and follow links by the index, write by commits."""
