"""Published artifacts: records that never change, in chains that reveal tampering."""
