"""The sync: plan, prepare, embed, apply. Makes one index equal to one tree."""
