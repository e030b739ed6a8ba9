"""The pages of the demo wikis, and writing them as git repositories."""
