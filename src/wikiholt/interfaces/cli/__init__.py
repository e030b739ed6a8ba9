"""TODO interfaces/cli"""
