// SPDX-License-Identifier: GPL-3.0-or-later
// The file fairlead-durable.so as bytes of the program (durable.cpp; prepare.cpp writes them out).
  .section .rodata
  .balign 16
  .globl fairlead_durable_begin
fairlead_durable_begin:
  .incbin FAIRLEAD_DURABLE
  .globl fairlead_durable_end
fairlead_durable_end:
  .section .note.GNU-stack,"",%progbits
