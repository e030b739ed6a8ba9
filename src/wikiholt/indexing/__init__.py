"""The sync: plan, prepare, embed, apply. Keeps one index equal to one tree."""
