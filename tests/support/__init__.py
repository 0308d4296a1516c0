"""What tests share: the embedded Postgres, services on a database of their own, clients, specs."""
