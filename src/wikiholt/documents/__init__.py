"""PDF, HTML and Office files as Markdown. A process of its own reads each file, which is never trusted."""
