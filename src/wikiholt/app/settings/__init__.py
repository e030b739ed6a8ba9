"""TODO app/settings"""
