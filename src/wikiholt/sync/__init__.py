"""Keeps every index at HEAD while the service runs."""
