"""TODO wikis/evaluation"""
