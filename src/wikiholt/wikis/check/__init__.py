"""Checks of a wiki at a commit, and of what changed since another: questions, links, and sentences that contradict."""
