// SPDX-License-Identifier: Apache-2.0
// What Linux' include/uapi/linux/ublk_cmd.h has had since the 6.1 of Debian 12, whose headers build this. Numbers are the kernel's, and stay.
#pragma once
#include <linux/ioctl.h>
#include <linux/ublk_cmd.h>

#include <cstddef>
#include <cstdint>

namespace fairlead::blocks::ublk {

// Commands at /dev/ublk-control, in the form of an ioctl's number (UBLK_F_CMD_IOCTL_ENCODE).
inline constexpr std::uint32_t kAdd = _IOWR('u', 0x04, ublksrv_ctrl_cmd), kDelete = _IOR('u', 0x14, ublksrv_ctrl_cmd) /* UBLK_U_CMD_DEL_DEV_ASYNC */, kStart = _IOWR('u', 0x06, ublksrv_ctrl_cmd), kSetParameters = _IOWR('u', 0x08, ublksrv_ctrl_cmd),
                               kLook = _IOR('u', 0x02, ublksrv_ctrl_cmd), kFeatures = _IOR('u', 0x13, ublksrv_ctrl_cmd), kUpdateSize = _IOWR('u', 0x15, ublksrv_ctrl_cmd), kTryStop = _IOWR('u', 0x17, ublksrv_ctrl_cmd);
// At /dev/ublkcN.
inline constexpr std::uint32_t kFetch = _IOWR('u', 0x20, ublksrv_io_cmd), kCommitAndFetch = _IOWR('u', 0x21, ublksrv_io_cmd);

inline constexpr std::uint64_t kRecovery = 1ULL << 3, kFormIsIoctl = 1ULL << 6, kFailsWithout = 1ULL << 9, kGrows = 1ULL << 10, kHandsPages = 1ULL << 11 /* UBLK_F_AUTO_BUF_REG */, kThreadEach = 1ULL << 13, kSafeStop = 1ULL << 17, kNoScan = 1ULL << 18;
inline constexpr std::uint16_t kLive = 1;                            // UBLK_S_DEV_LIVE
inline constexpr std::uint32_t kNoUnmap = 1U << 15;                  // UBLK_IO_F_NOUNMAP
inline constexpr std::uint32_t kReadOnly = 1U << 0, kCaches = 1U << 2;  // UBLK_ATTR_READ_ONLY, UBLK_ATTR_VOLATILE_CACHE

// UBLK_PARAM_TYPE_BASIC and UBLK_PARAM_TYPE_DISCARD, and, where `types` has kAligned (UBLK_PARAM_TYPE_DMA_ALIGN), the last; the kernel takes a shorter list than its own.
inline constexpr std::uint32_t kAligned = 1U << 4;
struct Parameters {
  std::uint32_t length = sizeof(Parameters), types = 3;
  std::uint32_t attributes = 0;
  std::uint8_t logical_shift = 12, physical_shift = 12, best_shift = 12, least_shift = 12;
  std::uint32_t most_sectors = 0, chunk_sectors = 0;
  std::uint64_t sectors = 0, boundary_mask = 0;
  std::uint32_t discard_alignment = 0, discard_granularity = 4096, most_discarded = 0, most_zeroed = 0;
  std::uint16_t discard_segments = 1, nothing = 0;
  std::uint32_t of_devices[4] = {}, of_zones[8] = {};
  std::uint32_t memory_mask = 511, padding = 0;
};
static_assert(sizeof(Parameters) == 120 && offsetof(Parameters, memory_mask) == 108 && sizeof(ublksrv_ctrl_cmd) == 32 && sizeof(ublksrv_ctrl_dev_info) == 64 && sizeof(ublksrv_io_desc) == 24 && sizeof(ublksrv_io_cmd) == 16);

}  // namespace fairlead::blocks::ublk
