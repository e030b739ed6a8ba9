"""TODO interfaces/web"""
