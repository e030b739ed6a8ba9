"""Values and protocols that every layer shares. No I/O."""
