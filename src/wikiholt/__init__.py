"""Search for wikis that live in git."""

__version__ = "0.1.0"
