"""TODO interfaces/mcp"""
