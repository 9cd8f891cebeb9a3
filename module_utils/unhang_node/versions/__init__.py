"""Version orders that the controller and the nodes share.

packages: Debian and RPM packages. products: driver, kernel, NCCL, CUDA, VBIOS. python_order: PEP 440. compare: all of them by name, with a reason where two
versions have no order.
"""
