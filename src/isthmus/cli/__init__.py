"""One module per subcommand, imported only when it is called."""
