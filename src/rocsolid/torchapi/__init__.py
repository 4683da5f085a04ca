"""The only package that uses private names of torch: each is declared with its releases, and a test checks that it still exists."""
