"""Exports of other programs (MediaWiki dumps, archives of notes) as Markdown pages and the files that they show."""
