"""Feed other people's trainers, or work inside of them. Each is imported only on request."""
