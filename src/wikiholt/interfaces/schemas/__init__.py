"""JSON documents and dates that the interfaces share."""
