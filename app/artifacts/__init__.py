"""What was published: records that never change, in chains that show when somebody changed them."""
