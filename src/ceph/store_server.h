// SPDX-License-Identifier: Apache-2.0
// The store as a process of its own: requests by stdin, answers by stdout (blocks/words.h). Why not in the daemon: Ceph's library waits for ever where the cluster does not answer; a process can be ended, and its client shut out.
//   room -> JSON; look ID -> KIND SIZE BORN plain|luks; ids -> ID...; make ID SIZE HEADER; copy ID SOURCE SIZE; drop ID; publish ID volume|snapshot; remove ID; grow ID SIZE;
//   header ID -> BASE64; set-header ID BASE64; allow ID HOST GENERATION writes|reads; withdraw ID GENERATION; shut-out ID GENERATION writes|reads; ended ID GENERATION; journal -> BASE64; append BASE64; cut SIZE; replace BASE64
#pragma once
#include "ceph/store.h"

namespace fairlead::ceph {

// First of all answers 0: "0 ok POOLID", or why not. Ends with the process when `in` ends: whoever asked is gone. The exit status.
int serve_store(const Claim& claim, int in, int out);
// Without a claim, for engines on further machines: prints the header of an encrypted volume in base64. The exit status.
int tell_header(const Place& place, const std::string& id);

}  // namespace fairlead::ceph
