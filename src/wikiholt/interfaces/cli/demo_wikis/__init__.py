"""TODO interfaces/cli/demo_wikis"""
