"""Export one tenant into a file, and import it into another deployment."""
