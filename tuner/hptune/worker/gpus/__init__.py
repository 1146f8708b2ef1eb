"""GPUs of this machine: which ones this process may use, how they are given to a trial, their use.

What differs between vendors is in one table, `machine.VENDORS`. Of each vendor it says

- which variables leave out devices, in the order in which its runtime applies them. The first one
  names devices as the driver does; the next counts those that are left from 0 again. A trial gets
  the first variable alone, because a second one with the same numbers would hide devices.
- how devices are found, and how their memory and their work are measured.

A GPU has a name with which all of hptune talks of it: that of the first variable (`0`, `GPU-8932…`,
`MIG-5c89…`), for vendors other than NVIDIA with the vendor before it (`amd:0`, `intel:0.1`).

Offers: `machine.Gpus` (found and measured), `machine.confine` (for the process of a trial).

May import: nothing.
"""
