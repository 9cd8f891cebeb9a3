"""Version orders that the controller and the nodes share.

packages: Debian and RPM packages. products: driver, kernel, NCCL, CUDA, VBIOS. python_order: PEP
440. compare: compares by the name of an order, and gives the reason when two versions have no
order.
"""
