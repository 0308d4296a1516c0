"""The fourth example: an agent answers a question about 336,776 flights with one query, and sees no row of them."""
