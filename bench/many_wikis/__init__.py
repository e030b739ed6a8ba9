"""Ten thousand small wikis in one service, beside one wiki alone."""
