// SPDX-License-Identifier: GPL-3.0-or-later
// The files fairlead-durable.so and fairlead-nodelay.so as bytes of the program (durable.cpp, nodelay.cpp; prepare.cpp writes them out).
  .section .rodata
  .balign 16
  .globl fairlead_durable_begin
fairlead_durable_begin:
  .incbin FAIRLEAD_DURABLE
  .globl fairlead_durable_end
fairlead_durable_end:
  .balign 16
  .globl fairlead_nodelay_begin
fairlead_nodelay_begin:
  .incbin FAIRLEAD_NODELAY
  .globl fairlead_nodelay_end
fairlead_nodelay_end:
  .section .note.GNU-stack,"",%progbits
