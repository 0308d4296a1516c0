"""The transport `mcp`: sessions, pinned definitions and the wire below the SDK."""
