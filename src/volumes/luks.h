// SPDX-License-Identifier: Apache-2.0
// A volume's file with a LUKS2 header before its data, by the program cryptsetup. The passphrase of its one keyslot is random and lies in a token of the header ("fairlead"), closed by a key of the keyring: whoever has that
// key opens the volume without us too, by cryptsetup. Copies of the file have the same header, and so the same key. Blocks for some 100 ms; neither key nor passphrase is ever an argument, in the environment or on disk.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"
#include "volumes/keyring.h"

namespace fairlead::volumes {

inline constexpr std::int64_t kLuksHeader = std::int64_t{1} << 20;  // bytes before the data

// The file is there, larger than the header, and empty. Errors: of the keyring; Unavailable: cryptsetup is missing or fails.
Result<void> format_luks(const std::string& file, const std::string& key, Keyring& keyring);
// To serve that volume. 64 bytes: to be cleansed. Errors: the same; Forbidden: the keyring does not let it be served; Internal: the header is damaged, or none of ours.
Result<std::string> open_luks(const std::string& file, const std::string& volume, Keyring& keyring);
// Its passphrase is closed by the key's current version from here on, which is returned; one that is so already is left alone. A death in between leaves both, and the newer one counts. The data and its own key stay as they are.
Result<std::int64_t> rewrap_luks(const std::string& file, Keyring& keyring);
// Nothing of its data can be read afterwards, whatever is left of it elsewhere but in copies made before.
Result<void> erase_luks(const std::string& file);

// Of `cryptsetup luksDump --dump-volume-key`: the bytes behind "MK dump:". Internal: there are none.
Result<std::string> read_key_dump(std::string_view text);

}  // namespace fairlead::volumes
