"""TODO wikis/pages"""
