"""What work cost."""
