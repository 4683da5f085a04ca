"""`rs.optimize` for the programs of other libraries. Each module imports its library, and is imported only when it is used."""
