"""Directories of pages as page sources: a table of paths, stamps and contents follows the files on disk."""
