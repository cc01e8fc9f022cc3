"""The private room: files are read, sealed, bounded and counted here, and exact counts handed to the door."""
