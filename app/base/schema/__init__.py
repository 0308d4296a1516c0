"""JSON Schema: bounds, validation and messages."""
