"""TODO app/importer"""
