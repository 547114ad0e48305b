"""Decoys: expected values of hidden tests, put among others of their kind before the sandbox sees them."""
