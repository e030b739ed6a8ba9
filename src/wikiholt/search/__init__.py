"""Query to ranked hits, for one wiki."""
