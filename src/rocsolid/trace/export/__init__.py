"""Timeline and flame graph for the HTML page, and files for Perfetto and Parquet."""
