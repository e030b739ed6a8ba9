"""Page bytes to page, chunks, terms and snippets. Pure functions."""
