"""Directories of pages as page sources: a private mirror follows the files on disk."""
