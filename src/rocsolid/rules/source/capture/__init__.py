"""What goes wrong while a device graph is captured, and when it is replayed."""
