"""`python -m app` is the command `plangate`."""

from app.commands.main import main

main()
