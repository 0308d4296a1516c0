"""Tests, in folders by cost: pure, a real Postgres, real processes."""
