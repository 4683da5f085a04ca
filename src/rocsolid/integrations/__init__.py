"""`rs.optimize` for the programs of other libraries, and metrics for servers. Each module imports its library only when it is used."""
