"""Tasks made from any Python source tree that has tests: bugs are planted, the tests find them."""
