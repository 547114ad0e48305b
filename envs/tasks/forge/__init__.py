"""Tasks made from any Python source tree with tests: bugs are planted, the tests find them."""
