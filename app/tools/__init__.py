"""What a tool is, and one file a transport."""
