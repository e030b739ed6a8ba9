"""The command line: `wikiholt COMMAND`."""
