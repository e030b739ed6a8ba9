"""TODO interfaces/http"""
