"""Evaluation of a wiki's search: questions mined from the wiki or judged by people, metrics, and comparisons."""
