"""The public functions. They connect the packages below: take a profile name, probe the machine, pass a plan on."""
