"""For agents: one wiki's search, pages and writes as tools of the Model Context Protocol. Translates only."""
