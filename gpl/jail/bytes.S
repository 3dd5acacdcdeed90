// SPDX-License-Identifier: GPL-3.0-or-later
// The file fairlead-spank-jail.so as bytes of the program (spank_jail.cpp; jail.cpp writes them out).
  .section .rodata
  .balign 16
  .globl fairlead_spank_jail_begin
fairlead_spank_jail_begin:
  .incbin FAIRLEAD_SPANK_JAIL
  .globl fairlead_spank_jail_end
fairlead_spank_jail_end:
  .section .note.GNU-stack,"",%progbits
