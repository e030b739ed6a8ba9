"""TODO interfaces/schemas"""
