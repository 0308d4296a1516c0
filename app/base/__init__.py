"""What every floor stands on: ids, clock, errors, database, blobs, the JSON gate."""
