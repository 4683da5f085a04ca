"""What makes an operator unfit for compile or capture."""
