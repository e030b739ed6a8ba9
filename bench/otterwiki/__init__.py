"""What the plugin costs an Otterwiki, and what it gives."""
